// The engine thread: reads mail, plans a step, computes it, books what came of it, publishes.
//
// Each turn: mail -> Scheduler::Schedule -> batch -> ModelRunner::Step -> tokens, texts, stops ->
// Scheduler::Apply -> snapshot -> streams -> OutputSink. Whatever ended is released and counted
// before the snapshot, and the snapshot is out before the streams hear of it.
//
// Ownership: owns scheduler, block manager and runner; borrows the rest, which must outlive it.
// Thread: all on one thread, except the constructor, the destructor and CheckFits.
// Invariants: (1) every request that comes by mail or is live in the ledger at the end gets exactly
// one terminal status. (2) Sequences of ended requests are gone from the scheduler before Deliver.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "block_manager/block_manager.h"
#include "engine/active_request.h"
#include "engine/engine.h"
#include "engine/intake.h"
#include "engine/mailbox.h"
#include "engine/model_runner.h"
#include "engine/request_ledger.h"
#include "engine/request_table.h"
#include "engine/stats_board.h"
#include "engine/stats_recorder.h"
#include "engine/step_batch.h"
#include "scheduler/scheduler.h"

namespace quire::engine {

class EngineLoop {
 public:
  // How often an idle engine thread wakes to show that it lives.
  static constexpr absl::Duration kHeartbeat = absl::Seconds(1);
  // So many failed steps without a good one between them, and the engine gives up: a single bad
  // request cannot cause that, since a failed step ends all its requests.
  static constexpr std::int32_t kMaxFailedSteps = 8;

  struct Surroundings {
    RequestLedger& ledger;
    Mailbox& mailbox;
    StatsBoard& board;
    KvEventHub& kv_events;
    const Intake& intake;
    OutputSink& sink;
    Clock& clock;
    const text::Tokenizer* tokenizer;  // May be null.
    std::uint64_t nonce;               // Makes error ids unique among processes.
  };
  EngineLoop(const EngineOptions& options, std::unique_ptr<ModelRunner> runner,
             const Surroundings& surroundings);

  // Scheduler::CheckFits; any thread, at any time.
  absl::Status CheckFits(std::int64_t prompt_tokens, std::int32_t branches) const {
    return scheduler_.CheckFits(prompt_tokens, branches);
  }

  // Works until the mailbox is closed, then ends every live request with ABORTED.
  void Run();
  // ModelRunner::progress. Any thread.
  std::uint64_t progress() const { return runner_->progress(); }

 private:
  // What a sample row is for: a branch's next token or, with `branch` null, a prompt position.
  struct RowOwner {
    ActiveRequest* request;
    Branch* branch;
  };

  void Turn(bool has_mail);
  void ReadMail();
  void Read(NewRequestMail& mail);
  void Read(AbortMail& mail);
  void Read(AbortAllMail& mail);
  void Read(BlockMapMail& mail);
  void Read(ResetPrefixCacheMail& mail);
  void Read(EndSessionMail& mail);
  void Read(KvSubscribeMail& mail);
  // Makes the prompt of a request that continues a session whole.
  absl::Status ContinueSession(Request& request);
  BlockMap MakeBlockMap() const;

  void Step();
  void BookPlan(const scheduler::StepPlan& plan, absl::Time now);
  void BookTermination(const scheduler::Termination& termination, absl::Time now);
  void Assemble(const scheduler::StepPlan& plan);
  void AddPromptRows(ActiveRequest& request, const scheduler::ScheduledSequence& sequence,
                     std::int32_t first_row);
  void AddBranchRow(const RequestTable::Entry& entry, std::int32_t row);
  absl::Status Compute();
  void BookResults(absl::Time now);
  void BookToken(ActiveRequest& request, Branch& branch, const kernels::SampleResult& result,
                 absl::Time now);
  scheduler::SequenceResult& NextSequenceResult();
  void FailStep(const absl::Status& error);
  void CheckInvariants();

  void Start(ActiveRequest& request, std::int32_t cached_tokens, absl::Time now);
  void MarkDirty(ActiveRequest& request);
  // Ends a request; its unfinished sequences leave the scheduler at the next CancelLeftovers.
  void End(ActiveRequest& request, absl::Status status);
  void EndIfFinished(ActiveRequest& request, absl::Time now);
  void EndByMail(const std::shared_ptr<Request>& request, absl::Status status);
  void CancelLeftovers();
  // How long there is nothing to do unless mail comes.
  absl::Duration SleepTime() const;
  // Hands out the changes of the prefix cache since the last call.
  void PublishKvEvents();
  // Publishes a snapshot, then hands out the pending output.
  void Deliver(absl::Time now);
  // Nothing can be computed any more: ends all requests with INTERNAL, for good.
  void GiveUp(const absl::Status& error);
  void Finish();
  absl::Status InternalError(const char* what, const absl::Status& cause);

  const Surroundings around_;
  const std::int32_t reserve_tokens_;  // Of every sequence; 0: none.
  std::unique_ptr<ModelRunner> runner_;
  block_manager::BlockManager blocks_;
  scheduler::Scheduler scheduler_;
  RequestTable requests_;
  StatsRecorder recorder_;

  bool healthy_ = true;
  bool given_up_ = false;
  bool records_kv_events_ = false;  // While somebody subscribes.
  bool audit_due_ = false;          // Steps were made since the invariants were last checked.
  std::int32_t failed_steps_ = 0;
  std::uint64_t num_errors_ = 0;

  // Reused from turn to turn.
  std::vector<Mail> mail_;
  StepBatch batch_;
  std::vector<RowOwner> row_owners_;
  scheduler::StepResult result_;
  std::size_t num_sequence_results_ = 0;
  std::vector<SequenceId> to_cancel_;
  std::vector<ActiveRequest*> dirty_;
  // Ended, and counted so, before they became active.
  std::vector<std::pair<std::shared_ptr<Request>, absl::Status>> strays_;
};

}  // namespace quire::engine
