// Static batching as FasterTransformer behind a batching front end: as many waiting requests as the
// memory holds at maximum length form a batch, which runs until its longest answer is there; only
// then everybody gets their answers and the next batch starts. Finished sequences are computed on
// as padding.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "simulator/scripted_sequences.h"
#include "simulator/serving_system.h"

namespace quire::simulator {

struct StaticBatchOptions {
  std::int64_t num_slots = 0;
  std::int32_t max_len = 2048;
  std::int32_t max_num_seqs = 256;
};

class StaticBatchSystem final : public ServingSystem {
 public:
  explicit StaticBatchSystem(const StaticBatchOptions& options) : options_(options) {}

  absl::Status CheckFits(const Request& request) const override;
  void Add(std::int32_t index, const Request& request, std::vector<TokenId> prompt,
           absl::Time now) override;
  bool has_work() const override { return !waiting_.empty() || !batch_.empty(); }
  std::int64_t num_waiting() const override { return std::ssize(waiting_); }
  std::int64_t num_running() const override { return std::ssize(batch_); }
  StepWork BeginStep(absl::Time now, std::vector<Happening>* happenings) override;
  MemoryUse memory() const override;
  void EndStep(absl::Duration took, std::vector<Happening>* happenings) override;
  Counters counters() const override { return counters_; }

 private:
  struct Member {
    SequenceId id;
    std::int32_t num_computed = 0;  // Padding included.
    bool finished = false;
  };
  std::int64_t MaxBatch() const;
  std::int32_t NumTokens(const Member& member) const;  // That the next step computes.
  void FormBatch(std::vector<Happening>* happenings);

  const StaticBatchOptions options_;
  ScriptedSequences script_;
  std::deque<SequenceId> waiting_;
  std::vector<Member> batch_;
  bool computes_ = false;
  Counters counters_;
};

}  // namespace quire::simulator
