#include "engine/host.h"
#include "server/server.h"

namespace quire::server {
namespace {

#if defined(__OPTIMIZE__)
constexpr char kBuild[] = "g++ " __VERSION__ ", optimised";
#else
constexpr char kBuild[] = "g++ " __VERSION__ ", not optimised";
#endif

v1::GetServerInfoResponse ServerInfo(const engine::EngineHost& host,
                                     const std::map<std::string, std::string>& settings) {
  const auto& report = host.report;
  const auto& scheduler = host.engine->options().scheduler;
  v1::GetServerInfoResponse info;
  info.set_version(QUIRE_VERSION);
  info.set_build(kBuild);
  info.set_backend(report.backend);
  info.set_isa(report.isa);
  info.set_threads(report.threads);
  info.set_block_size(report.block_size);
  info.set_num_blocks(report.num_blocks);
  info.set_kv_bytes(report.kv_bytes);
  info.set_kv_bytes_per_token(report.kv_bytes_per_token);
  info.set_weight_bytes(report.weight_bytes);
  info.set_max_model_len(report.max_model_len);
  info.set_max_num_seqs(scheduler.max_num_seqs);
  info.set_max_num_batched_tokens(scheduler.max_num_batched_tokens);
  info.set_max_prefill_tokens(scheduler.max_prefill_tokens);
  info.mutable_settings()->insert(settings.begin(), settings.end());
  for (const auto& [stage, seconds] : report.stage_seconds) {
    (*info.mutable_startup_seconds())[stage] += seconds;
  }
  return info;
}

v1::GetModelInfoResponse ModelInfo(const engine::EngineHost& host,
                                   const std::string& served_model_name) {
  const auto& report = host.report;
  const auto& config = host.config;
  const auto& traits = host.engine->traits();
  v1::GetModelInfoResponse info;
  info.set_served_model_name(served_model_name);
  info.set_model_path(report.model_path);
  info.set_architecture(config.architecture);
  info.set_vocab_size(config.vocab_size);
  info.set_max_model_len(report.max_model_len);
  info.set_num_layers(config.num_layers);
  info.set_num_heads(config.num_heads);
  info.set_num_kv_heads(config.num_kv_heads);
  info.set_head_dim(config.head_dim);
  info.set_hidden_size(config.hidden_size);
  info.set_num_parameters(config.num_parameters);
  info.set_weight_format(report.weight_format);
  info.set_kv_cache_dtype(report.kv_dtype);
  info.mutable_eos_token_ids()->Add(traits.eos_token_ids.begin(), traits.eos_token_ids.end());
  if (host.tokenizer != nullptr && host.tokenizer->bos_id().has_value()) {
    info.set_bos_token_id(*host.tokenizer->bos_id());
  }
  info.set_chat_template(report.chat_template);
  auto& defaults = *info.mutable_default_sampling();
  const auto& sampling = traits.sampling_defaults;
  if (sampling.temperature) defaults["temperature"] = *sampling.temperature;
  if (sampling.top_p) defaults["top_p"] = *sampling.top_p;
  if (sampling.min_p) defaults["min_p"] = *sampling.min_p;
  if (sampling.repetition_penalty) defaults["repetition_penalty"] = *sampling.repetition_penalty;
  if (sampling.top_k) defaults["top_k"] = *sampling.top_k;
  return info;
}

}  // namespace

ServedModel DescribeHost(const engine::EngineHost& host, const std::string& served_model_name,
                         const std::map<std::string, std::string>& settings) {
  return {.engine = host.engine.get(),
          .server_info = ServerInfo(host, settings),
          .model_info = ModelInfo(host, served_model_name)};
}

}  // namespace quire::server
