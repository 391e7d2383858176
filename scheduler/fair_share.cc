#include "scheduler/fair_share.h"

#include "base/check.h"

namespace quire::scheduler {

Turn FairShare::Enter(std::int32_t priority, const std::string& client_id, std::int64_t cost,
                      std::int64_t first_round) {
  Client& client = clients_[{priority, client_id}];
  if (client.num_waiting++ == 0) {
    client.last = {.round = first_round, .place = next_place_++};
    client.deficit = quantum_;
  }
  if (cost > client.deficit) {
    const std::int64_t rounds = (cost - client.deficit + quantum_ - 1) / quantum_;
    client.last.round += rounds;
    client.deficit += rounds * quantum_;
  }
  client.deficit -= cost;
  return client.last;
}

void FairShare::Leave(std::int32_t priority, const std::string& client_id) {
  const auto client = clients_.find({priority, client_id});
  QUIRE_CHECK(client != clients_.end()) << "client '" << client_id << "' has nothing queued";
  if (--client->second.num_waiting == 0) clients_.erase(client);
}

}  // namespace quire::scheduler
