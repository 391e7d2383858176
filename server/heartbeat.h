// Keeps gRPC's callback threads awake enough. In gRPC 1.51 each of them polls for a second, then
// sleeps for 100 ms; on a quiet server they all end up asleep at once and a lone request waits (50
// ms in the median). A callback call over an in-process channel every 400 ms means that at least
// one of them is always polling.
//
// Thread: Beat on one thread; it never blocks.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>

#include "absl/time/time.h"

namespace quire::server {

inline constexpr absl::Duration kHeartbeatPeriod = absl::Milliseconds(400);

class Heartbeat {
 public:
  explicit Heartbeat(grpc::Server* server);

  // Sends a ping unless the last one is still on its way.
  void Beat();
  // Answered pings.
  std::int64_t num_beats() const { return shared_->num_beats; }

 private:
  struct Shared {
    std::atomic<bool> in_flight = false;
    std::atomic<std::int64_t> num_beats = 0;
  };
  grpc::GenericStub stub_;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace quire::server
