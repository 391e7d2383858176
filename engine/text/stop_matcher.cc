#include "engine/text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace quire::engine::text {
namespace {

std::vector<std::size_t> Borders(std::string_view string) {
  std::vector<std::size_t> borders(string.size() + 1, 0);
  std::size_t border = 0;
  for (std::size_t k = 1; k < string.size(); ++k) {
    while (border > 0 && string[k] != string[border]) border = borders[border];
    if (string[k] == string[border]) ++border;
    borders[k + 1] = border;
  }
  return borders;
}

}  // namespace

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  borders_.reserve(strings_.size());
  for (const std::string& string : strings_) borders_.push_back(Borders(string));
}

std::size_t StopStrings::Next(std::size_t i, std::size_t matched, char byte) const {
  const std::string& string = strings_[i];
  while (matched > 0 && string[matched] != byte) matched = borders_[i][matched];
  return string[matched] == byte ? matched + 1 : 0;
}

StopMatcher::StopMatcher(std::shared_ptr<const StopStrings> strings, StopInOutput stop_in_output)
    : strings_(std::move(strings)),
      stop_in_output_(stop_in_output),
      matched_(strings_->size(), 0) {}

std::optional<std::size_t> StopMatcher::Step(char byte) {
  std::optional<std::size_t> complete;
  for (std::size_t i = 0; i < matched_.size(); ++i) {
    matched_[i] = strings_->Next(i, matched_[i], byte);
    if (matched_[i] < strings_->string(i).size()) continue;
    if (!armed_) {
      matched_[i] = strings_->Restart(i);
    } else if (!complete || matched_[i] > matched_[*complete]) {
      complete = i;
    }
  }
  return complete;
}

std::optional<std::size_t> StopMatcher::Append(std::string_view text, std::string& out) {
  for (std::size_t n = 0; n < text.size(); ++n) {
    const std::optional<std::size_t> complete = Step(text[n]);
    if (!complete) continue;
    held_.append(text.substr(0, n + 1));
    if (stop_in_output_ == StopInOutput::kExclude) {
      held_.resize(held_.size() - strings_->string(*complete).size());
    }
    Release(out);
    return complete;
  }
  held_.append(text);
  if (stop_in_output_ == StopInOutput::kInclude) {
    Release(out);
    return std::nullopt;
  }
  const std::size_t keep =
      matched_.empty() ? 0 : *std::max_element(matched_.begin(), matched_.end());
  out.append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return std::nullopt;
}

void StopMatcher::Release(std::string& out) {
  out.append(held_);
  held_.clear();
}

}  // namespace quire::engine::text
