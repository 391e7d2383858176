// Deficit round robin over the clients that wait: in each round a client may start requests worth
// one quantum of tokens, and what it leaves of it counts for the next round while it still waits.
//
// Nothing is rotated. When a request queues, the round in which its turn comes follows from the
// client's earlier ones alone, so the queue only sorts by it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace quire::scheduler {

// When a request's turn comes within its priority class: by round, in it client after client.
struct Turn {
  std::int64_t round = 0;
  std::int64_t place = 0;  // Of the client in each round: the order in which clients came.
  friend auto operator<=>(const Turn&, const Turn&) = default;
};

// Clients are told apart within one priority class. A client without waiting requests is forgotten,
// so the size is bounded by the queue. It comes back into the round after the one that is served:
// were it the same round, two clients that come and go could keep that round going for ever. A
// request that leaves the queue early has still used its turn.
class FairShare {
 public:
  explicit FairShare(std::int32_t quantum) : quantum_(quantum) {}

  // A request of `cost` tokens joins the queue. A client with nothing queued begins in
  // `first_round`.
  Turn Enter(std::int32_t priority, const std::string& client_id, std::int64_t cost,
             std::int64_t first_round);
  // One of the client's requests left the queue. REQUIRES: it entered.
  void Leave(std::int32_t priority, const std::string& client_id);

  std::size_t num_clients() const { return clients_.size(); }

 private:
  struct Client {
    std::int64_t num_waiting = 0;
    Turn last;                 // Of its newest request.
    std::int64_t deficit = 0;  // Tokens left to it in that round.
  };
  const std::int64_t quantum_;
  std::int64_t next_place_ = 0;
  absl::flat_hash_map<std::pair<std::int32_t, std::string>, Client> clients_;
};

}  // namespace quire::scheduler
