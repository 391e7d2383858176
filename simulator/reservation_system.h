// Orca as the paper rebuilt it: iterations mix prompts and decodes, but a request's K and V lie in
// one piece of memory, reserved whole when it is admitted, by the buddy method. Requests are
// admitted in the order of arrival as their pieces fit. No prefix is shared; branches are sequences
// of their own.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "simulator/buddy_allocator.h"
#include "simulator/scripted_sequences.h"
#include "simulator/serving_system.h"

namespace quire::simulator {

// How long a piece is reserved.
enum class Reservation {
  kMax,     // The model's whole context.
  kPow2,    // The prompt and the next power of two of the answer's true length.
  kOracle,  // The true length, as if the system knew it.
};

struct ReservationOptions {
  Reservation reservation = Reservation::kMax;
  std::int64_t num_slots = 0;
  std::int32_t max_len = 2048;
  std::int32_t max_num_seqs = 256;
  std::int32_t max_num_batched_tokens = 2048;  // At least one prompt goes, however long.
};

class ReservationSystem final : public ServingSystem {
 public:
  explicit ReservationSystem(const ReservationOptions& options);

  absl::Status CheckFits(const Request& request) const override;
  void Add(std::int32_t index, const Request& request, std::vector<TokenId> prompt,
           absl::Time now) override;
  bool has_work() const override { return !waiting_.empty() || !running_.empty(); }
  std::int64_t num_waiting() const override { return std::ssize(waiting_); }
  std::int64_t num_running() const override { return std::ssize(running_); }
  StepWork BeginStep(absl::Time now, std::vector<Happening>* happenings) override;
  MemoryUse memory() const override;
  void EndStep(absl::Duration took, std::vector<Happening>* happenings) override;
  Counters counters() const override { return counters_; }

 private:
  struct Running {
    SequenceId id;
    BuddyAllocator::Piece piece;
    std::int32_t num_computed = 0;
    std::int32_t num_scheduled = 0;
  };
  std::int64_t SlotsFor(const Request& request) const;

  const ReservationOptions options_;
  BuddyAllocator slots_;
  ScriptedSequences script_;
  std::deque<SequenceId> waiting_;
  std::vector<Running> running_;
  std::int64_t reserved_ = 0;
  std::int64_t computed_ = 0;   // Tokens of the running sequences.
  std::int64_t scheduled_ = 0;  // By the step that computes.
  Counters counters_;
};

}  // namespace quire::simulator
