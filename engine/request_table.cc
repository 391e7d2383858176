#include "engine/request_table.h"

#include <utility>

namespace quire::engine {

ActiveRequest& RequestTable::Add(std::shared_ptr<Request> request, std::int32_t prompt_tokens,
                                 const text::Tokenizer* tokenizer) {
  std::vector<SequenceId> ids;
  for (std::int32_t i = 0; i < request->branches; ++i) ids.emplace_back(next_sequence_id_++);
  const Request* key = request.get();
  auto active = std::make_unique<ActiveRequest>(std::move(request), prompt_tokens, ids, tokenizer);
  for (Branch& branch : active->branches()) sequences_[branch.id()] = {active.get(), &branch};
  return *(requests_[key] = std::move(active));
}

void RequestTable::Erase(const ActiveRequest& request) {
  for (const Branch& branch : request.branches()) sequences_.erase(branch.id());
  requests_.erase(&request.request());
}

RequestTable::Entry RequestTable::Find(SequenceId id) const {
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? Entry() : it->second;
}

ActiveRequest* RequestTable::Find(const Request& request) const {
  const auto it = requests_.find(&request);
  return it == requests_.end() ? nullptr : it->second.get();
}

std::vector<ActiveRequest*> RequestTable::All() const {
  std::vector<ActiveRequest*> all;
  all.reserve(requests_.size());
  for (const auto& [key, request] : requests_) all.push_back(request.get());
  return all;
}

}  // namespace quire::engine
