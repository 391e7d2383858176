// Random commands drive a BlockManager and a brute-force model side by side: after every command
// both agree on every block's state, owners and leases, every table, every answer and every
// counter, KV events tell exactly what is indexed, and the manager's own recount finds nothing.
// RapidCheck shrinks a failing command list and prints the seed. QUIRE_PROPERTY_OPERATIONS=1000000
// runs about that many commands per test.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "block_manager/block_manager.h"
#include "tests/block_manager/brute_force_model.h"

namespace quire::block_manager {
namespace {

enum class Action {
  kAdmit,
  kCompute,
  kGrow,
  kFork,
  kSlide,
  kRemove,
  kPreempt,
  kResume,
  kLease,
  kEndSession,
  kWait,
  kReset,
  kFinishCopies
};

// The meaning of the numbers depends on the action; they are taken modulo what there is.
struct Command {
  Action action = Action::kAdmit;
  int sequence = 0, length = 0, variant = 0;
};

std::ostream& operator<<(std::ostream& out, const Command& c) {
  static constexpr const char* kNames[] = {
      "admit",  "compute", "grow",        "fork", "slide", "remove",       "preempt",
      "resume", "lease",   "end_session", "wait", "reset", "finish_copies"};
  return out << kNames[static_cast<int>(c.action)] << "(" << c.sequence << ", " << c.length << ", "
             << c.variant << ")";
}

rc::Gen<Command> AnyCommand() {
  const auto action = rc::gen::weightedElement<Action>({{10, Action::kAdmit},
                                                        {20, Action::kCompute},
                                                        {20, Action::kGrow},
                                                        {5, Action::kFork},
                                                        {3, Action::kSlide},
                                                        {4, Action::kRemove},
                                                        {4, Action::kPreempt},
                                                        {6, Action::kResume},
                                                        {4, Action::kLease},
                                                        {1, Action::kEndSession},
                                                        {1, Action::kWait},
                                                        {1, Action::kReset},
                                                        {3, Action::kFinishCopies}});
  return rc::gen::build<Command>(rc::gen::set(&Command::action, action),
                                 rc::gen::set(&Command::sequence, rc::gen::inRange(0, 8)),
                                 rc::gen::set(&Command::length, rc::gen::inRange(0, 40)),
                                 rc::gen::set(&Command::variant, rc::gen::inRange(0, 48)));
}

class Pair {
 public:
  explicit Pair(const BlockManagerOptions& options) : manager_(options), model_(options) {
    manager_.RecordEvents(true);
  }

  void Run(const Command& command) {
    Do(command);
    Compare();
  }

  void RunToTheEnd() {
    while (!sequences_.empty()) Run({.action = Action::kRemove});
    Run({.action = Action::kFinishCopies});
    RC_ASSERT(manager_.stats().active == 0);
    RC_ASSERT(manager_.stats().useful_slots == 0);
    Run({.action = Action::kReset});
    RC_ASSERT(manager_.stats().free == manager_.capacity());
  }

 private:
  struct Twin {
    std::unique_ptr<SequenceBlocks> real;
    ModelSequence model;
    std::vector<TokenId> tokens;
    SlidingWindow window;
  };
  static constexpr int kSessions = 3;
  static constexpr const char* kSalts[] = {"", "", "a", "b"};
  static SessionKey KeyOf(int session, const std::string& salt) {
    return {std::to_string(session % kSessions), CacheSalt::ForRequest(salt)};
  }

  void Do(const Command& c) {
    if (c.action == Action::kAdmit) return Admit(c);
    if (c.action == Action::kReset) {
      RC_ASSERT(manager_.ResetPrefixCache() == model_.ResetPrefixCache());
      return;
    }
    if (c.action == Action::kFinishCopies) return FinishCopies();
    if (c.action == Action::kWait) return Wait(c);
    if (c.action == Action::kEndSession) return EndSession(c);
    if (sequences_.empty()) return;
    const std::size_t index = static_cast<std::size_t>(c.sequence) % sequences_.size();
    Twin& twin = sequences_[index];
    switch (c.action) {
      case Action::kCompute:
        return Compute(&twin, c);
      case Action::kGrow:
        return Grow(&twin, c);
      case Action::kFork:
        return Fork(twin);
      case Action::kSlide:
        return Slide(&twin, twin.model.num_computed - c.length % 12);
      case Action::kRemove:
        model_.Release(&twin.model);
        return Erase(index);
      case Action::kLease:
        Lease(&twin, c);
        return Erase(index);
      case Action::kPreempt:
        model_.Release(&twin.model);
        manager_.Release(twin.real.get());
        return;
      case Action::kResume:
        if (twin.model.table.empty() && twin.model.num_computed == 0) AdmitTwin(&twin, c);
        return;
      default:
        return;
    }
  }

  // Prompts begin with one of two token streams and leave it somewhere, so many share a prefix.
  void Admit(const Command& c) {
    Twin twin;
    for (int i = 0; i <= c.length; ++i) {
      const bool has_left_the_stream = i > 3 * (c.sequence + 1);
      twin.tokens.push_back(has_left_the_stream ? 100 + c.variant % 5 : c.variant % 2);
    }
    if (c.variant % 3 == 1)
      twin.window = {.tokens = 1 + c.variant % 9, .max_chunk = 1 + c.length % 5};
    twin.model.salt = kSalts[c.variant % 4];
    twin.real = std::make_unique<SequenceBlocks>(
        manager_.NewSequence(CacheSalt::ForRequest(twin.model.salt)));
    if (AdmitTwin(&twin, c)) sequences_.push_back(std::move(twin));
  }

  bool AdmitTwin(Twin* twin, const Command& c) {
    const SessionKey session = KeyOf(c.length, twin->model.salt);
    const auto length = static_cast<std::int32_t>(twin->tokens.size());
    const AdmitOptions options{.use_prefix_cache = c.variant % 8 != 0,
                               .keep_available = c.variant % 3,
                               .reserve_tokens = c.variant % 5 == 0 ? length + c.length % 9 : 0,
                               .window = twin->window,
                               .session = &session};
    std::vector<std::int32_t> hits;
    for (const BlockId id : manager_.Match(*twin->real, twin->tokens)) hits.push_back(id.value());
    RC_ASSERT(hits == model_.Match(twin->model.salt, twin->tokens));
    PrefixReport report, model_report;
    const Verdict verdict = manager_.Admit(twin->real.get(), twin->tokens, options, &report);
    RC_ASSERT(verdict == model_.Admit(&twin->model, twin->tokens, options, &model_report));
    if (verdict != Verdict::kNow) return false;
    RC_ASSERT(report == model_report);
    RC_ASSERT(report.hit == twin->real->num_computed_tokens());
    RC_ASSERT(report.hit + report.never_seen + report.evicted + report.other_salt +
                  report.partial_block + report.bypassed ==
              length);
    return true;
  }

  // The copies of a step are over before anything of it is committed.
  void Compute(Twin* twin, const Command& c) {
    FinishCopies();
    const std::int32_t writable = std::min(static_cast<std::int32_t>(twin->tokens.size()),
                                           twin->real->table().end_position());
    const std::int32_t chunk = twin->window.tokens > 0 ? twin->window.max_chunk : 1 + c.length % 20;
    const std::int32_t target = std::min(writable, twin->model.num_computed + chunk);
    if (target <= twin->model.num_computed) return;
    manager_.Commit(twin->real.get(), twin->tokens, target);
    model_.Commit(&twin->model, twin->tokens, target);
    if (twin->window.tokens > 0) Slide(twin, twin->window.FirstSeen(target));
  }

  void Slide(Twin* twin, std::int32_t position) {
    manager_.SlideWindow(twin->real.get(), position);
    model_.SlideWindow(&twin->model, position);
  }

  // A turn of a session is over, sometimes long after the one before.
  void Lease(Twin* twin, const Command& c) {
    now_ += absl::Seconds(c.variant);
    const SessionKey key = KeyOf(c.length, twin->model.salt);
    manager_.Lease(key, twin->real.get(), twin->tokens, now_);
    model_.Lease(key.id, &twin->model, twin->tokens, now_);
  }

  void EndSession(const Command& c) {
    const std::string salt = kSalts[c.variant % 4];
    const SessionKey key = KeyOf(c.length, salt);
    RC_ASSERT(manager_.EndSession(key) == model_.EndSession(key.id, salt));
  }

  void Wait(const Command& c) {
    now_ += absl::Seconds(5 * c.length);
    manager_.ExpireLeases(now_);
    model_.ExpireLeases(now_);
  }

  void Erase(std::size_t index) {
    sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  void Grow(Twin* twin, const Command& c) {
    std::vector<TokenId> tokens = twin->tokens;
    auto end = static_cast<std::int32_t>(tokens.size());
    if (twin->model.num_computed == end) {
      for (int i = 0; i <= c.variant % 3; ++i) tokens.push_back(c.length % 2);
      end = static_cast<std::int32_t>(tokens.size());
    } else if (twin->window.tokens > 0 && !twin->model.table.empty()) {
      end = std::min(end, twin->model.num_computed + twin->window.max_chunk);
    } else {
      return;
    }
    ExtendDemand demand(&manager_);
    demand.Add(*twin->real, end);
    const std::int64_t available = manager_.num_available();
    std::vector<CopyOrder> real_copies, model_copies;
    const Verdict verdict = manager_.Extend(twin->real.get(), end, &real_copies);
    RC_ASSERT(verdict == model_.Extend(&twin->model, end, &model_copies));
    RC_ASSERT(real_copies == model_copies);
    if (verdict == Verdict::kNow) {
      RC_ASSERT(available - manager_.num_available() == demand.num_blocks());
      twin->tokens = std::move(tokens);
    } else if (verdict == Verdict::kNotNow) {
      RC_ASSERT(demand.num_blocks() > available);
    }
  }

  void Fork(const Twin& twin) {
    const bool all_computed =
        twin.model.num_computed == static_cast<std::int32_t>(twin.tokens.size());
    if (!all_computed || sequences_.size() >= 8) return;
    Twin fork;
    fork.tokens = twin.tokens;
    fork.real = std::make_unique<SequenceBlocks>(manager_.Fork(*twin.real));
    fork.model = model_.Fork(twin.model);
    fork.window = twin.window;
    sequences_.push_back(std::move(fork));
  }

  void FinishCopies() {
    manager_.FinishCopies();
    model_.FinishCopies();
  }

  void Compare() {
    std::vector<const SequenceBlocks*> alive;
    for (const Twin& twin : sequences_) {
      std::vector<std::int32_t> table;
      for (const BlockId id : twin.real->table().blocks()) table.push_back(id.value());
      RC_ASSERT(table == twin.model.table);
      RC_ASSERT(twin.real->table().first_position() ==
                twin.model.first_block * twin.real->table().block_size());
      RC_ASSERT(twin.real->num_computed_tokens() == twin.model.num_computed);
      alive.push_back(twin.real.get());
    }
    const std::vector<BlockManager::BlockInfo> infos = manager_.BlockInfos();
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(infos.size()); ++i) {
      RC_ASSERT(infos[static_cast<std::size_t>(i)].state == model_.state(i));
      RC_ASSERT(infos[static_cast<std::size_t>(i)].owners == model_.owners(i));
      RC_ASSERT(infos[static_cast<std::size_t>(i)].leased == model_.IsLeased(i));
    }
    const BlockStats stats = manager_.stats();
    RC_ASSERT(stats.active + stats.cached + stats.free == stats.capacity);
    RC_ASSERT(stats == model_.stats());
    CompareSessions();
    CompareEvents();
    const absl::Status audit = manager_.Audit(alive);
    if (!audit.ok()) RC_FAIL(std::string(AsStd(audit.message())));
  }

  void CompareSessions() {
    RC_ASSERT(manager_.next_lease_expiry() == model_.next_lease_expiry());
    for (const char* salt : kSalts) {
      for (int session = 0; session < kSessions; ++session) {
        const SessionKey key = KeyOf(session, salt);
        const std::optional<std::span<const TokenId>> tokens = manager_.SessionTokens(key);
        const ModelLease* const lease = model_.FindLease(key.id, salt);
        RC_ASSERT(tokens.has_value() == (lease != nullptr));
        if (lease != nullptr) RC_ASSERT(std::ranges::equal(*tokens, lease->tokens));
      }
    }
  }

  // A subscriber that follows the events knows what a snapshot tells: what the model has.
  void CompareEvents() {
    std::vector<KvEvent> events;
    manager_.TakeEvents(&events);
    for (const KvEvent& event : events) {
      if (event.kind == KvEvent::Kind::kStored) {
        RC_ASSERT(told_.emplace(event.block_hash, event).second);
        RC_ASSERT(hashes_.insert(event.block_hash).second);  // No name is used twice.
      } else if (event.kind == KvEvent::Kind::kRemoved) {
        const auto removed = told_.extract(event.block_hash);
        RC_ASSERT(!removed.empty());
        RC_ASSERT(removed.mapped().salted == event.salted);
      } else {
        RC_ASSERT(!told_.empty());
        told_.clear();
      }
    }
    std::vector<KvEvent> snapshot;
    manager_.SnapshotEvents(&snapshot);
    std::map<std::uint64_t, KvEvent> in_snapshot;
    for (const KvEvent& event : snapshot) {
      const bool parent_comes_first = !event.parent_hash.has_value() ||
                                      !told_.contains(*event.parent_hash) ||
                                      in_snapshot.contains(*event.parent_hash);
      RC_ASSERT(parent_comes_first);
      RC_ASSERT(in_snapshot.emplace(event.block_hash, event).second);
    }
    RC_ASSERT(in_snapshot == told_);

    // A content's last block of tokens; of a salted one just that it is there.
    std::multiset<std::vector<TokenId>> told_tokens, model_tokens;
    for (const auto& [hash, event] : told_) told_tokens.insert(event.tokens);
    for (const BruteForceModel::Content& content : model_.Contents()) {
      std::vector<TokenId> tokens;
      if (content.salt.empty()) {
        tokens.assign(content.prefix.end() - manager_.block_size(), content.prefix.end());
      }
      model_tokens.insert(tokens);
    }
    RC_ASSERT(told_tokens == model_tokens);
  }

  BlockManager manager_;
  BruteForceModel model_;
  std::vector<Twin> sequences_;
  absl::Time now_ = absl::UnixEpoch();
  std::map<std::uint64_t, KvEvent> told_;  // The subscriber's view.
  std::set<std::uint64_t> hashes_;         // All that were ever told.
};

std::uint64_t AlwaysCollides(const PrefixKey&, std::uint64_t) { return 42; }

// RapidCheck's own parameters, with as many command lists as it takes.
rc::detail::TestParams Params(int max_commands) {
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  if (const char* const operations = std::getenv("QUIRE_PROPERTY_OPERATIONS")) {
    params.maxSuccess = 1 + std::atoi(operations) / (max_commands * 2 / 5);  // On average 1 / 2.
  }
  return params;
}

void CheckAgainstModel(const BlockManagerOptions& base) {
  constexpr int kMaxCommands = 600;
  std::int64_t num_operations = 0;
  const auto agrees = [&] {
    BlockManagerOptions options = base;
    options.block_size = *rc::gen::element(1, 2, 4, 8);
    options.num_blocks = *rc::gen::inRange(2, 14);
    options.session_share = *rc::gen::element(0.0, 0.3, 0.5, 1.0);
    options.session_ttl = absl::Minutes(2);
    const auto commands =
        *rc::gen::resize(kMaxCommands, rc::gen::container<std::vector<Command>>(AnyCommand()));
    Pair pair(options);
    for (const Command& command : commands) pair.Run(command);
    pair.RunToTheEnd();
    num_operations += static_cast<std::int64_t>(commands.size());
  };
  const rc::detail::TestResult result =
      rc::detail::checkTestable(agrees, rc::detail::TestMetadata(), Params(kMaxCommands));
  rc::detail::printResultMessage(result, std::cerr);
  std::cerr << "\n" << num_operations << " operations\n";
  EXPECT_TRUE(result.is<rc::detail::SuccessResult>());
}

TEST(BlockManagerProperty, AgreesWithTheBruteForceModel) { CheckAgainstModel({}); }

TEST(BlockManagerProperty, C01_AgreesWithTheModelWhenEveryHashCollides) {
  CheckAgainstModel({.hash = AlwaysCollides});
}

TEST(BlockManagerProperty, AgreesWithTheModelWithoutPrefixCaching) {
  CheckAgainstModel({.enable_prefix_caching = false});
}

}  // namespace
}  // namespace quire::block_manager
