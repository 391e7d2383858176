#include "cli/completion.h"

#include <algorithm>

namespace quire::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::int32_t kMaxBranches = 1 << 16;

// Branch `index` of the answer; indices that no server should send share the nearest branch.
v1::Completion* Branch(std::int32_t index, v1::GenerateUnaryResponse* answer) {
  index = std::clamp(index, 0, kMaxBranches - 1);
  while (answer->completions_size() <= index) {
    answer->add_completions()->set_index(answer->completions_size() - 1);
  }
  return answer->mutable_completions(index);
}

ordered_json RankedJson(const v1::RankedLogprob& ranked) {
  return {{"token_id", ranked.token_id()}, {"logprob", ranked.logprob()}, {"rank", ranked.rank()}};
}

// Null for the first prompt position, which nothing predicts.
ordered_json PositionsJson(
    const google::protobuf::RepeatedPtrField<v1::PositionLogprobs>& positions) {
  ordered_json list = ordered_json::array();
  for (const v1::PositionLogprobs& position : positions) {
    if (!position.has_chosen()) {
      list.push_back(nullptr);
      continue;
    }
    ordered_json entry = RankedJson(position.chosen());
    entry["top"] = ordered_json::array();
    for (const v1::RankedLogprob& ranked : position.top())
      entry["top"].push_back(RankedJson(ranked));
    list.push_back(std::move(entry));
  }
  return list;
}

ordered_json TimingsJson(const v1::Timings& timings) {
  return {{"queue_ms", timings.queue_ms()},       {"prefill_ms", timings.prefill_ms()},
          {"decode_ms", timings.decode_ms()},     {"ttft_ms", timings.ttft_ms()},
          {"preemptions", timings.preemptions()}, {"blocks", timings.blocks()}};
}

void AddStopReason(const v1::Finished& finished, ordered_json* line) {
  switch (finished.stop_reason_case()) {
    case v1::Finished::kEosTokenId:
      (*line)["stop_reason"] = finished.eos_token_id();
      break;
    case v1::Finished::kStopTokenId:
      (*line)["stop_reason"] = finished.stop_token_id();
      break;
    case v1::Finished::kStopString:
      (*line)["stop_reason"] = finished.stop_string();
      break;
    case v1::Finished::STOP_REASON_NOT_SET:
      break;
  }
  if (!finished.detail().empty()) (*line)["detail"] = finished.detail();
}

}  // namespace

void Accumulate(const v1::GenerateResponse& response, v1::GenerateUnaryResponse* answer) {
  if (response.has_accepted()) *answer->mutable_accepted() = response.accepted();
  if (response.has_prompt_logprobs()) {
    answer->mutable_prompt_logprobs()->MergeFrom(response.prompt_logprobs().positions());
  }
  if (response.has_delta()) {
    const v1::Delta& delta = response.delta();
    v1::Completion* branch = Branch(delta.index(), answer);
    branch->mutable_token_ids()->MergeFrom(delta.token_ids());
    branch->mutable_text()->append(delta.text());
    branch->mutable_logprobs()->MergeFrom(delta.logprobs());
  }
  if (response.has_finished()) {
    *Branch(response.finished().index(), answer)->mutable_finished() = response.finished();
  }
}

ordered_json CompletionJson(int request, const v1::Completion& completion,
                            const v1::GenerateUnaryResponse& answer) {
  const v1::Finished& finished = completion.finished();
  ordered_json line;
  line["request"] = request;
  line["index"] = completion.index();
  line["token_ids"] = completion.token_ids();
  line["text"] = completion.text();
  line["finish_reason"] = finished.finish_reason() == v1::FINISH_REASON_STOP ? "stop" : "length";
  AddStopReason(finished, &line);
  line["usage"] = {{"prompt_tokens", finished.usage().prompt_tokens()},
                   {"cached_tokens", finished.usage().cached_tokens()},
                   {"completion_tokens", finished.usage().completion_tokens()}};
  if (completion.logprobs_size() > 0) line["logprobs"] = PositionsJson(completion.logprobs());
  if (answer.prompt_logprobs_size() > 0) {
    line["prompt_logprobs"] = PositionsJson(answer.prompt_logprobs());
  }
  line["timings"] = TimingsJson(finished.timings());
  line["seed"] = finished.seed();
  return line;
}

}  // namespace quire::cli
