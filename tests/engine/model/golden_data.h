// The recorded outputs in tests/golden/smollm2_135m and the place of the model they belong to.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"

namespace quire::fakes {

// $QUIRE_HOME or ~/.cache/quire, then models/smollm2-135m/….gguf: where `quire model fetch
// smollm2-135m` puts it. The file may be missing.
std::string SmolLm2Path();

struct TopLogprobs {
  std::vector<TokenId> ids;  // Best first.
  std::vector<double> logprobs;
};

struct GreedyPrompt {
  std::string name;
  std::vector<TokenId> ids, greedy_ids;
  std::vector<double> greedy_logprobs, margins;  // [greedy_ids]
  std::vector<TopLogprobs> top;                  // Of the first positions.
};
std::vector<GreedyPrompt> LoadGreedyPrompts();

struct PerplexityWindow {
  int window = 0;
  int predicted = 0;
  double mean_nll = 0;
};
struct PerplexityData {
  std::vector<TokenId> ids;
  std::vector<PerplexityWindow> windows;
};
PerplexityData LoadPerplexity();

struct PromptLogprobs {
  std::string name;
  std::vector<TokenId> ids;
  std::vector<std::optional<double>> logprobs;  // None at position 0.
  std::vector<std::optional<int>> ranks;
};
std::vector<PromptLogprobs> LoadPromptLogprobs();

}  // namespace quire::fakes
