// config.json and generation_config.json of a Hugging Face folder.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model.h"

namespace quire::engine::model {

struct HfConfig {
  ModelConfig model;  // num_parameters is still 0.
  std::vector<TokenId> eos_token_ids;
};

// LlamaForCausalLM and MistralForCausalLM. UNIMPLEMENTED names what is asked for but not offered
// (another architecture, biases, a kind of rope scaling).
absl::StatusOr<HfConfig> ReadHfConfig(const std::string& path);

struct HfGenerationConfig {
  std::vector<TokenId> eos_token_ids;
  sampling::SamplingDefaults sampling_defaults;
};
absl::StatusOr<HfGenerationConfig> ReadHfGenerationConfig(const std::string& path);

// The Jinja source that a folder's chat_template.jinja or, failing that, its tokenizer_config.json
// holds (of several the one called "default"); empty when neither does.
absl::StatusOr<std::string> ReadHfChatTemplate(const std::string& folder);

}  // namespace quire::engine::model
