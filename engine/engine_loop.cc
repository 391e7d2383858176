#include "engine/engine_loop.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/escaping.h"
#include "base/check.h"
#include "base/status.h"

namespace quire::engine {
namespace {

block_manager::BlockManagerOptions BlockOptions(const EngineOptions& options,
                                                const ModelRunner& runner) {
  return {.num_blocks = runner.num_blocks(),
          .block_size = runner.kv_geometry().block_size,
          .enable_prefix_caching = options.enable_prefix_caching,
          .session_share = options.session_cache_share,
          .session_ttl = options.session_ttl};
}

std::int32_t ReserveTokens(const EngineOptions& options, const ModelRunner& runner) {
  if (!options.preallocate) return 0;
  const std::int64_t pool_tokens = runner.num_blocks() * runner.kv_geometry().block_size;
  return static_cast<std::int32_t>(
      std::min<std::int64_t>(options.scheduler.max_model_len, pool_tokens));
}

block_manager::SessionKey SessionOf(const Request& request) {
  return {.id = request.session_id,
          .salt = block_manager::CacheSalt::ForRequest(request.cache_salt)};
}

BlockMap::State MapState(block_manager::BlockState state) {
  switch (state) {
    case block_manager::BlockState::kFree:
      return BlockMap::State::kFree;
    case block_manager::BlockState::kCached:
      return BlockMap::State::kCached;
    case block_manager::BlockState::kActive:
      return BlockMap::State::kActive;
  }
  return BlockMap::State::kFree;
}

}  // namespace

EngineLoop::EngineLoop(const EngineOptions& options, std::unique_ptr<ModelRunner> runner,
                       const Surroundings& surroundings)
    : around_(surroundings),
      reserve_tokens_(ReserveTokens(options, *runner)),
      runner_(std::move(runner)),
      blocks_(BlockOptions(options, *runner_)),
      scheduler_(options.scheduler, &blocks_),
      recorder_(options.scheduler.max_model_len, surroundings.clock.Now()) {
  Deliver(around_.clock.Now());
}

void EngineLoop::Run() {
  bool open = true;
  while (open) {
    const bool busy = !given_up_ && scheduler_.has_work();
    open = around_.mailbox.Wait(busy ? absl::ZeroDuration() : SleepTime(), mail_);
    const bool has_mail = !mail_.empty();
    try {
      blocks_.ExpireLeases(around_.clock.Now());
      ReadMail();
      if (open) Turn(has_mail);
    } catch (const std::exception& e) {
      GiveUp(Internal("{}", e.what()));
    }
  }
  Finish();
}

absl::Duration EngineLoop::SleepTime() const {
  // A clock that stands still must not keep this thread awake.
  constexpr absl::Duration kShortest = absl::Milliseconds(1);
  return std::clamp(blocks_.next_lease_expiry() - around_.clock.Now(), kShortest, kHeartbeat);
}

void EngineLoop::Turn(bool has_mail) {
  if (!given_up_ && scheduler_.has_work()) {
    // What was aborted need not wait for the step.
    if (!dirty_.empty() || !strays_.empty()) Deliver(around_.clock.Now());
    Step();
    audit_due_ = true;
  } else if (!has_mail && audit_due_) {
    CheckInvariants();
    audit_due_ = false;
  }
  Deliver(around_.clock.Now());
}

// --- Mail ------------------------------------------------------------------------------------

void EngineLoop::ReadMail() {
  for (Mail& mail : mail_) {
    std::visit([this](auto& message) { Read(message); }, mail);
  }
  mail_.clear();
  CancelLeftovers();
}

void EngineLoop::Read(NewRequestMail& mail) {
  if (!around_.ledger.IsLive(*mail.request)) return;  // Aborted on its way here.
  if (given_up_) {
    EndByMail(mail.request, Unavailable("the engine has failed"));
    return;
  }
  Request& request = *mail.request;
  if (request.continue_session) {
    if (absl::Status status = ContinueSession(request); !status.ok()) {
      EndByMail(mail.request, std::move(status));
      return;
    }
  }
  scheduler::NewSequence sequence;
  sequence.prompt = request.encoded_here ? request.prompt : std::move(request.prompt);
  const auto prompt_tokens = static_cast<std::int32_t>(sequence.prompt.size());
  ActiveRequest& active = requests_.Add(std::move(mail.request), prompt_tokens, around_.tokenizer);
  const std::vector<Branch>& branches = active.branches();
  sequence.id = branches.front().id();
  for (std::size_t i = 1; i < branches.size(); ++i) sequence.forks.push_back(branches[i].id());
  sequence.max_total_tokens = request.max_total_tokens;
  sequence.priority = request.priority;
  sequence.arrival = request.arrival;
  sequence.deadline = request.deadline;
  sequence.salt = block_manager::CacheSalt::ForRequest(request.cache_salt);
  if (!request.session_id.empty()) sequence.session = SessionOf(request);
  sequence.client_id = request.client_id;
  sequence.reserve_tokens = reserve_tokens_;
  sequence.bypass_prefix_cache =
      request.bypass_prefix_cache || request.sampling->params().prompt_logprobs.has_value();
  scheduler_.Add(std::move(sequence));
}

absl::Status EngineLoop::ContinueSession(Request& request) {
  const auto tokens = blocks_.SessionTokens(SessionOf(request));
  if (!tokens) {
    return NotFound(
        "session_id: the session has expired, was evicted or never was; send the whole text");
  }
  QUIRE_RETURN_IF_ERROR(around_.intake.Continue(request, *tokens));
  around_.ledger.SetPromptTokens(request, static_cast<std::int64_t>(request.prompt.size()));
  return absl::OkStatus();
}

void EngineLoop::Read(AbortMail& mail) { EndByMail(mail.request, std::move(mail.status)); }

void EngineLoop::Read(AbortAllMail& mail) {
  for (const std::shared_ptr<Request>& request : around_.ledger.Live()) {
    EndByMail(request, mail.status);
  }
}

void EngineLoop::EndByMail(const std::shared_ptr<Request>& request, absl::Status status) {
  if (ActiveRequest* active = requests_.Find(*request)) {
    End(*active, std::move(status));
  } else if (around_.ledger.Finish(*request, OutcomeOf(status))) {
    strays_.emplace_back(request, std::move(status));
  }
}

void EngineLoop::Read(BlockMapMail& mail) { mail.reply->Answer(MakeBlockMap()); }

void EngineLoop::Read(ResetPrefixCacheMail& mail) {
  mail.reply->Answer(blocks_.ResetPrefixCache());
}

void EngineLoop::Read(EndSessionMail& mail) {
  mail.reply->Answer(blocks_.EndSession(mail.session));
}

void EngineLoop::Read(KvSubscribeMail& mail) {
  PublishKvEvents();  // What is in the snapshot shall not come again.
  if (!std::exchange(records_kv_events_, true)) blocks_.RecordEvents(true);
  std::vector<block_manager::KvEvent> snapshot;
  blocks_.SnapshotEvents(&snapshot);
  around_.kv_events.Open(*mail.subscription, std::move(snapshot));
}

void EngineLoop::PublishKvEvents() {
  if (!records_kv_events_) return;
  if (!around_.kv_events.has_subscriptions()) {
    blocks_.RecordEvents(false);
    records_kv_events_ = false;
    return;
  }
  std::vector<block_manager::KvEvent> events;
  blocks_.TakeEvents(&events);
  if (!events.empty()) around_.kv_events.Publish(std::move(events));
}

BlockMap EngineLoop::MakeBlockMap() const {
  BlockMap map;
  map.stats = blocks_.stats();
  map.states.reserve(static_cast<std::size_t>(blocks_.capacity()));
  map.owners.reserve(static_cast<std::size_t>(blocks_.capacity()));
  for (const block_manager::BlockManager::BlockInfo& block : blocks_.BlockInfos()) {
    map.states.push_back(MapState(block.state));
    map.owners.push_back(block.owners);
  }
  for (const scheduler::Scheduler::SequenceView& view : scheduler_.RunningSequences()) {
    const RequestTable::Entry entry = requests_.Find(view.id);
    if (!entry) continue;
    map.sequences.push_back({.request_id = entry.request->request().id(),
                             .index = entry.branch->index(),
                             .num_tokens = view.num_tokens,
                             .num_computed_tokens = view.num_computed_tokens,
                             .blocks = {view.block_table.begin(), view.block_table.end()}});
  }
  const absl::Time now = around_.clock.Now();
  for (const block_manager::SessionLeases::View& lease : blocks_.Sessions()) {
    map.sessions.push_back({.session_id = lease.key.id,
                            .num_tokens = static_cast<std::int32_t>(lease.tokens.size()),
                            .expires_in = lease.expiry - now,
                            .blocks = {lease.blocks.begin(), lease.blocks.end()}});
  }
  return map;
}

// --- Ends ------------------------------------------------------------------------------------

void EngineLoop::MarkDirty(ActiveRequest& request) {
  if (request.dirty) return;
  request.dirty = true;
  dirty_.push_back(&request);
}

void EngineLoop::End(ActiveRequest& request, absl::Status status) {
  if (request.ended()) return;
  for (const Branch& branch : request.branches()) {
    if (!branch.finished()) to_cancel_.push_back(branch.id());
  }
  request.Terminate(std::move(status));
  MarkDirty(request);
}

void EngineLoop::CancelLeftovers() {
  for (const SequenceId id : to_cancel_) scheduler_.Cancel(id);
  to_cancel_.clear();
}

void EngineLoop::Deliver(absl::Time now) {
  auto num_ended = static_cast<std::int64_t>(strays_.size());
  for (const ActiveRequest* request : dirty_) {
    if (!request->ended()) continue;
    num_ended += around_.ledger.Finish(request->request(), request->outcome()) ? 1 : 0;
  }

  PublishKvEvents();
  around_.board.Publish(recorder_.Snapshot(now, around_.ledger.counts(), blocks_.stats(),
                                           scheduler_.stats(), healthy_, around_.ledger.closed()));

  std::vector<std::shared_ptr<TokenStream>> streams;
  streams.reserve(dirty_.size() + strays_.size());
  for (ActiveRequest* request : dirty_) {
    request->stream()->Push(request->pending);
    request->dirty = false;
    streams.push_back(request->stream());
    if (request->ended()) requests_.Erase(*request);
  }
  for (const auto& [request, status] : strays_) {
    request->stream->PushTerminal(status);
    streams.push_back(request->stream);
  }
  dirty_.clear();
  strays_.clear();
  if (!streams.empty()) around_.sink.OnOutput(std::move(streams));
  if (num_ended > 0) around_.ledger.Delivered(num_ended);
}

absl::Status EngineLoop::InternalError(const char* what, const absl::Status& cause) {
  const std::string id = fmt::format("{:010x}-{}", around_.nonce >> 13, ++num_errors_);
  spdlog::error("{}, error id {}: {}", what, id, absl::CEscape(cause.ToString()));
  return Internal("{} (error id {})", what, id);
}

void EngineLoop::GiveUp(const absl::Status& error) {
  healthy_ = false;
  given_up_ = true;
  around_.ledger.Close(Unavailable("the engine has failed"));
  around_.kv_events.Close(Unavailable("the engine has failed"));
  const absl::Status status = InternalError("the engine cannot go on", error);
  for (ActiveRequest* request : requests_.All()) End(*request, status);
  for (const std::shared_ptr<Request>& request : around_.ledger.Live()) EndByMail(request, status);
  try {
    CancelLeftovers();
  } catch (const std::exception& e) {
    spdlog::error("blocks may be lost: {}", e.what());
  }
  to_cancel_.clear();
  Deliver(around_.clock.Now());
}

void EngineLoop::Finish() {
  const absl::Status status = Aborted("the engine was shut down");
  around_.kv_events.Close(Unavailable("the engine was shut down"));
  for (const std::shared_ptr<Request>& request : around_.ledger.Live()) EndByMail(request, status);
  CancelLeftovers();
  Deliver(around_.clock.Now());
}

}  // namespace quire::engine
