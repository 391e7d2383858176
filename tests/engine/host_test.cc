// StartEngine on the toy checkpoint: what it decides, what it refuses, and that the engine answers.
#include "engine/host.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_features.h"
#include "tests/fakes/collecting_sink.h"
#include "tests/fakes/file_writers.h"
#include "tests/fakes/toy_model.h"

namespace quire::engine {
namespace {

using fakes::ToyModel;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// The one branch of an answer.
struct Reply {
  absl::Status status;
  std::vector<TokenId> ids = {};
  std::string text = {};
  std::optional<Finished> finished = {};
};

class HostTest : public testing::Test {
 protected:
  HostTest() {
    options_.model_path = toy_.WriteGguf(folder_.path());
    options_.threads = 1;
    options_.kv_cache_bytes = 1 << 20;
    options_.engine.scheduler.max_num_seqs = 4;
    options_.engine.scheduler.max_num_batched_tokens = 256;
  }

  std::unique_ptr<EngineHost> Start() {
    auto host = StartEngine(options_, &sink_, {});
    EXPECT_TRUE(host.ok()) << host.status();
    return host.ok() ? *std::move(host) : nullptr;
  }
  std::string Error() {
    const auto host = StartEngine(options_, &sink_, {});
    EXPECT_FALSE(host.ok());
    return std::string(host.status().message());
  }
  Reply Ask(EngineHost& host, std::vector<TokenId> prompt, int max_tokens) {
    GenerationRequest request;
    request.prompt = TokenPrompt{std::move(prompt)};
    request.sampling.temperature = 0;
    request.sampling.max_tokens = max_tokens;
    auto stream = host.engine->Submit(std::move(request));
    if (!stream.ok()) return {.status = stream.status()};
    fakes::Answer answer = sink_.Wait(*stream);
    fakes::Answer::Branch& branch = answer.branches[0];
    return {.status = answer.terminal.value_or(absl::UnknownError("no end")),
            .ids = branch.token_ids,
            .text = branch.text,
            .finished = branch.finished};
  }

  ToyModel toy_;
  fakes::TempFolder folder_;
  fakes::CollectingSink sink_;
  HostOptions options_;
};

TEST_F(HostTest, ReportsWhatItDecided) {
  const auto host = Start();
  const HostReport& report = host->report;
  EXPECT_EQ(report.model_name, "Toy");
  EXPECT_EQ(report.model_path, options_.model_path);
  EXPECT_EQ(report.model_format, "gguf");
  EXPECT_EQ(report.weight_format, "f32");
  EXPECT_EQ(report.backend, "cpu");
  EXPECT_EQ(report.isa, kernels::cpu::IsaName(kernels::cpu::SupportedIsaLevels().back()));
  EXPECT_EQ(report.threads, 1);
  EXPECT_EQ(report.kv_dtype, "f16");
  // 2 (K and V) x 2 layers x 2 heads x 16 x 2 bytes.
  EXPECT_EQ(report.kv_bytes_per_token, 256);
  EXPECT_EQ(report.block_size, 16);
  EXPECT_EQ(report.num_blocks, (1 << 20) / (256 * 16));
  EXPECT_EQ(report.kv_bytes, 1 << 20);
  EXPECT_EQ(report.max_model_len, 2048);
  EXPECT_EQ(report.chat_template.empty(), false);
  EXPECT_GE(report.weight_bytes, host->config.num_parameters * 4);
  EXPECT_GT(report.activation_bytes, 0);
  EXPECT_THAT(report.warnings, IsEmpty());
  std::vector<std::string> stages;
  for (const auto& [stage, seconds] : report.stage_seconds) {
    stages.push_back(stage);
    EXPECT_GE(seconds, 0);
  }
  EXPECT_THAT(stages, ElementsAre("open model", "load tokenizer", "start backend", "pack weights",
                                  "reserve KV blocks", "start engine"));
  EXPECT_EQ(host->engine->vocab_size(), 300);
  EXPECT_EQ(host->engine->kv_geometry().bytes_per_token(), 256);
}

TEST_F(HostTest, ProgressEndsAtItsTotal) {
  std::int64_t done = 0, total = 0;
  std::vector<std::string> stages;
  auto host = StartEngine(options_, &sink_, [&](const std::string& stage, auto d, auto t) {
    if (stages.empty() || stages.back() != stage) stages.push_back(stage);
    if (stage == "pack weights" && t > 1) {
      EXPECT_GE(d, done);
      done = d;
      total = t;
    }
  });
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_EQ(total, (*host)->config.num_parameters * 4);
  EXPECT_EQ(done, total);
  EXPECT_EQ(stages.size(), 6U);
}

TEST_F(HostTest, AnswersAlikeFromGgufFolderAndReferenceBackend) {
  const std::vector<TokenId> prompt = {70, 80, 90, 100};
  const auto from_gguf = Ask(*Start(), prompt, 20);
  ASSERT_TRUE(from_gguf.status.ok()) << from_gguf.status;
  EXPECT_EQ(from_gguf.ids.size(), 20U);
  options_.model_path = toy_.WriteHuggingFace(folder_.path());
  EXPECT_EQ(Ask(*Start(), prompt, 20).ids, from_gguf.ids);
  options_.backend = "reference";
  const auto host = Start();
  EXPECT_EQ(host->report.backend, "reference");
  EXPECT_EQ(Ask(*host, prompt, 20).ids, from_gguf.ids);
}

TEST_F(HostTest, ChainFollowsItsSequence) {
  ToyModel chain({.extra_tokens = {"DEF", "G", " any"}});
  chain.MakeChain(
      {ToyModel::Byte('a'), chain.Extra(0), chain.Extra(2), chain.Extra(1), fakes::kToyImEnd});
  options_.model_path = chain.WriteGguf(folder_.path());
  const auto answer = Ask(*Start(), {ToyModel::Byte('x'), ToyModel::Byte('a')}, 50);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.text, "DEF anyG");
  ASSERT_TRUE(answer.finished.has_value());
  EXPECT_EQ(answer.finished->reason, FinishReason::kStop);
  EXPECT_EQ(answer.finished->matched_stop.eos_token_id, fakes::kToyImEnd);
}

TEST_F(HostTest, C84_StopsAtEveryEosId) {
  ToyModel chain({.eos_token_ids = {2}});
  chain.MakeChain({ToyModel::Byte('a'), ToyModel::Byte('b'), 7, ToyModel::Byte('c')});
  options_.model_path = chain.WriteHuggingFace(folder_.path());
  EXPECT_EQ(Ask(*Start(), {ToyModel::Byte('a')}, 3).ids.size(), 3U);
  fakes::WriteFile(folder_.File("generation_config.json"), R"({"eos_token_id": [2, 7]})");
  const auto host = Start();
  EXPECT_THAT(host->engine->traits().eos_token_ids, ElementsAre(2, 7));
  const auto answer = Ask(*host, {ToyModel::Byte('a')}, 3);
  ASSERT_TRUE(answer.finished.has_value());
  EXPECT_EQ(answer.finished->reason, FinishReason::kStop);
  EXPECT_EQ(answer.finished->matched_stop.eos_token_id, 7);
}

TEST_F(HostTest, C84_EosOfTheTokenizerCounts) {
  ToyModel toy({.eos_token_ids = {fakes::kToyImEnd}});
  options_.model_path = toy.WriteHuggingFace(folder_.path());
  std::string config = toy.ConfigJson();
  config.replace(config.find("\"eos_token_id\""), 14, "\"unused\"");
  fakes::WriteFile(folder_.File("config.json"), config);
  EXPECT_THAT(Start()->engine->traits().eos_token_ids, ElementsAre(fakes::kToyImEnd));
}

TEST_F(HostTest, C76_WeightsOutliveTheFile) {
  const auto host = Start();
  const auto before = Ask(*host, {70, 80, 90}, 8);
  fakes::WriteFile(options_.model_path, "");
  EXPECT_EQ(Ask(*host, {70, 80, 90}, 8).ids, before.ids);
}

TEST_F(HostTest, C128_TooSmallBudgetsNameTheNumbers) {
  options_.kv_cache_bytes = 4095;
  EXPECT_THAT(Error(), AllOf(HasSubstr("4095 bytes"), HasSubstr("takes 4096 bytes"),
                             HasSubstr("works takes 4096"), HasSubstr("the weights take")));
  options_.kv_cache_bytes = 4096;
  EXPECT_EQ(Start()->report.num_blocks, 1);
  options_.block_size = 1;
  options_.kv_cache_bytes = 511;
  EXPECT_THAT(Error(), AllOf(HasSubstr("takes 256 bytes"), HasSubstr("works takes 512")));
}

TEST_F(HostTest, C128_TooFewBlocksAreRefused) {
  options_.kv_cache_bytes.reset();
  const auto error = [&](std::int64_t num_blocks, int block_size) {
    options_.num_blocks = num_blocks;
    options_.block_size = block_size;
    return Error();
  };
  EXPECT_THAT(error(0, 16), AllOf(HasSubstr("num-blocks"), HasSubstr("[1, ")));
  EXPECT_THAT(error(-5, 16), HasSubstr("got -5"));
  EXPECT_THAT(error(1, 1), AllOf(HasSubstr("[2, "), HasSubstr("block-size 1")));
  EXPECT_THAT(error(std::int64_t{1} << 40, 16), HasSubstr("1099511627776"));
  options_.block_size = 1;
  options_.num_blocks = 2;
  EXPECT_EQ(Ask(*Start(), {70}, 1).ids.size(), 1U);
}

TEST(DefaultKvBytes, C129_IsTheSmallerOfUseAndAQuarterOfMemory) {
  const KvGeometry geometry{.num_layers = 2,
                            .num_kv_heads = 2,
                            .k_dim = 16,
                            .v_dim = 16,
                            .block_size = 16,
                            .k_dtype = KvDtype::kF16,
                            .v_dtype = KvDtype::kF16};
  EXPECT_EQ(DefaultKvBytes(geometry, 4, 100, std::int64_t{1} << 40), 4 * 7 * 4096);
  EXPECT_EQ(DefaultKvBytes(geometry, 64, 8192, 1'000'000), 250'000);
}

TEST_F(HostTest, C129_ExplicitBlocksAreTakenAsTheyAre) {
  options_.kv_cache_bytes.reset();
  options_.num_blocks = 37;
  EXPECT_EQ(Start()->report.num_blocks, 37);
}

TEST_F(HostTest, C135_ContradictoryFlagsAreRefusedBeforeTheModelIsOpened) {
  options_.model_path = "/nonexistent";
  const auto error = [&](auto change) {
    const HostOptions before = options_;
    change();
    const std::string message = Error();
    options_ = before;
    EXPECT_THAT(message, Not(HasSubstr("/nonexistent")));
    return message;
  };
  for (const int size : {0, 3, 17, -16, 512}) {
    EXPECT_THAT(error([&] { options_.block_size = size; }),
                AllOf(HasSubstr("block-size"), HasSubstr("[1, 256]")));
  }
  EXPECT_THAT(error([&] { options_.threads = -1; }), HasSubstr("threads"));
  EXPECT_THAT(error([&] { options_.threads = 2000; }), HasSubstr("[1, 1024]"));
  EXPECT_THAT(error([&] { options_.num_blocks = 8; }), HasSubstr("cannot both"));
  EXPECT_THAT(error([&] { options_.kv_cache_bytes = 0; }), HasSubstr("kv-cache-memory"));
  EXPECT_THAT(error([&] { options_.max_model_len = 1; }), HasSubstr("max-model-len"));
  EXPECT_THAT(error([&] { options_.backend = "tpu"; }), HasSubstr("tpu"));
  EXPECT_THAT(error([&] { options_.engine.scheduler.max_num_seqs = 0; }),
              HasSubstr("max-num-seqs"));
  EXPECT_THAT(error([&] { options_.engine.scheduler.max_num_batched_tokens = 3; }),
              HasSubstr("max-num-batched-tokens"));
  EXPECT_THAT(error([&] { options_.model_path = ""; }), HasSubstr("model"));
  EXPECT_THAT(Error(), HasSubstr("/nonexistent"));
}

TEST_F(HostTest, RefusesALongerContextThanTheModels) {
  options_.max_model_len = 2049;
  EXPECT_THAT(Error(), AllOf(HasSubstr("max-model-len"), HasSubstr("2048"), HasSubstr("2049")));
  options_.max_model_len = 64;
  const auto host = Start();
  EXPECT_EQ(host->report.max_model_len, 64);
  EXPECT_EQ(host->engine->options().scheduler.max_model_len, 64);
}

TEST_F(HostTest, C131_ThreadsDefaultToTheUsableCpusAndMoreWarn) {
  const int usable = kernels::cpu::UsableCpus();
  options_.threads = 0;
  EXPECT_EQ(Start()->report.threads, usable);
  options_.threads = usable + 1;
  const auto host = Start();
  EXPECT_EQ(host->report.threads, usable + 1);
  EXPECT_THAT(host->report.warnings, ElementsAre(HasSubstr("threads")));
}

TEST_F(HostTest, ChoosesDtypes) {
  options_.weight_dtype = model::WeightDtype::kF32;
  EXPECT_EQ(Start()->report.kv_dtype, "f32");
  options_.kv_dtype = KvDtype::kF16;
  EXPECT_EQ(Start()->report.kv_dtype, "f16");
  options_.weight_dtype = model::WeightDtype::kBf16;
  EXPECT_EQ(Start()->report.weight_format, "bf16");
}

TEST_F(HostTest, AutoKeepsWhatTheFileStores) {
  options_.weight_dtype = model::WeightDtype::kAuto;
  for (const auto& [type, format] :
       {std::pair("Q4_1", "int4_g32"), std::pair("Q4_0", "int4_g32"), std::pair("Q8_0", "int8_g32"),
        std::pair("BF16", "bf16"), std::pair("F16", "f32")}) {
    ToyModel toy({.matrix_type = type});
    options_.model_path = toy.WriteGguf(folder_.path());
    const auto host = Start();
    EXPECT_EQ(host->report.weight_format, format);
    EXPECT_TRUE(Ask(*host, {70, 80}, 4).status.ok());
  }
}

TEST_F(HostTest, ChatTemplateMayBeNamedOrNotUnderstood) {
  options_.model_path = toy_.WriteHuggingFace(folder_.path());
  fakes::WriteFile(folder_.File("chat_template.jinja"), "{{ strange }}");
  const auto host = Start();
  EXPECT_EQ(host->report.chat_template, "none");
  EXPECT_THAT(host->report.warnings, ElementsAre(HasSubstr("chat is off")));
  options_.chat_template = "no such template";
  EXPECT_THAT(Error(), HasSubstr("no such template"));
  options_.chat_template = "chatml";
  EXPECT_EQ(Start()->report.chat_template, "chatml");
}

TEST_F(HostTest, AChatTemplateOfAnotherVocabularyIsRefused) {
  options_.chat_template = "llama3";
  EXPECT_EQ(Error(),
            "chat template llama3 needs the control token <|begin_of_text|>, which this model's "
            "vocabulary lacks");
}

TEST_F(HostTest, ADamagedScaleIsNamedByFileAndTensor) {
  ToyModel toy({.matrix_type = "Q8_0"});
  toy.tensor("embed").values[7 * 64] = 1e9F;  // Its scale has no f16.
  options_.model_path = toy.WriteGguf(folder_.path());
  EXPECT_THAT(Error(), testing::StartsWith(options_.model_path +
                                           ": tensor token_embd.weight: row 7: scale"));
}

TEST_F(HostTest, C136_WithoutTokenizerOnlyTokenIdsAreServed) {
  options_.model_path = toy_.WriteHuggingFace(folder_.path());
  std::filesystem::remove(folder_.File("tokenizer.json"));
  const auto host = Start();
  EXPECT_EQ(host->tokenizer, nullptr);
  EXPECT_THAT(host->report.warnings, ElementsAre(HasSubstr("token ids")));
  EXPECT_EQ(Ask(*host, {70, 80}, 4).ids.size(), 4U);
}

TEST_F(HostTest, C124_ActivationsBeyondHalfPrecision) {
  // An FFN row that pushes activations past 65,504 is nothing to f32 arithmetic; values past it in
  // an f16 cache are infinite there, which ends the request and never gives silent nonsense.
  const auto scale_row = [](std::vector<float>& matrix, std::size_t cols, float by) {
    for (std::size_t i = 0; i < cols; ++i) matrix[i] *= by;
  };
  scale_row(toy_.tensor("layers.0.up_proj").values, 64, 1e5F);
  options_.model_path = toy_.WriteGguf(folder_.path());
  for (const auto dtype : {model::WeightDtype::kF32, model::WeightDtype::kBf16}) {
    options_.weight_dtype = dtype;
    EXPECT_TRUE(Ask(*Start(), {70, 80}, 4).status.ok());
  }
  scale_row(toy_.tensor("layers.0.v_proj").values, 64, 1e6F);
  options_.model_path = toy_.WriteGguf(folder_.path());
  options_.kv_dtype = KvDtype::kF32;
  EXPECT_TRUE(Ask(*Start(), {70, 80}, 4).status.ok());
  options_.kv_dtype = KvDtype::kF16;
  EXPECT_EQ(Ask(*Start(), {70, 80}, 4).status.code(), absl::StatusCode::kInternal);
}

TEST_F(HostTest, C16_AWindowedModelNeedsNoMoreBlocksThanItsWindow) {
  const ToyModel windowed({.sliding_window = 24});
  options_.model_path = windowed.WriteHuggingFace(folder_.path());
  options_.engine.scheduler.max_prefill_tokens = 32;
  options_.kv_cache_bytes.reset();
  options_.num_blocks = 128;
  std::vector<TokenId> prompt;
  for (TokenId i = 0; i < 300; ++i) prompt.push_back(3 + i * 7 % 256);
  const Reply whole = Ask(*Start(), prompt, 60);
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  ASSERT_EQ(whole.ids.size(), 60U);

  // 360 tokens through a pool of 128.
  options_.num_blocks = 8;
  const auto host = Start();
  EXPECT_THAT(host->report.warnings, IsEmpty()) << "it holds any context";
  const Reply narrow = Ask(*host, prompt, 60);
  ASSERT_TRUE(narrow.status.ok()) << narrow.status;
  EXPECT_EQ(narrow.ids, whole.ids);
  EXPECT_EQ(narrow.finished->detail, "");
  EXPECT_LE(host->engine->stats()->blocks.peak_active, 6) << "(24 - 1 + 32) tokens, anywhere";
  // Again, from what is cached of it.
  EXPECT_EQ(Ask(*host, prompt, 60).ids, whole.ids);
}

TEST_F(HostTest, WarnsWhenThePoolIsSmallerThanOneContext) {
  options_.kv_cache_bytes.reset();
  options_.num_blocks = 127;
  EXPECT_THAT(Start()->report.warnings, ElementsAre(HasSubstr("max-model-len 2048")));
  options_.num_blocks = 128;
  EXPECT_THAT(Start()->report.warnings, IsEmpty());
}

TEST_F(HostTest, WarnsWhenTheShareOfSessionsIsNoBlock) {
  options_.kv_cache_bytes.reset();
  options_.num_blocks = 128;
  options_.engine.session_cache_share = 0.0078;
  EXPECT_THAT(Start()->report.warnings,
              ElementsAre(HasSubstr("--session-cache-share 0.0078 of 128 blocks")));
  for (const double share : {0.0, 1.0 / 128}) {
    options_.engine.session_cache_share = share;
    EXPECT_THAT(Start()->report.warnings, IsEmpty()) << share;
  }
}

TEST_F(HostTest, C60_NanWeightsFailOnlyTheRequestThatMeetsThem) {
  toy_.PoisonEmbedding(5);
  options_.model_path = toy_.WriteGguf(folder_.path());
  const auto host = Start();
  EXPECT_EQ(Ask(*host, {70, 5}, 4).status.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(Ask(*host, {70, 80}, 4).status.ok());
}

}  // namespace
}  // namespace quire::engine
