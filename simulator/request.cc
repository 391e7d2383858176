#include "simulator/request.h"

#include "simulator/random.h"

namespace quire::simulator {

std::int32_t Request::prompt_len() const {
  auto length = static_cast<std::int32_t>(prompt_ids.size());
  for (const Segment& segment : prompt) length += segment.length;
  return length;
}

std::vector<TokenId> Request::PromptTokens() const {
  std::vector<TokenId> tokens = prompt_ids;
  tokens.reserve(static_cast<std::size_t>(prompt_len()));
  for (const Segment& segment : prompt) {
    AppendStreamTokens(segment.stream, segment.branch, 0, segment.length, &tokens);
  }
  return tokens;
}

TokenId Request::OutputToken(std::int32_t branch, std::int32_t position) const {
  if (branch == 0 && static_cast<std::size_t>(position) < output_ids.size()) {
    return output_ids[static_cast<std::size_t>(position)];
  }
  return StreamToken(output_stream, static_cast<std::uint32_t>(branch), position);
}

}  // namespace quire::simulator
