#include "server/convert.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/status.h"
#include "server/stats_labels.h"

namespace quire::server {
namespace {

using engine::sampling::PositionLogprobs;

constexpr std::size_t kMaxIdBytes = 128;
constexpr std::size_t kMaxAcceptedPromptTokens = 500'000;  // At most 5 bytes each.
// A message costs a hundred times its bytes on the wire; no conversation has so many.
constexpr int kMaxChatMessages = 10'000;
constexpr std::size_t kSoftMessageBytes = 1 << 20;

template <class Optional, class Value>
void Set(Optional& field, bool present, Value value) {
  if (present) field = std::move(value);
}

engine::sampling::SamplingParams ToEngine(v1::SamplingParams p) {
  engine::sampling::SamplingParams out;
  Set(out.n, p.has_n(), p.n());
  Set(out.temperature, p.has_temperature(), p.temperature());
  Set(out.top_p, p.has_top_p(), p.top_p());
  Set(out.top_k, p.has_top_k(), p.top_k());
  Set(out.min_p, p.has_min_p(), p.min_p());
  Set(out.repetition_penalty, p.has_repetition_penalty(), p.repetition_penalty());
  Set(out.presence_penalty, p.has_presence_penalty(), p.presence_penalty());
  Set(out.frequency_penalty, p.has_frequency_penalty(), p.frequency_penalty());
  Set(out.seed, p.has_seed(), p.seed());
  out.logit_bias.insert(p.logit_bias().begin(), p.logit_bias().end());
  out.allowed_token_ids.assign(p.allowed_token_ids().begin(), p.allowed_token_ids().end());
  out.bad_words.assign(p.bad_words().begin(), p.bad_words().end());
  Set(out.max_tokens, p.has_max_tokens(), p.max_tokens());
  Set(out.min_tokens, p.has_min_tokens(), p.min_tokens());
  Set(out.ignore_eos, p.has_ignore_eos(), p.ignore_eos());
  out.stop.assign(p.stop().begin(), p.stop().end());
  out.stop_token_ids.assign(p.stop_token_ids().begin(), p.stop_token_ids().end());
  Set(out.include_stop_str_in_output, p.has_include_stop_str_in_output(),
      p.include_stop_str_in_output());
  Set(out.logprobs, p.has_logprobs(), p.logprobs());
  Set(out.prompt_logprobs, p.has_prompt_logprobs(), p.prompt_logprobs());
  Set(out.truncate_prompt_tokens, p.has_truncate_prompt_tokens(), p.truncate_prompt_tokens());
  Set(out.detokenize, p.has_detokenize(), p.detokenize());
  Set(out.skip_special_tokens, p.has_skip_special_tokens(), p.skip_special_tokens());
  return out;
}

void ToProto(const engine::sampling::RankedLogprob& in, v1::RankedLogprob* out) {
  out->set_token_id(in.token);
  out->set_logprob(in.logprob);
  out->set_rank(in.rank);
}

void ToProto(const PositionLogprobs& in, v1::PositionLogprobs* out) {
  if (in.chosen.token >= 0) ToProto(in.chosen, out->mutable_chosen());
  for (const auto& top : in.top) ToProto(top, out->add_top());
}

// An upper estimate of a position's size on the wire: three fields of at most 6 bytes each, and
// their headers.
std::size_t WireBytes(const PositionLogprobs& position) { return (1 + position.top.size()) * 20; }

void ToProto(std::string_view request_id, const engine::Accepted& in, v1::Accepted* out) {
  out->set_request_id(std::string(request_id));
  out->set_prompt_tokens(in.prompt_tokens);
  out->set_cached_tokens(in.cached_tokens);
  out->set_queue_ms(absl::ToDoubleMilliseconds(in.queue_time));
  if (in.prompt_token_ids.size() <= kMaxAcceptedPromptTokens) {
    out->mutable_prompt_token_ids()->Add(in.prompt_token_ids.begin(), in.prompt_token_ids.end());
  }
}

void ToProto(const engine::Timings& in, v1::Timings* out) {
  out->set_queue_ms(absl::ToDoubleMilliseconds(in.queue));
  out->set_prefill_ms(absl::ToDoubleMilliseconds(in.prefill));
  out->set_decode_ms(absl::ToDoubleMilliseconds(in.decode));
  out->set_ttft_ms(absl::ToDoubleMilliseconds(in.time_to_first_token));
  out->set_preemptions(in.num_preemptions);
  out->set_blocks(in.num_blocks);
}

void ToProto(const engine::Finished& in, v1::Finished* out) {
  out->set_index(in.index);
  out->set_finish_reason(in.reason == engine::FinishReason::kStop ? v1::FINISH_REASON_STOP
                                                                  : v1::FINISH_REASON_LENGTH);
  out->set_detail(in.detail);
  if (in.matched_stop.eos_token_id) {
    out->set_eos_token_id(*in.matched_stop.eos_token_id);
  } else if (in.matched_stop.stop_token_id) {
    out->set_stop_token_id(*in.matched_stop.stop_token_id);
  } else if (in.matched_stop.stop_string) {
    out->set_stop_string(*in.matched_stop.stop_string);
  }
  out->mutable_usage()->set_prompt_tokens(in.prompt_tokens);
  out->mutable_usage()->set_cached_tokens(in.cached_tokens);
  out->mutable_usage()->set_completion_tokens(in.completion_tokens);
  ToProto(in.timings, out->mutable_timings());
  out->set_seed(in.seed);
}

void AddPromptLogprobs(const std::vector<PositionLogprobs>& positions,
                       std::vector<v1::GenerateResponse>* out) {
  v1::PromptLogprobs* message = nullptr;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    if (message == nullptr || bytes + WireBytes(positions[i]) > kSoftMessageBytes) {
      message = out->emplace_back().mutable_prompt_logprobs();
      message->set_first_position(static_cast<std::int32_t>(i));
      bytes = 0;
    }
    ToProto(positions[i], message->add_positions());
    bytes += WireBytes(positions[i]);
  }
}

// Text goes with the last message: it may end in the middle of no character, but tokens may.
void AddDelta(const engine::Delta& delta, std::vector<v1::GenerateResponse>* out) {
  v1::Delta* message = out->emplace_back().mutable_delta();
  message->set_index(delta.index);
  if (delta.logprobs.empty()) {
    message->mutable_token_ids()->Add(delta.token_ids.begin(), delta.token_ids.end());
  }
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < delta.logprobs.size(); ++i) {
    if (bytes > 0 && bytes + WireBytes(delta.logprobs[i]) > kSoftMessageBytes) {
      message = out->emplace_back().mutable_delta();
      message->set_index(delta.index);
      bytes = 0;
    }
    message->add_token_ids(delta.token_ids[i]);
    ToProto(delta.logprobs[i], message->add_logprobs());
    bytes += WireBytes(delta.logprobs[i]);
  }
  message->set_text(delta.text);
}

void ToProto(const LabelledCounts& counts, google::protobuf::Map<std::string, std::int64_t>* out) {
  for (const auto& [label, count] : counts) (*out)[std::string(label)] = count;
}

v1::BlockStats ToProto(const block_manager::BlockStats& stats) {
  v1::BlockStats out;
  out.set_capacity(stats.capacity);
  out.set_block_size(stats.block_size);
  out.set_active(stats.active);
  out.set_cached(stats.cached);
  out.set_free(stats.free);
  out.set_useful_slots(stats.useful_slots);
  out.set_logical_blocks(stats.logical_blocks);
  out.set_evictions(stats.evictions);
  out.set_copies_on_write(stats.copies_on_write);
  out.set_peak_active(stats.peak_active);
  out.set_leased(stats.leased);
  out.set_sessions(stats.sessions);
  ToProto(EvictionsByReason(stats), out.mutable_evictions_by_reason());
  out.set_leases_expired(stats.leases_expired);
  out.set_leases_displaced(stats.leases_displaced);
  return out;
}

v1::BlockState ToProto(engine::BlockMap::State state) {
  switch (state) {
    case engine::BlockMap::State::kFree:
      return v1::BLOCK_STATE_FREE;
    case engine::BlockMap::State::kCached:
      return v1::BLOCK_STATE_CACHED;
    case engine::BlockMap::State::kActive:
      return v1::BLOCK_STATE_ACTIVE;
  }
  return v1::BLOCK_STATE_UNSPECIFIED;
}

}  // namespace

bool IsPlainId(std::string_view id) {
  return id.size() <= kMaxIdBytes &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

engine::TextPrompt ToEngine(v1::TextPrompt prompt) {
  return {.text = std::move(*prompt.mutable_text()),
          .parse_special = prompt.parse_special(),
          .add_special = !prompt.has_add_special() || prompt.add_special()};
}

absl::Status CheckChat(const v1::ChatPrompt& prompt) {
  if (prompt.messages_size() <= kMaxChatMessages) return absl::OkStatus();
  return InvalidArgument("chat.messages has {} entries, at most {} are allowed",
                         prompt.messages_size(), kMaxChatMessages);
}

engine::ChatPrompt ToEngine(v1::ChatPrompt prompt) {
  engine::ChatPrompt out;
  out.messages.reserve(static_cast<std::size_t>(prompt.messages_size()));
  for (auto& message : *prompt.mutable_messages()) {
    out.messages.push_back({.role = std::move(*message.mutable_role()),
                            .content = std::move(*message.mutable_content())});
  }
  return out;
}

absl::StatusOr<engine::GenerationRequest> ToEngine(v1::GenerateRequest request,
                                                   std::string_view served_model_name,
                                                   absl::Time deadline) {
  if (!IsPlainId(request.request_id())) {
    return InvalidArgument(
        "request_id must be at most {} printable ASCII characters without spaces", kMaxIdBytes);
  }
  if (!request.model().empty() && request.model() != served_model_name) {
    return NotFound("model \"{}\" is not served here; \"{}\" is", request.model(),
                    served_model_name);
  }
  engine::GenerationRequest out;
  switch (request.prompt_case()) {
    case v1::GenerateRequest::kText:
      // In the middle of a text there is no beginning to mark.
      if (!request.text().has_add_special()) {
        request.mutable_text()->set_add_special(!request.continue_session());
      }
      out.prompt = ToEngine(std::move(*request.mutable_text()));
      break;
    case v1::GenerateRequest::kTokenIds: {
      const auto& ids = request.token_ids().ids();
      out.prompt = engine::TokenPrompt{{ids.begin(), ids.end()}};
      break;
    }
    case v1::GenerateRequest::kChat:
      QUIRE_RETURN_IF_ERROR(CheckChat(request.chat()));
      out.prompt = ToEngine(std::move(*request.mutable_chat()));
      break;
    case v1::GenerateRequest::PROMPT_NOT_SET:
      return InvalidArgument("prompt is missing: set one of text, token_ids and chat");
  }
  out.request_id = std::move(*request.mutable_request_id());
  out.sampling = ToEngine(std::move(*request.mutable_sampling()));
  out.priority = request.priority();
  out.deadline = deadline;
  out.cache_salt = std::move(*request.mutable_cache_salt());
  out.bypass_prefix_cache = request.bypass_prefix_cache();
  out.session_id = std::move(*request.mutable_session_id());
  out.continue_session = request.continue_session();
  out.client_id = std::move(*request.mutable_client_id());
  return out;
}

std::vector<v1::GenerateResponse> ToResponses(std::string_view request_id,
                                              const engine::StreamChunk& chunk) {
  std::vector<v1::GenerateResponse> out;
  if (chunk.accepted) {
    ToProto(request_id, *chunk.accepted, out.emplace_back().mutable_accepted());
  }
  AddPromptLogprobs(chunk.prompt_logprobs, &out);
  for (const auto& delta : chunk.deltas) AddDelta(delta, &out);
  for (const auto& finished : chunk.finished) {
    ToProto(finished, out.emplace_back().mutable_finished());
  }
  return out;
}

v1::Completion& UnaryAnswer::Branch(std::int32_t index) {
  while (response_.completions_size() <= index) {
    const std::int32_t next = response_.completions_size();
    response_.add_completions()->set_index(next);
  }
  return *response_.mutable_completions(index);
}

void UnaryAnswer::Add(std::string_view request_id, const engine::StreamChunk& chunk) {
  if (chunk.accepted) ToProto(request_id, *chunk.accepted, response_.mutable_accepted());
  for (const auto& position : chunk.prompt_logprobs) {
    ToProto(position, response_.add_prompt_logprobs());
  }
  for (const auto& delta : chunk.deltas) {
    v1::Completion& branch = Branch(delta.index);
    branch.mutable_token_ids()->Add(delta.token_ids.begin(), delta.token_ids.end());
    branch.mutable_text()->append(delta.text);
    for (const auto& position : delta.logprobs) ToProto(position, branch.add_logprobs());
  }
  for (const auto& finished : chunk.finished) {
    ToProto(finished, Branch(finished.index).mutable_finished());
  }
}

v1::Stats ToProto(const engine::EngineStats& stats, absl::Duration uptime) {
  v1::Stats out;
  out.set_sequence_number(stats.sequence_number);
  out.set_uptime_seconds(absl::ToDoubleSeconds(uptime));

  *out.mutable_blocks() = ToProto(stats.blocks);

  auto* requests = out.mutable_requests();
  requests->set_received(stats.requests_received);
  requests->set_queued(stats.requests_queued);
  requests->set_running(stats.requests_running);
  requests->set_finished_stop(stats.finished_stop);
  requests->set_finished_length(stats.finished_length);
  requests->set_cancelled(stats.cancelled);
  requests->set_deadline_exceeded(stats.deadline_exceeded);
  requests->set_refused(stats.refused);
  requests->set_failed(stats.failed);

  out.set_prompt_tokens(stats.prompt_tokens);
  out.set_cached_prompt_tokens(stats.cached_prompt_tokens);
  out.set_generation_tokens(stats.generation_tokens);
  out.set_preemptions(stats.scheduler.num_preemptions);
  out.set_recomputed_tokens(stats.scheduler.recomputed_tokens);
  out.set_prefix_query_tokens(stats.scheduler.prefix_query_tokens);
  out.set_prefix_hit_tokens(stats.scheduler.prefix_hit_tokens);
  out.set_steps(stats.scheduler.num_steps);
  out.set_running_sequences(stats.scheduler.num_running);
  out.set_waiting_sequences(stats.scheduler.num_waiting);
  if (stats.step_time.count > 0) {
    out.set_mean_step_ms(1000 * stats.step_time.sum / static_cast<double>(stats.step_time.count));
  }
  out.set_healthy(stats.healthy);
  out.set_draining(stats.draining);
  ToProto(HitTokensBySource(stats.scheduler), out.mutable_hit_tokens_by_source());
  ToProto(MissTokensByReason(stats.scheduler), out.mutable_miss_tokens_by_reason());
  ToProto(WaitingByReason(stats.scheduler), out.mutable_waiting_by_reason());
  out.set_oldest_waiting_seconds(OldestWaitingSeconds(stats));
  out.set_in_flight_waits(stats.scheduler.in_flight_waits);
  out.set_in_flight_timeouts(stats.scheduler.in_flight_timeouts);
  out.set_prefill_cap_tokens(stats.scheduler.prefill_cap);
  return out;
}

v1::GetBlockMapResponse ToProto(const engine::BlockMap& map) {
  v1::GetBlockMapResponse out;
  *out.mutable_stats() = ToProto(map.stats);
  for (const auto state : map.states) out.add_states(ToProto(state));
  out.mutable_owners()->Add(map.owners.begin(), map.owners.end());
  for (const auto& sequence : map.sequences) {
    auto* entry = out.add_sequences();
    entry->set_request_id(sequence.request_id);
    entry->set_index(sequence.index);
    entry->set_num_tokens(sequence.num_tokens);
    entry->set_num_computed_tokens(sequence.num_computed_tokens);
    for (const BlockId block : sequence.blocks) entry->add_block_ids(block.value());
  }
  for (const auto& session : map.sessions) {
    auto* entry = out.add_sessions();
    entry->set_session_id(session.session_id);
    entry->set_num_tokens(session.num_tokens);
    entry->set_expires_in_seconds(absl::ToDoubleSeconds(session.expires_in));
    for (const BlockId block : session.blocks) entry->add_block_ids(block.value());
  }
  return out;
}

v1::KvEvent ToProto(const block_manager::KvEvent& event) {
  v1::KvEvent out;
  switch (event.kind) {
    case block_manager::KvEvent::Kind::kStored: {
      auto* stored = out.mutable_stored();
      stored->set_block_hash(event.block_hash);
      if (event.parent_hash) stored->set_parent_block_hash(*event.parent_hash);
      stored->mutable_token_ids()->Add(event.tokens.begin(), event.tokens.end());
      stored->set_salted(event.salted);
      break;
    }
    case block_manager::KvEvent::Kind::kRemoved:
      out.mutable_removed()->set_block_hash(event.block_hash);
      break;
    case block_manager::KvEvent::Kind::kCleared:
      out.mutable_cleared();
      break;
  }
  return out;
}

}  // namespace quire::server
