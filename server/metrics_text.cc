#include "server/metrics_text.h"

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <string_view>
#include <utility>

#include "server/stats_labels.h"

namespace quire::server {
namespace {

using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

std::string EscapeLabel(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

// Writes families one after the other; each sample carries the common labels and its own.
class Writer {
 public:
  explicit Writer(std::string common_labels) : common_(std::move(common_labels)) {}

  void Family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    fmt::format_to(std::back_inserter(out_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name,
                   type);
  }
  void Sample(double value, Labels labels = {}) { Line("", labels, value); }

  // One sample per cause, under the label `key`.
  void Labelled(std::string_view name, std::string_view type, std::string_view help,
                std::string_view key, const LabelledCounts& counts) {
    Family(name, type, help);
    for (const auto& [label, count] : counts) Sample(static_cast<double>(count), {{key, label}});
  }
  void Single(std::string_view name, std::string_view type, std::string_view help, double value) {
    Family(name, type, help);
    Sample(value);
  }
  void Gauge(std::string_view name, std::string_view help, double value) {
    Single(name, "gauge", help, value);
  }
  void Counter(std::string_view name, std::string_view help, std::int64_t value) {
    Single(name, "counter", help, static_cast<double>(value));
  }

  void Histogram(std::string_view name, std::string_view help, const engine::Histogram& data) {
    Family(name, "histogram", help);
    std::int64_t cumulative = 0;
    for (std::size_t i = 0; i < data.bounds.size(); ++i) {
      cumulative += data.counts[i];
      Line("_bucket", {{"le", fmt::format("{}", data.bounds[i])}}, static_cast<double>(cumulative));
    }
    Line("_bucket", {{"le", "+Inf"}}, static_cast<double>(data.count));
    Line("_sum", {}, data.sum);
    Line("_count", {}, static_cast<double>(data.count));
  }

  std::string Take() { return std::move(out_); }

 private:
  void Line(std::string_view suffix, Labels labels, double value) {
    auto out = std::back_inserter(out_);
    fmt::format_to(out, "{}{}", name_, suffix);
    std::string all = common_;
    for (const auto& [key, label] : labels) {
      fmt::format_to(std::back_inserter(all), "{}{}=\"{}\"", all.empty() ? "" : ",", key,
                     EscapeLabel(label));
    }
    if (!all.empty()) fmt::format_to(out, "{{{}}}", all);
    // Counts are exact up to 2^53 and have no decimal point.
    fmt::format_to(out, " {:.17g}\n", value);
  }

  const std::string common_;
  std::string name_;
  std::string out_;
};

double Ratio(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

void WriteBlocks(const engine::EngineStats& stats, Writer* out) {
  const auto& blocks = stats.blocks;
  out->Family("quire_kv_blocks", "gauge", "KV blocks by state; the three add up to the capacity.");
  out->Sample(static_cast<double>(blocks.active), {{"state", "active"}});
  out->Sample(static_cast<double>(blocks.cached), {{"state", "cached"}});
  out->Sample(static_cast<double>(blocks.free), {{"state", "free"}});
  out->Gauge("quire_kv_blocks_capacity", "KV blocks in the pool.",
             static_cast<double>(blocks.capacity));
  out->Gauge("quire_kv_block_size", "Token slots per block.", blocks.block_size);
  out->Gauge("quire_kv_blocks_peak_active", "Most active blocks since start.",
             static_cast<double>(blocks.peak_active));
  out->Gauge("quire_kv_blocks_logical", "Entries of all block tables; above active when shared.",
             static_cast<double>(blocks.logical_blocks));
  out->Gauge("quire_kv_useful_slots", "Slots of active blocks that hold a computed token.",
             static_cast<double>(blocks.useful_slots));
  out->Gauge("quire_kv_useful_slot_ratio", "Useful slots among those of active blocks; 0 if none.",
             Ratio(blocks.useful_slots, blocks.active * blocks.block_size));
  out->Gauge("quire_kv_sharing_ratio",
             "Logical over active blocks: above 1 when shared; 0 if none.",
             Ratio(blocks.logical_blocks, blocks.active));
  out->Gauge("quire_kv_blocks_leased", "Cached blocks that sessions have leased.",
             static_cast<double>(blocks.leased));
  out->Gauge("quire_sessions", "Sessions that have a lease.", static_cast<double>(blocks.sessions));
  out->Labelled("quire_session_leases_lost_total", "counter", "Leases that ended early or expired.",
                "reason",
                {{"expired", blocks.leases_expired}, {"displaced", blocks.leases_displaced}});
  out->Labelled("quire_kv_block_evictions_total", "counter", "Cached blocks that were dropped.",
                "reason", EvictionsByReason(blocks));
  out->Counter("quire_kv_block_copies_total", "Blocks copied because a shared one was written.",
               blocks.copies_on_write);
  out->Counter("quire_kv_block_allocations_total", "Blocks handed out.", blocks.allocations);
}

void WriteRequests(const engine::EngineStats& stats, Writer* out) {
  out->Counter("quire_requests_received_total",
               "Requests submitted; equals queued + running + all outcomes.",
               stats.requests_received);
  out->Family("quire_requests_total", "counter", "Requests that ended, by outcome.");
  const std::pair<std::string_view, std::int64_t> outcomes[] = {
      {"stop", stats.finished_stop},  {"length", stats.finished_length},
      {"cancelled", stats.cancelled}, {"deadline_exceeded", stats.deadline_exceeded},
      {"refused", stats.refused},     {"failed", stats.failed}};
  for (const auto& [outcome, count] : outcomes) {
    out->Sample(static_cast<double>(count), {{"outcome", outcome}});
  }
  out->Gauge("quire_requests_queued", "Requests accepted and not yet scheduled.",
             static_cast<double>(stats.requests_queued));
  out->Gauge("quire_requests_running", "Requests scheduled and not yet ended.",
             static_cast<double>(stats.requests_running));
  out->Family("quire_sequences", "gauge", "Branches known to the scheduler.");
  out->Sample(stats.scheduler.num_running, {{"state", "running"}});
  out->Sample(stats.scheduler.num_waiting, {{"state", "waiting"}});
  out->Labelled("quire_waiting_sequences", "gauge", "Waiting branches by what they wait for.",
                "reason", WaitingByReason(stats.scheduler));
  out->Gauge("quire_oldest_waiting_seconds", "Age of the oldest waiting request; 0 if none.",
             OldestWaitingSeconds(stats));
}

void WriteTokens(const engine::EngineStats& stats, Writer* out) {
  const auto& scheduler = stats.scheduler;
  out->Counter("quire_prompt_tokens_total", "Prompt tokens of admitted requests.",
               stats.prompt_tokens);
  out->Counter("quire_cached_prompt_tokens_total", "Those of them found in the prefix cache.",
               stats.cached_prompt_tokens);
  out->Counter("quire_generation_tokens_total", "Tokens generated.", stats.generation_tokens);
  out->Family("quire_scheduled_tokens_total", "counter", "Tokens computed, by kind of work.");
  out->Sample(static_cast<double>(scheduler.scheduled_prefill_tokens), {{"kind", "prefill"}});
  out->Sample(static_cast<double>(scheduler.scheduled_decode_tokens), {{"kind", "decode"}});
  out->Counter("quire_recomputed_tokens_total", "Tokens computed again after a preemption.",
               scheduler.recomputed_tokens);
  out->Counter("quire_preemptions_total", "Sequences that lost their blocks for a while.",
               scheduler.num_preemptions);
  out->Counter("quire_prefix_query_tokens_total", "Tokens looked up in the prefix cache.",
               scheduler.prefix_query_tokens);
  out->Labelled("quire_prefix_hit_tokens_total", "counter",
                "Tokens that were not computed, by what they were found by.", "source",
                HitTokensBySource(scheduler));
  out->Labelled("quire_prefix_miss_tokens_total", "counter",
                "Prompt tokens that were computed, by why they were not cached.", "reason",
                MissTokensByReason(scheduler));
  out->Counter("quire_in_flight_waits_total",
               "Requests that waited for a prefix which another one computed.",
               scheduler.in_flight_waits);
  out->Counter("quire_in_flight_timeouts_total",
               "Those of them that waited too long and computed it themselves.",
               scheduler.in_flight_timeouts);
}

void WriteEngine(const engine::EngineStats& stats, absl::Duration uptime, bool serving,
                 Writer* out) {
  out->Counter("quire_steps_total", "Engine steps.", stats.scheduler.num_steps);
  out->Counter("quire_no_progress_failures_total",
               "Requests ended because a step could not schedule anything; a bug if not 0.",
               stats.scheduler.no_progress_failures);
  out->Gauge("quire_prefill_cap_tokens", "Prefill tokens of the next step that also decodes.",
             stats.scheduler.prefill_cap);
  out->Gauge("quire_snapshot", "Number of the snapshot that this scrape shows.",
             static_cast<double>(stats.sequence_number));
  out->Gauge("quire_serving", "1 while new requests are welcome.", serving ? 1 : 0);
  out->Gauge("quire_uptime_seconds", "Seconds since the server started.",
             absl::ToDoubleSeconds(uptime));
}

void WriteHistograms(const engine::EngineStats& stats, Writer* out) {
  out->Histogram("quire_time_to_first_token_seconds", "Arrival to first token.",
                 stats.time_to_first_token);
  out->Histogram("quire_inter_token_latency_seconds", "Between two tokens of one branch.",
                 stats.inter_token_latency);
  out->Histogram("quire_e2e_latency_seconds", "Arrival to end.", stats.e2e_latency);
  out->Histogram("quire_queue_time_seconds", "Arrival to first scheduled.", stats.queue_time);
  out->Histogram("quire_prefill_time_seconds", "First scheduled to first token.",
                 stats.prefill_time);
  out->Histogram("quire_decode_time_seconds", "First token to last.", stats.decode_time);
  out->Histogram("quire_step_time_seconds", "Duration of an engine step.", stats.step_time);
  out->Histogram("quire_iteration_tokens", "Tokens computed in a step.", stats.iteration_tokens);
  out->Histogram("quire_request_prompt_tokens", "Prompt tokens per request.",
                 stats.request_prompt_tokens);
  out->Histogram("quire_request_generation_tokens", "Generated tokens per request.",
                 stats.request_generation_tokens);
}

// vLLM's names for what we measure too. Its cache usage counts blocks in use, not cached ones.
void WriteVllm(const engine::EngineStats& stats, const MetricsInfo& info, Writer* out) {
  out->Gauge("vllm:num_requests_running", "As quire_requests_running.",
             static_cast<double>(stats.requests_running));
  out->Gauge("vllm:num_requests_waiting", "As quire_requests_queued.",
             static_cast<double>(stats.requests_queued));
  // Deferred: could run, but waits for somebody else.
  const scheduler::WaitingBecause& waiting = stats.scheduler.waiting_because;
  const std::int32_t deferred = waiting.prefix_in_flight + waiting.turn;
  out->Labelled("vllm:num_requests_waiting_by_reason", "gauge",
                "As quire_waiting_sequences, in two groups.", "reason",
                {{"capacity", waiting.total() - deferred}, {"deferred", deferred}});
  out->Gauge("vllm:kv_cache_usage_perc", "Active share of the KV blocks, 0 to 1.",
             Ratio(stats.blocks.active, stats.blocks.capacity));
  out->Family("vllm:cache_config_info", "gauge", "Settings of the KV cache as labels.");
  out->Sample(1, {{"block_size", fmt::format("{}", stats.blocks.block_size)},
                  {"num_gpu_blocks", fmt::format("{}", stats.blocks.capacity)},
                  {"cache_dtype", info.cache_dtype},
                  {"enable_prefix_caching", info.prefix_caching ? "True" : "False"}});
  out->Counter("vllm:prefix_cache_queries_total", "Tokens looked up in the prefix cache.",
               stats.scheduler.prefix_query_tokens);
  out->Counter("vllm:prefix_cache_hits_total", "Tokens found in the prefix cache.",
               stats.scheduler.prefix_hit_tokens);
  out->Counter("vllm:num_preemptions_total", "Preemptions.", stats.scheduler.num_preemptions);
  out->Counter("vllm:prompt_tokens_total", "Prompt tokens.", stats.prompt_tokens);
  out->Counter("vllm:prompt_tokens_cached_total", "Prompt tokens found in the prefix cache.",
               stats.cached_prompt_tokens);
  out->Labelled("vllm:prompt_tokens_by_source_total", "counter",
                "Prompt tokens by where their keys and values came from.", "source",
                {{"local_compute", stats.prompt_tokens - stats.cached_prompt_tokens},
                 {"local_cache_hit", stats.cached_prompt_tokens},
                 {"external_kv_transfer", 0}});
  out->Counter("vllm:generation_tokens_total", "Tokens generated.", stats.generation_tokens);
  out->Family("vllm:request_success_total", "counter", "Finished requests by reason.");
  out->Sample(static_cast<double>(stats.finished_stop), {{"finished_reason", "stop"}});
  out->Sample(static_cast<double>(stats.finished_length), {{"finished_reason", "length"}});
  out->Histogram("vllm:time_to_first_token_seconds", "Arrival to first token.",
                 stats.time_to_first_token);
  out->Histogram("vllm:inter_token_latency_seconds", "Between two tokens of one branch.",
                 stats.inter_token_latency);
  out->Histogram("vllm:e2e_request_latency_seconds", "Arrival to end.", stats.e2e_latency);
  out->Histogram("vllm:request_queue_time_seconds", "Arrival to first scheduled.",
                 stats.queue_time);
  out->Histogram("vllm:request_prefill_time_seconds", "First scheduled to first token.",
                 stats.prefill_time);
  out->Histogram("vllm:request_decode_time_seconds", "First token to last.", stats.decode_time);
  out->Histogram("vllm:iteration_tokens_total", "Tokens computed in a step.",
                 stats.iteration_tokens);
  out->Histogram("vllm:request_prompt_tokens", "Prompt tokens per request.",
                 stats.request_prompt_tokens);
  out->Histogram("vllm:request_generation_tokens", "Generated tokens per request.",
                 stats.request_generation_tokens);
}

}  // namespace

std::string MetricsText(const engine::EngineStats& stats, absl::Duration uptime, bool serving,
                        const MetricsInfo& info) {
  Writer own("");
  own.Family("quire_info", "gauge", "What runs here, as labels.");
  own.Sample(1, {{"version", info.version}, {"model_name", info.model_name}});
  WriteBlocks(stats, &own);
  WriteRequests(stats, &own);
  WriteTokens(stats, &own);
  WriteEngine(stats, uptime, serving, &own);
  WriteHistograms(stats, &own);
  Writer vllm(fmt::format("model_name=\"{}\",engine=\"0\"", EscapeLabel(info.model_name)));
  WriteVllm(stats, info, &vllm);
  return own.Take() + vllm.Take();
}

}  // namespace quire::server
