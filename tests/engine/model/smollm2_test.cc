// SmolLM2-135M through decoder, paged cache and backend against Hugging Face's recorded outputs,
// for every path that a user can choose and every ISA level of this machine.
//
// The bounds come from a study of what rounding does to this model (24 prompts, every format
// emulated in float32); see tests/golden/smollm2_135m/README.md for the data.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/decoder.h"
#include "engine/model/model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/reference/reference_backend.h"
#include "tests/engine/model/golden_data.h"
#include "tests/engine/model/paged_model.h"

namespace quire::engine::model {
namespace {

using fakes::GreedyPrompt;
using fakes::PagedModel;
using fakes::SequenceChunk;

struct Limits {
  double near_tie;           // A first difference is forgiven where the margin is below this.
  double top_mean, top_max;  // |difference| of the ten best log-probabilities.
  double mean_nll;           // |difference| of the mean negative log-likelihood.
  int min_equal_prompts;     // Of 16.
};

struct PathCase {
  std::string name;
  WeightDtype weights;
  KvDtype kv;
  Limits limits;
};

const std::vector<PathCase>& Paths() {
  static const std::vector<PathCase> paths = {
      {"F32WeightsF32Kv", WeightDtype::kF32, KvDtype::kF32, {1e-3, 3e-4, 1e-3, 3e-4, 15}},
      {"AutoWeightsF32Kv", WeightDtype::kAuto, KvDtype::kF32, {1e-3, 3e-4, 1e-3, 3e-4, 15}},
      {"AutoWeightsF16Kv", WeightDtype::kAuto, KvDtype::kF16, {0.02, 0.003, 0.03, 5e-4, 14}},
      {"Bf16WeightsF16Kv", WeightDtype::kBf16, KvDtype::kF16, {0.15, 0.04, 0.5, 2e-3, 9}},
  };
  return paths;
}

struct Case {
  PathCase path;
  std::string isa;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.path.name << " " << c.isa; }

// Every path at the machine's best level; at the others those whose limits are tight enough to
// show a mistake.
std::vector<Case> AllCases() {
  std::vector<Case> cases;
  const auto levels = kernels::cpu::SupportedIsaLevels();
  for (const kernels::cpu::IsaLevel level : levels) {
    for (const PathCase& path : Paths()) {
      if (level != levels.back() && path.limits.near_tie > 0.1) continue;
      cases.push_back({path, std::string(kernels::cpu::IsaName(level))});
    }
  }
  return cases;
}

constexpr std::int32_t kChunk = 512;  // Prompt tokens of a step.

// Null, with the test failed, when the model cannot be opened.
std::unique_ptr<ModelFiles> OpenSmolLm2() {
  const std::string path = fakes::SmolLm2Path();
  if (access(path.c_str(), R_OK) != 0) {
    ADD_FAILURE() << path
                  << " is missing. Run scripts/test, or `quire model fetch smollm2-135m`, once.";
    return nullptr;
  }
  auto files = OpenModel(path);
  if (files.ok()) return *std::move(files);
  ADD_FAILURE() << files.status();
  return nullptr;
}

class SmolLm2 : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    files_ = OpenSmolLm2();
    ASSERT_NE(files_, nullptr);
    auto backend =
        kernels::NewCpuBackend({.isa = GetParam().isa, .threads = kernels::cpu::UsableCpus()});
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
  }

  std::unique_ptr<PagedModel> Load(std::int32_t num_sequences, std::int32_t max_tokens) {
    auto model = PagedModel::Create(*files_, *backend_,
                                    {.decoder = {.weight_dtype = GetParam().path.weights,
                                                 .max_batched_tokens = kChunk,
                                                 .max_logits_rows = 64,
                                                 .max_positions = 2048},
                                     .kv_dtype = GetParam().path.kv,
                                     .num_sequences = num_sequences,
                                     .max_tokens = max_tokens});
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }

  const Limits& limits() const { return GetParam().path.limits; }

  std::unique_ptr<ModelFiles> files_;
  std::unique_ptr<kernels::Backend> backend_;
};

// Computes all of `ids` but what comes after the last full chunk, which is returned.
std::vector<TokenId> Prefill(PagedModel& model, std::int32_t sequence,
                             const std::vector<TokenId>& ids) {
  std::size_t begin = 0;
  for (; ids.size() - begin > kChunk; begin += kChunk) {
    const auto from = ids.begin() + static_cast<std::ptrdiff_t>(begin);
    model.Step({{.sequence = sequence, .ids = {from, from + kChunk}}}, {});
  }
  return {ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end()};
}

// What one run produced for a prompt.
struct Answer {
  std::vector<TokenId> ids;
  std::vector<kernels::SampleResult> results;
};

std::vector<Answer> RunGreedy(PagedModel& model, const std::vector<GreedyPrompt>& prompts) {
  // More than the ten compared, so that those are found even where ranks have changed a little.
  const kernels::SampleRow greedy{.num_logprobs = 40};
  std::vector<Answer> answers(prompts.size());
  const auto append = [](Answer& answer, kernels::SampleResult result) {
    EXPECT_TRUE(result.ok);
    answer.ids.push_back(result.token);
    answer.results.push_back(std::move(result));
  };
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto sequence = static_cast<std::int32_t>(i);
    const auto rest = Prefill(model, sequence, prompts[i].ids);
    append(answers[i], model.Step({{.sequence = sequence, .ids = rest}}, greedy)[0]);
  }
  for (std::size_t step = 1; step < prompts[0].greedy_ids.size(); ++step) {
    std::vector<SequenceChunk> chunks;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      chunks.push_back({.sequence = static_cast<std::int32_t>(i), .ids = {answers[i].ids.back()}});
    }
    auto results = model.Step(chunks, greedy);
    for (std::size_t i = 0; i < prompts.size(); ++i) append(answers[i], std::move(results[i]));
  }
  return answers;
}

// Index of the first token that differs from the record; the record's length if none does.
std::size_t FirstDifference(const Answer& answer, const GreedyPrompt& prompt) {
  return static_cast<std::size_t>(
      std::mismatch(answer.ids.begin(), answer.ids.end(), prompt.greedy_ids.begin()).first -
      answer.ids.begin());
}

// Differences of the recorded best log-probabilities at `position`, appended to `errors`.
void CompareTop(const kernels::SampleResult& result, const fakes::TopLogprobs& recorded,
                std::vector<double>& errors) {
  for (std::size_t k = 0; k < recorded.ids.size(); ++k) {
    const auto found =
        std::find_if(result.top.begin(), result.top.end(),
                     [&](const kernels::TokenLogprob& t) { return t.token == recorded.ids[k]; });
    ASSERT_NE(found, result.top.end()) << "token " << recorded.ids[k] << " is far from the top";
    errors.push_back(std::abs(found->logprob - recorded.logprobs[k]));
  }
}

TEST_P(SmolLm2, GreedyTokensAndTopLogprobsMatchHuggingFace) {
  const auto prompts = fakes::LoadGreedyPrompts();
  ASSERT_EQ(prompts.size(), 16U);
  const auto model = Load(16, 1600);
  const auto answers = RunGreedy(*model, prompts);
  int equal_prompts = 0;
  std::vector<double> top_errors, greedy_errors;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    SCOPED_TRACE(prompts[i].name);
    const std::size_t first = FirstDifference(answers[i], prompts[i]);
    if (first == prompts[i].greedy_ids.size()) {
      ++equal_prompts;
    } else {
      EXPECT_LT(prompts[i].margins[first], limits().near_tie)
          << "token " << first << " is " << answers[i].ids[first] << " instead of "
          << prompts[i].greedy_ids[first];
    }
    // Position p is comparable while the tokens before it agree.
    for (std::size_t p = 0; p < prompts[i].top.size() && p <= first; ++p) {
      CompareTop(answers[i].results[p], prompts[i].top[p], top_errors);
    }
    for (std::size_t p = 0; p < first; ++p) {
      greedy_errors.push_back(
          std::abs(answers[i].results[p].logprob - prompts[i].greedy_logprobs[p]));
    }
  }
  double sum = 0;
  for (const double error : top_errors) sum += error;
  const double mean = sum / static_cast<double>(top_errors.size());
  const double max = *std::max_element(top_errors.begin(), top_errors.end());
  RecordProperty("top_mean", std::to_string(mean));
  RecordProperty("top_max", std::to_string(max));
  std::printf("equal prompts %d, top-10 |difference| mean %.2e max %.2e, greedy max %.2e\n",
              equal_prompts, mean, max,
              *std::max_element(greedy_errors.begin(), greedy_errors.end()));
  EXPECT_GE(equal_prompts, limits().min_equal_prompts);
  EXPECT_LE(mean, limits().top_mean);
  EXPECT_LE(max, limits().top_max);
  EXPECT_THAT(greedy_errors, testing::Each(testing::Le(limits().top_max)));
}

// Sum of -log p of ids[1:], each given those before it.
double SumNll(PagedModel& model, const std::vector<TokenId>& ids) {
  model.Reset(0);
  double sum = 0;
  for (std::size_t begin = 0; begin + 1 < ids.size(); begin += kChunk) {
    const std::size_t end = std::min(begin + kChunk, ids.size() - 1);
    const auto at = [&](std::size_t i) { return ids.begin() + static_cast<std::ptrdiff_t>(i); };
    const std::vector<TokenId> next(at(begin + 1), at(end + 1));
    const auto results =
        model.Score({{.sequence = 0, .ids = {at(begin), at(end)}, .all_logits = true}}, next);
    for (const kernels::SampleResult& result : results) sum -= result.logprob;
  }
  return sum;
}

TEST_P(SmolLm2, PerplexityMatchesHuggingFace) {
  const auto data = fakes::LoadPerplexity();
  ASSERT_EQ(data.windows.size(), 2U);
  const auto model = Load(1, 1600);
  for (const fakes::PerplexityWindow& expected : data.windows) {
    double sum = 0;
    int predicted = 0;
    for (std::size_t begin = 0; begin < data.ids.size();) {
      const std::size_t end =
          std::min(begin + static_cast<std::size_t>(expected.window), data.ids.size());
      sum += SumNll(*model, {data.ids.begin() + static_cast<std::ptrdiff_t>(begin),
                             data.ids.begin() + static_cast<std::ptrdiff_t>(end)});
      predicted += static_cast<int>(end - begin) - 1;
      begin = end;
    }
    ASSERT_EQ(predicted, expected.predicted);
    const double mean = sum / predicted;
    std::printf("window %d: mean NLL %.6f, recorded %.6f, perplexity off by %.4f %%\n",
                expected.window, mean, expected.mean_nll,
                100 * (std::exp(mean - expected.mean_nll) - 1));
    EXPECT_NEAR(mean, expected.mean_nll, limits().mean_nll);
  }
}

TEST_P(SmolLm2, PromptLogprobsMatchHuggingFace) {
  const auto prompts = fakes::LoadPromptLogprobs();
  ASSERT_FALSE(prompts.empty());
  const auto model = Load(1, kChunk);
  const bool is_exact = limits().near_tie <= 1e-3;
  for (const fakes::PromptLogprobs& prompt : prompts) {
    SCOPED_TRACE(prompt.name);
    model->Reset(0);
    const std::vector<TokenId> next(prompt.ids.begin() + 1, prompt.ids.end());
    const auto results = model->Score(
        {{.sequence = 0, .ids = {prompt.ids.begin(), prompt.ids.end() - 1}, .all_logits = true}},
        next);
    for (std::size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(results[i].token, next[i]);
      EXPECT_NEAR(results[i].logprob, *prompt.logprobs[i + 1], limits().top_max) << i;
      // Far down the list neighbours are closer than rounding.
      const int rank = *prompt.ranks[i + 1];
      if (is_exact) {
        EXPECT_NEAR(results[i].rank, rank, 1 + rank / 100) << i;
      }
    }
  }
}

// The oracle itself, on the prompts short enough for it.
TEST(SmolLm2Reference, ShortPromptsMatchHuggingFace) {
  const auto files = OpenSmolLm2();
  ASSERT_NE(files, nullptr);
  const auto backend = kernels::NewReferenceBackend();
  const auto model = PagedModel::Create(
      *files, *backend,
      {.decoder = {.max_batched_tokens = kChunk, .max_positions = 64}, .num_sequences = 16});
  ASSERT_TRUE(model.ok()) << model.status();
  auto prompts = fakes::LoadGreedyPrompts();
  std::erase_if(prompts, [](const GreedyPrompt& p) { return p.ids.size() > 17; });
  ASSERT_EQ(prompts.size(), 4U);
  for (GreedyPrompt& prompt : prompts) prompt.greedy_ids.resize(prompt.top.size());
  const auto answers = RunGreedy(**model, prompts);
  std::vector<double> errors;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(answers[i].ids, prompts[i].greedy_ids) << prompts[i].name;
    for (std::size_t p = 0; p < prompts[i].top.size(); ++p) {
      CompareTop(answers[i].results[p], prompts[i].top[p], errors);
    }
  }
  EXPECT_EQ(errors.size(), 4U * 8U * 10U);
  EXPECT_LE(*std::max_element(errors.begin(), errors.end()), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(, SmolLm2, testing::ValuesIn(AllCases()), [](const auto& param) {
  return param.param.path.name + "_" + param.param.isa;
});

}  // namespace
}  // namespace quire::engine::model
