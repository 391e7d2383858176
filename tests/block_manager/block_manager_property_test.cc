// Random commands drive a BlockManager and a brute-force model side by side: after every command
// both agree on every block's state and owners, every table, every answer and every counter, and
// the manager's own recount finds nothing. RapidCheck shrinks a failing command list and prints the
// seed; RC_PARAMS="max_success=10000" runs longer.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <memory>
#include <ostream>
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
  kRemove,
  kPreempt,
  kResume,
  kReset,
  kFinishCopies
};

// The meaning of the numbers depends on the action; they are taken modulo what there is.
struct Command {
  Action action = Action::kAdmit;
  int sequence = 0, length = 0, variant = 0;
};

std::ostream& operator<<(std::ostream& out, const Command& c) {
  static constexpr const char* kNames[] = {"admit",   "compute", "grow",  "fork",         "remove",
                                           "preempt", "resume",  "reset", "finish_copies"};
  return out << kNames[static_cast<int>(c.action)] << "(" << c.sequence << ", " << c.length << ", "
             << c.variant << ")";
}

rc::Gen<Command> AnyCommand() {
  const auto action = rc::gen::weightedElement<Action>({{10, Action::kAdmit},
                                                        {20, Action::kCompute},
                                                        {20, Action::kGrow},
                                                        {5, Action::kFork},
                                                        {6, Action::kRemove},
                                                        {4, Action::kPreempt},
                                                        {6, Action::kResume},
                                                        {1, Action::kReset},
                                                        {3, Action::kFinishCopies}});
  return rc::gen::build<Command>(rc::gen::set(&Command::action, action),
                                 rc::gen::set(&Command::sequence, rc::gen::inRange(0, 8)),
                                 rc::gen::set(&Command::length, rc::gen::inRange(0, 40)),
                                 rc::gen::set(&Command::variant, rc::gen::inRange(0, 48)));
}

class Pair {
 public:
  explicit Pair(const BlockManagerOptions& options)
      : manager_(options),
        model_(static_cast<std::int32_t>(options.num_blocks), options.block_size,
               options.enable_prefix_caching) {}

  void Run(const Command& command) {
    Do(command);
    Compare();
  }

  void RunToTheEnd() {
    while (!sequences_.empty()) Run({.action = Action::kRemove});
    Run({.action = Action::kFinishCopies});
    RC_ASSERT(manager_.stats().active == 0);
    RC_ASSERT(manager_.stats().useful_slots == 0);
  }

 private:
  struct Twin {
    std::unique_ptr<SequenceBlocks> real;
    ModelSequence model;
    std::vector<TokenId> tokens;
  };

  void Do(const Command& c) {
    if (c.action == Action::kAdmit) return Admit(c);
    if (c.action == Action::kReset) {
      RC_ASSERT(manager_.ResetPrefixCache() == model_.ResetPrefixCache());
      return;
    }
    if (c.action == Action::kFinishCopies) return FinishCopies();
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
      case Action::kRemove:
        model_.Release(&twin.model);
        sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(index));
        return;
      case Action::kPreempt:
        model_.Release(&twin.model);
        manager_.Release(twin.real.get());
        return;
      case Action::kResume:
        if (twin.model.table.empty()) AdmitTwin(&twin, c);
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
    static constexpr const char* kSalts[] = {"", "", "a", "b"};
    twin.model.salt = kSalts[c.variant % 4];
    twin.real = std::make_unique<SequenceBlocks>(
        manager_.NewSequence(CacheSalt::ForRequest(twin.model.salt)));
    if (AdmitTwin(&twin, c)) sequences_.push_back(std::move(twin));
  }

  bool AdmitTwin(Twin* twin, const Command& c) {
    const AdmitOptions options{.use_prefix_cache = c.variant % 8 != 0,
                               .keep_available = c.variant % 3};
    std::vector<std::int32_t> hits;
    for (const BlockId id : manager_.Match(*twin->real, twin->tokens)) hits.push_back(id.value());
    RC_ASSERT(hits == model_.Match(twin->model.salt, twin->tokens));
    const Verdict verdict = manager_.Admit(twin->real.get(), twin->tokens, options);
    RC_ASSERT(verdict == model_.Admit(&twin->model, twin->tokens, options));
    return verdict == Verdict::kNow;
  }

  // The copies of a step are over before anything of it is committed.
  void Compute(Twin* twin, const Command& c) {
    FinishCopies();
    const std::int32_t writable = std::min(static_cast<std::int32_t>(twin->tokens.size()),
                                           twin->real->table().end_position());
    const std::int32_t target = std::min(writable, twin->model.num_computed + 1 + c.length % 20);
    if (target <= twin->model.num_computed) return;
    manager_.Commit(twin->real.get(), twin->tokens, target);
    model_.Commit(&twin->model, twin->tokens, target);
  }

  void Grow(Twin* twin, const Command& c) {
    const bool all_computed =
        twin->model.num_computed == static_cast<std::int32_t>(twin->tokens.size());
    if (!all_computed) return;
    std::vector<TokenId> tokens = twin->tokens;
    for (int i = 0; i <= c.variant % 3; ++i) tokens.push_back(c.length % 2);
    const auto end = static_cast<std::int32_t>(tokens.size());
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
      RC_ASSERT(twin.real->num_computed_tokens() == twin.model.num_computed);
      alive.push_back(twin.real.get());
    }
    const std::vector<BlockManager::BlockInfo> infos = manager_.BlockInfos();
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(infos.size()); ++i) {
      RC_ASSERT(infos[static_cast<std::size_t>(i)].state == model_.state(i));
      RC_ASSERT(infos[static_cast<std::size_t>(i)].owners == model_.owners(i));
    }
    const BlockStats real = manager_.stats(), model = model_.stats();
    RC_ASSERT(real.active + real.cached + real.free == real.capacity);
    RC_ASSERT(real.active == model.active);
    RC_ASSERT(real.cached == model.cached);
    RC_ASSERT(real.useful_slots == model.useful_slots);
    RC_ASSERT(real.logical_blocks == model.logical_blocks);
    RC_ASSERT(real.evictions == model.evictions);
    RC_ASSERT(real.copies_on_write == model.copies_on_write);
    RC_ASSERT(real.allocations == model.allocations);
    RC_ASSERT(real.peak_active == model.peak_active);
    const absl::Status audit = manager_.Audit(alive);
    if (!audit.ok()) RC_FAIL(std::string(AsStd(audit.message())));
  }

  BlockManager manager_;
  BruteForceModel model_;
  std::vector<Twin> sequences_;
};

std::uint64_t AlwaysCollides(const PrefixKey&, std::uint64_t) { return 42; }

void CheckAgainstModel(const BlockManagerOptions& base) {
  const bool holds = rc::check([&base] {
    BlockManagerOptions options = base;
    options.block_size = *rc::gen::element(1, 2, 4, 8);
    options.num_blocks = *rc::gen::inRange(2, 14);
    constexpr int kMaxCommands = 600;
    const auto commands =
        *rc::gen::resize(kMaxCommands, rc::gen::container<std::vector<Command>>(AnyCommand()));
    Pair pair(options);
    for (const Command& command : commands) pair.Run(command);
    pair.RunToTheEnd();
  });
  EXPECT_TRUE(holds);
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
