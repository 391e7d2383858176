#include "simulator/system_factory.h"

#include "base/check.h"
#include "base/status.h"
#include "block_manager/block_manager.h"
#include "simulator/paged_system.h"
#include "simulator/reservation_system.h"
#include "simulator/static_batch_system.h"
#include "simulator/vllm_policy_system.h"

namespace quire::simulator {
namespace {

block_manager::BlockManagerOptions BlocksOf(const SystemOptions& options) {
  return {.num_blocks = options.num_slots / options.block_size,
          .block_size = options.block_size,
          .enable_prefix_caching = options.enable_prefix_caching};
}

std::unique_ptr<ServingSystem> MakeReservation(const SystemOptions& options,
                                               Reservation reservation) {
  return std::make_unique<ReservationSystem>(
      ReservationOptions{.reservation = reservation,
                         .num_slots = options.num_slots,
                         .max_len = options.scheduler.max_model_len,
                         .max_num_seqs = options.scheduler.max_num_seqs,
                         .max_num_batched_tokens = options.scheduler.max_num_batched_tokens});
}

}  // namespace

std::string_view SystemName(SystemKind kind) {
  switch (kind) {
    case SystemKind::kQuire:
      return "quire";
    case SystemKind::kVllm:
      return "vllm";
    case SystemKind::kOrcaOracle:
      return "orca-oracle";
    case SystemKind::kOrcaPow2:
      return "orca-pow2";
    case SystemKind::kOrcaMax:
      return "orca-max";
    case SystemKind::kStatic:
      return "static";
  }
  return "";
}

absl::Status SystemOptions::Validate() const {
  QUIRE_RETURN_IF_ERROR(scheduler.Validate());
  if (num_slots < 1) return InvalidArgument("slots must be at least 1, got {}", num_slots);
  if (block_size < 1) return InvalidArgument("block-size must be at least 1, got {}", block_size);
  return BlocksOf(*this).Validate();
}

std::unique_ptr<ServingSystem> MakeSystem(const SystemOptions& options) {
  switch (options.kind) {
    case SystemKind::kQuire:
      return std::make_unique<PagedSystem>(BlocksOf(options), options.scheduler);
    case SystemKind::kVllm:
      return std::make_unique<VllmPolicySystem>(
          BlocksOf(options),
          VllmPolicyOptions{.max_num_seqs = options.scheduler.max_num_seqs,
                            .max_num_batched_tokens = options.scheduler.max_num_batched_tokens,
                            .max_model_len = options.scheduler.max_model_len});
    case SystemKind::kOrcaOracle:
      return MakeReservation(options, Reservation::kOracle);
    case SystemKind::kOrcaPow2:
      return MakeReservation(options, Reservation::kPow2);
    case SystemKind::kOrcaMax:
      return MakeReservation(options, Reservation::kMax);
    case SystemKind::kStatic:
      return std::make_unique<StaticBatchSystem>(
          StaticBatchOptions{.num_slots = options.num_slots,
                             .max_len = options.scheduler.max_model_len,
                             .max_num_seqs = options.scheduler.max_num_seqs});
  }
  QUIRE_CHECK(false) << "unknown system";
  return nullptr;
}

}  // namespace quire::simulator
