#include "tests/engine/model/golden_data.h"

#include <cstdlib>
#include <fstream>

#include "base/check.h"
#include "nlohmann/json.hpp"

namespace quire::fakes {
namespace {

using nlohmann::json;

json LoadGolden(const std::string& name) {
  const std::string path = std::string(QUIRE_TEST_DATA) + "/golden/smollm2_135m/" + name;
  std::ifstream file(path);
  QUIRE_CHECK(file.good()) << path;
  return json::parse(file);
}

template <class T>
std::vector<std::optional<T>> Optionals(const json& list) {
  std::vector<std::optional<T>> values;
  for (const json& value : list) {
    values.push_back(value.is_null() ? std::nullopt : std::optional<T>(value.get<T>()));
  }
  return values;
}

}  // namespace

std::string SmolLm2Path() {
  const char* quire_home = std::getenv("QUIRE_HOME");
  const char* home = std::getenv("HOME");
  const std::string root = quire_home != nullptr ? quire_home
                           : home != nullptr     ? std::string(home) + "/.cache/quire"
                                                 : ".";
  return root + "/models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf";
}

std::vector<GreedyPrompt> LoadGreedyPrompts() {
  std::vector<GreedyPrompt> prompts;
  const json data = LoadGolden("greedy.json");
  for (const json& entry : data["prompts"]) {
    GreedyPrompt prompt{.name = entry["name"],
                        .ids = entry["ids"],
                        .greedy_ids = entry["greedy_ids"],
                        .greedy_logprobs = entry["greedy_logprobs"],
                        .margins = entry["margins"],
                        .top = {}};
    for (const json& top : entry["top"]) {
      prompt.top.push_back({.ids = top["ids"], .logprobs = top["logprobs"]});
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

PerplexityData LoadPerplexity() {
  const json data = LoadGolden("perplexity.json");
  PerplexityData result{.ids = data["ids"], .windows = {}};
  for (const json& entry : data["windows"]) {
    result.windows.push_back({.window = entry["window"],
                              .predicted = entry["predicted"],
                              .mean_nll = entry["mean_nll"]});
  }
  return result;
}

std::vector<PromptLogprobs> LoadPromptLogprobs() {
  std::vector<PromptLogprobs> result;
  const json data = LoadGolden("prompt_logprobs.json");
  for (const json& entry : data["prompts"]) {
    result.push_back({.name = entry["name"],
                      .ids = entry["ids"],
                      .logprobs = Optionals<double>(entry["logprobs"]),
                      .ranks = Optionals<int>(entry["ranks"])});
  }
  return result;
}

}  // namespace quire::fakes
