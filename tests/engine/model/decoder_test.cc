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
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_features.h"
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

TEST(Decoder, C119_SlidingWindowCountsTheQueryItself) {
  for (const int window : {1, 4, 17}) {
    ToyModel toy({.sliding_window = window});
    fakes::TempFolder folder;
    const Loaded loaded = Load(toy.WriteHuggingFace(folder.path()), {.block_size = 4});
    EXPECT_LT(LargestError(toy, *loaded.model, kPrompt), 2e-5) << window;
  }
}

// --- The CPU backend at every level of this machine ------------------------------------------

struct CpuCase {
  std::string isa, matrix_type;
};

std::vector<CpuCase> CpuCases() {
  std::vector<CpuCase> cases;
  for (const kernels::cpu::IsaLevel level : kernels::cpu::SupportedIsaLevels()) {
    for (const char* type : {"F32", "BF16", "Q8_0", "Q4_0", "Q4_1"}) {
      cases.push_back({std::string(kernels::cpu::IsaName(level)), type});
    }
  }
  return cases;
}

class CpuDecoder : public testing::TestWithParam<CpuCase> {
 protected:
  CpuDecoder() : toy_({.matrix_type = GetParam().matrix_type}) {
    files_ = *OpenModel(toy_.WriteGguf(folder_.path()));
  }

  std::unique_ptr<PagedModel> Load(kernels::Backend& backend, KvDtype kv_dtype) {
    auto model = PagedModel::Create(*files_, backend,
                                    {.kv_dtype = kv_dtype, .num_sequences = 4, .max_tokens = 64});
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }
  std::unique_ptr<kernels::Backend> Cpu(int threads) {
    auto backend = kernels::NewCpuBackend({.isa = GetParam().isa, .threads = threads});
    EXPECT_TRUE(backend.ok()) << backend.status();
    return *std::move(backend);
  }
  // All log-probabilities of every position of `prompt`, as sequence 0, computed in chunks beside
  // `others`. [position][vocab]
  std::vector<std::vector<float>> Logprobs(PagedModel& model, const std::vector<TokenId>& prompt,
                                           std::size_t chunk_size,
                                           const std::vector<SequenceChunk>& others = {}) {
    for (std::int32_t sequence = 0; sequence < 4; ++sequence) model.Reset(sequence);
    std::vector<std::vector<float>> logprobs;
    for (std::size_t begin = 0; begin < prompt.size(); begin += chunk_size) {
      const std::size_t end = std::min(begin + chunk_size, prompt.size());
      std::vector<SequenceChunk> chunks = others;
      // In the middle, so that neither first nor last row is special.
      chunks.insert(chunks.begin() + static_cast<std::ptrdiff_t>(chunks.size() / 2),
                    {.sequence = 0,
                     .ids = {prompt.begin() + static_cast<std::ptrdiff_t>(begin),
                             prompt.begin() + static_cast<std::ptrdiff_t>(end)},
                     .all_logits = true});
      const auto results = model.Step(chunks, {.num_logprobs = toy_.vocab_size()});
      for (std::size_t i = 0; i < end - begin; ++i) {
        logprobs.push_back(fakes::AllLogprobs(results[i + others.size() / 2], toy_.vocab_size()));
      }
    }
    return logprobs;
  }

  ToyModel toy_;
  fakes::TempFolder folder_;
  std::unique_ptr<ModelFiles> files_;
};

TEST_P(CpuDecoder, MatchesTheReferenceBackend) {
  const auto reference = kernels::NewReferenceBackend();
  const auto cpu = Cpu(1);
  const auto expected = Logprobs(*Load(*reference, KvDtype::kF32), kPrompt, kPrompt.size());
  const auto actual = Logprobs(*Load(*cpu, KvDtype::kF32), kPrompt, kPrompt.size());
  ASSERT_EQ(actual.size(), kPrompt.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_THAT(actual[i], testing::Pointwise(testing::FloatNear(1e-4F), expected[i])) << i;
  }
}

TEST_P(CpuDecoder, C117_BitsDoNotDependOnBatchChunksOrThreads) {
  for (const KvDtype kv_dtype : {KvDtype::kF32, KvDtype::kF16}) {
    const auto one = Cpu(1);
    const auto two = Cpu(2);
    const auto model = Load(*one, kv_dtype);
    const auto alone = Logprobs(*model, kPrompt, kPrompt.size());
    const std::vector<SequenceChunk> others = {{.sequence = 1, .ids = {4, 5}},
                                               {.sequence = 2, .ids = {200}},
                                               {.sequence = 3, .ids = {9, 8, 7}}};
    EXPECT_EQ(Logprobs(*model, kPrompt, 1), alone);
    EXPECT_EQ(Logprobs(*model, kPrompt, 7), alone);
    EXPECT_EQ(Logprobs(*model, kPrompt, 2, others), alone);
    const auto threaded = Load(*two, kv_dtype);
    EXPECT_EQ(Logprobs(*threaded, kPrompt, kPrompt.size()), alone);
    EXPECT_EQ(Logprobs(*threaded, kPrompt, 3, others), alone);
  }
}

INSTANTIATE_TEST_SUITE_P(, CpuDecoder, testing::ValuesIn(CpuCases()), [](const auto& param) {
  return param.param.matrix_type + "_" + param.param.isa;
});

}  // namespace
}  // namespace quire::engine::model
