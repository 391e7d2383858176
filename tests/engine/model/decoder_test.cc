// Decoder against a forward pass written independently (plain_llama.h), over the toy checkpoint.
#include "engine/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "engine/model/weight_names.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/reference/reference_backend.h"
#include "tests/engine/model/paged_model.h"
#include "tests/engine/model/plain_llama.h"
#include "tests/fakes/file_writers.h"
#include "tests/fakes/toy_model.h"

namespace quire::engine::model {
namespace {

using fakes::PagedModel;
using fakes::SequenceChunk;
using fakes::ToyModel;

const std::vector<TokenId> kPrompt = {5,  77, 131, 20,  20, 299, 261, 4,  250, 18,
                                      42, 99, 100, 101, 7,  8,   9,   10, 11,  290};

std::vector<double> LogSoftmax(std::vector<double> logits) {
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  for (double& logit : logits) logit -= std::log(sum);
  return logits;
}

struct Loaded {
  std::unique_ptr<ModelFiles> files;
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<PagedModel> model;
};

Loaded Load(const std::string& path, const fakes::PagedModelOptions& options) {
  Loaded loaded;
  auto files = OpenModel(path);
  EXPECT_TRUE(files.ok()) << files.status();
  loaded.files = *std::move(files);
  loaded.backend = kernels::NewReferenceBackend();
  auto model = PagedModel::Create(*loaded.files, *loaded.backend, options);
  EXPECT_TRUE(model.ok()) << model.status();
  loaded.model = *std::move(model);
  return loaded;
}

// The largest difference between the model's log-probabilities and the plain forward pass, over all
// positions and the whole vocabulary.
double LargestError(ToyModel& toy, PagedModel& model, const std::vector<TokenId>& prompt) {
  const auto results = model.Step({{.sequence = 0, .ids = prompt, .all_logits = true}},
                                  {.num_logprobs = toy.vocab_size()});
  const auto expected = fakes::PlainLlamaLogits(toy, prompt);
  double largest = 0;
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    EXPECT_TRUE(results[i].ok);
    const auto actual = fakes::AllLogprobs(results[i], toy.vocab_size());
    const auto wanted = LogSoftmax(expected[i]);
    for (std::size_t t = 0; t < wanted.size(); ++t) {
      largest = std::max(largest, std::abs(wanted[t] - actual[t]));
    }
  }
  return largest;
}

TEST(Decoder, MatchesPlainForwardFromGguf) {
  ToyModel toy;
  fakes::TempFolder folder;
  const Loaded loaded = Load(toy.WriteGguf(folder.path()), {});
  EXPECT_LT(LargestError(toy, *loaded.model, kPrompt), 2e-5);
}

TEST(Decoder, MatchesPlainForwardFromHuggingFaceFolder) {
  ToyModel toy;
  fakes::TempFolder folder;
  const Loaded loaded = Load(toy.WriteHuggingFace(folder.path()), {});
  EXPECT_LT(LargestError(toy, *loaded.model, kPrompt), 2e-5);
}

TEST(Decoder, MatchesPlainForwardWithTiedEmbeddings) {
  ToyModel toy({.tie_embeddings = true});
  fakes::TempFolder folder;
  const Loaded loaded = Load(toy.WriteHuggingFace(folder.path()), {});
  EXPECT_LT(LargestError(toy, *loaded.model, kPrompt), 5e-5);
}

TEST(Decoder, C85_HeadDimOtherThanHiddenOverHeads) {
  for (const fakes::ToyOptions& options :
       {fakes::ToyOptions{.hidden_size = 96, .num_heads = 4, .head_dim = 32},
        fakes::ToyOptions{.hidden_size = 64, .num_heads = 6, .num_kv_heads = 3, .head_dim = 8}}) {
    ToyModel toy(options);
    fakes::TempFolder folder;
    const Loaded from_folder = Load(toy.WriteHuggingFace(folder.path()), {});
    EXPECT_LT(LargestError(toy, *from_folder.model, kPrompt), 2e-5);
    const Loaded from_gguf = Load(toy.WriteGguf(folder.path()), {});
    EXPECT_LT(LargestError(toy, *from_gguf.model, kPrompt), 2e-5);
  }
}

}  // namespace
}  // namespace quire::engine::model
