// Whole models, GGUF files and Hugging Face folders, made from the toy checkpoint and then spoiled
// in one place each.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/philox.h"
#include "engine/model/file.h"
#include "engine/model/llama_files.h"
#include "engine/model/model.h"
#include "engine/model/weight_names.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/fakes/file_writers.h"
#include "tests/fakes/toy_model.h"

namespace quire::engine::model {
namespace {

namespace fs = std::filesystem;
using fakes::BuildSafetensors;
using fakes::EncodeTensor;
using fakes::SafetensorsTensor;
using fakes::ToyModel;
using fakes::ToyTensor;
using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::string ReadAll(const std::string& path) {
  auto text = ReadTextFile(path, 1 << 30);
  EXPECT_TRUE(text.ok()) << text.status();
  return *std::move(text);
}

SafetensorsTensor Stored(const ToyTensor& tensor) {
  return {HuggingFaceTensorName(tensor.name), "F32", tensor.shape,
          EncodeTensor("F32", tensor.values)};
}

class OpenModelTest : public testing::Test {
 protected:
  OpenModelTest() { toy_.WriteHuggingFace(folder_.path()); }

  std::string Error(const std::string& path) {
    const auto opened = OpenModel(path);
    EXPECT_FALSE(opened.ok());
    return std::string(opened.status().message());
  }
  std::string Error() { return Error(folder_.path()); }
  std::unique_ptr<ModelFiles> Open() {
    auto opened = OpenModel(folder_.path());
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *std::move(opened) : nullptr;
  }

  void Write(std::string_view name, std::string_view content) {
    fakes::WriteFile(folder_.File(name), content);
  }
  // Rewrites config.json with some keys changed; null removes one.
  void ChangeConfig(const json& changes) {
    json config = json::parse(toy_.ConfigJson());
    config.merge_patch(changes);
    Write("config.json", config.dump());
  }
  // Rewrites model.safetensors after `change` has seen each tensor (false: leave it out).
  void ChangeTensors(const std::function<bool(SafetensorsTensor&)>& change,
                     const std::vector<SafetensorsTensor>& more = {}) {
    std::vector<SafetensorsTensor> tensors;
    for (const ToyTensor& tensor : toy_.tensors()) {
      SafetensorsTensor stored = Stored(tensor);
      if (change(stored)) tensors.push_back(stored);
    }
    tensors.insert(tensors.end(), more.begin(), more.end());
    Write("model.safetensors", BuildSafetensors(tensors));
  }

  ToyModel toy_;
  fakes::TempFolder folder_;
};

TEST_F(OpenModelTest, ReadsConfigOfAFolder) {
  const auto files = Open();
  const ModelConfig& config = files->config();
  EXPECT_EQ(files->format(), "safetensors");
  EXPECT_EQ(files->name(), fs::path(folder_.path()).filename().string());
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.intermediate_size, 128);
  EXPECT_EQ(config.num_heads, 4);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.vocab_size, 300);
  EXPECT_EQ(config.max_positions, 2048);
  EXPECT_EQ(config.rms_norm_epsilon, 1e-5F);
  EXPECT_EQ(config.rope.style, kernels::RopeStyle::kHalves);
  EXPECT_EQ(config.rope.rotary_dim, 16);
  EXPECT_FALSE(config.tie_embeddings);
  std::int64_t parameters = 0;
  for (const ToyTensor& tensor : toy_.tensors()) parameters += std::ssize(tensor.values);
  EXPECT_EQ(config.num_parameters, parameters);
  EXPECT_THAT(files->eos_token_ids(), ElementsAre(fakes::kToyImEnd));
  EXPECT_THAT(std::string(files->chat_template()), HasSubstr("<|im_start|>assistant"));
  EXPECT_THAT(files->warnings(), IsEmpty());
  EXPECT_EQ(files->tensors().size(), toy_.tensors().size());
}

TEST_F(OpenModelTest, ReadsConfigOfAGguf) {
  const auto opened = OpenModel(toy_.WriteGguf(folder_.path()));
  ASSERT_TRUE(opened.ok()) << opened.status();
  const ModelConfig& config = (*opened)->config();
  EXPECT_EQ((*opened)->format(), "gguf");
  EXPECT_EQ((*opened)->name(), "Toy");
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.rope.style, kernels::RopeStyle::kInterleaved);
  EXPECT_EQ(config.rope.base, 10000);
  EXPECT_EQ(config.vocab_size, 300);
  EXPECT_THAT((*opened)->eos_token_ids(), ElementsAre(fakes::kToyImEnd));
  EXPECT_EQ((*opened)->Stored("head")->type, "F32");
  EXPECT_EQ((*opened)->Stored("head")->name, "output.weight");
  EXPECT_EQ((*opened)->Stored("nothing"), nullptr);
  EXPECT_EQ((*opened)->Matrix("nothing").status().code(), absl::StatusCode::kNotFound);
  const auto vector = (*opened)->Vector("final_norm");
  ASSERT_TRUE(vector.ok());
  EXPECT_EQ(*vector, toy_.tensor(kFinalNorm).values);
}

TEST_F(OpenModelTest, TokenizersOfBothFormatsAgree) {
  const auto folder = Open();
  const auto gguf = OpenModel(toy_.WriteGguf(folder_.path()));
  ASSERT_TRUE(gguf.ok());
  const auto from_folder = folder->LoadTokenizer();
  const auto from_gguf = (*gguf)->LoadTokenizer();
  ASSERT_TRUE(from_folder.ok()) << from_folder.status();
  ASSERT_TRUE(from_gguf.ok()) << from_gguf.status();
  const std::string text = "The thing, in 2024: <|im_end|> naïve\n";
  for (const bool special : {false, true}) {
    const auto a = (*from_folder)->Encode(text, {.parse_special = special});
    const auto b = (*from_gguf)->Encode(text, {.parse_special = special});
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(*a, *b);
    EXPECT_EQ(std::count(a->begin(), a->end(), fakes::kToyImEnd), special ? 1 : 0);
    EXPECT_EQ(text::Decode(**from_folder, *a, false), text);
  }
  EXPECT_EQ((*from_folder)->vocab_size(), 300);
  EXPECT_EQ((*from_folder)->eos_id(), fakes::kToyImEnd);
}

TEST_F(OpenModelTest, C77_ShardNamesMustStayInTheFolder) {
  fakes::TempFolder outside;
  fs::copy_file(folder_.File("model.safetensors"), outside.File("x.safetensors"));
  const std::string up = "../" + fs::path(outside.path()).filename().string() + "/x.safetensors";
  for (const std::string& name :
       {up, outside.File("x.safetensors"), std::string("sub/../model.safetensors"),
        std::string("/etc/passwd"), std::string(".."), std::string("."), std::string(),
        std::string("a\\b"), std::string("model.safetensors\0x", 19)}) {
    Write("model.safetensors.index.json",
          json({{"weight_map", {{"model.norm.weight", name}}}}).dump());
    EXPECT_THAT(Error(),
                AllOf(HasSubstr("weight_map.model.norm.weight"), HasSubstr("plain file name")));
  }
}

TEST_F(OpenModelTest, C77_SymbolicLinksAreFollowed) {
  // As the Hugging Face cache lays out its snapshots.
  fakes::TempFolder blobs;
  fs::rename(folder_.File("model.safetensors"), blobs.File("blob"));
  fs::create_symlink(blobs.File("blob"), folder_.File("model.safetensors"));
  Open();
}

// The toy's tensors in two shards with their index; returns the index's JSON.
json WriteShards(ToyModel& toy, const fakes::TempFolder& folder) {
  std::vector<SafetensorsTensor> shards[2];
  json map = json::object();
  for (std::size_t i = 0; i < toy.tensors().size(); ++i) {
    shards[i % 2].push_back(Stored(toy.tensors()[i]));
    map[shards[i % 2].back().name] = i % 2 == 0 ? "a.safetensors" : "b.safetensors";
  }
  fakes::WriteFile(folder.File("a.safetensors"), BuildSafetensors(shards[0]));
  fakes::WriteFile(folder.File("b.safetensors"), BuildSafetensors(shards[1]));
  const json index = {{"metadata", json::object()}, {"weight_map", map}};
  fakes::WriteFile(folder.File("model.safetensors.index.json"), index.dump());
  return index;
}

TEST_F(OpenModelTest, C78_OnlyIndexedFilesAreRead) {
  WriteShards(toy_, folder_);
  // Strays of the same names but other numbers.
  ChangeTensors([](SafetensorsTensor& t) {
    t.bytes.assign(t.bytes.size(), '\x3F');
    return true;
  });
  fs::copy_file(folder_.File("model.safetensors"), folder_.File("stray.safetensors"));
  const auto files = Open();
  const auto gain = files->Vector("final_norm");
  ASSERT_TRUE(gain.ok());
  EXPECT_EQ(*gain, toy_.tensor(kFinalNorm).values);
  EXPECT_THAT(files->warnings(), ElementsAre(HasSubstr("model.safetensors: ignored")));
}

TEST_F(OpenModelTest, C78_TensorInTwoShardsIsRefused) {
  WriteShards(toy_, folder_);
  std::vector<SafetensorsTensor> second;
  for (std::size_t i = 1; i < toy_.tensors().size(); i += 2) {
    second.push_back(Stored(toy_.tensors()[i]));
  }
  second.push_back(Stored(toy_.tensor(kEmbed)));
  Write("b.safetensors", BuildSafetensors(second));
  EXPECT_THAT(Error(), AllOf(HasSubstr("b.safetensors"), HasSubstr("model.embed_tokens.weight"),
                             HasSubstr("also in a.safetensors")));
}

TEST_F(OpenModelTest, IndexMustAgreeWithTheShards) {
  json index = WriteShards(toy_, folder_);
  index["weight_map"]["model.norm.weight"] = "a.safetensors";
  Write("model.safetensors.index.json", index.dump());
  EXPECT_THAT(Error(), AllOf(HasSubstr("model.norm.weight"), HasSubstr("a.safetensors")));
  index["weight_map"]["model.norm.weight"] = "gone.safetensors";
  Write("model.safetensors.index.json", index.dump());
  EXPECT_THAT(Error(), HasSubstr("gone.safetensors"));
  Write("model.safetensors.index.json", "{}");
  EXPECT_THAT(Error(), HasSubstr("weight_map"));
}

TEST_F(OpenModelTest, C79_MissingTensorsAreListed) {
  ChangeTensors([](SafetensorsTensor& t) {
    return t.name != "model.layers.1.input_layernorm.weight" && t.name != "model.norm.weight";
  });
  EXPECT_THAT(Error(), AllOf(HasSubstr("model.layers.1.input_layernorm.weight is missing"),
                             HasSubstr("model.norm.weight is missing"), HasSubstr("2 of")));
}

TEST_F(OpenModelTest, C79_RenamedTensorIsMissing) {
  ChangeTensors([](SafetensorsTensor& t) {
    if (t.name == "model.layers.0.mlp.up_proj.weight") t.name = "model.layers.0.mlp.upp.weight";
    return true;
  });
  EXPECT_THAT(Error(), HasSubstr("model.layers.0.mlp.up_proj.weight is missing"));
}

TEST_F(OpenModelTest, C79_WrongShapesAreListed) {
  ChangeTensors([](SafetensorsTensor& t) {
    if (t.name == "model.layers.0.mlp.down_proj.weight") t.shape = {128, 64};
    if (t.name == "model.layers.1.self_attn.k_proj.weight") t.shape = {16, 128};
    return true;
  });
  EXPECT_THAT(Error(), AllOf(HasSubstr("down_proj.weight has shape [128, 64] instead of [64, 128]"),
                             HasSubstr("k_proj.weight has shape [16, 128] instead of [32, 64]")));
}

TEST_F(OpenModelTest, C79_MissingAndMisshapenTensorsOfAGgufAreListed) {
  toy_.tensor("layers.1.v_proj").shape = {64, 32};
  toy_.tensor("layers.0.ffn_norm").name = "layers.0.unknown";
  EXPECT_THAT(Error(toy_.WriteGguf(folder_.path())),
              AllOf(HasSubstr("blk.1.attn_v.weight has shape [64, 32] instead of [32, 64]"),
                    HasSubstr("blk.0.ffn_norm.weight is missing")));
}

TEST_F(OpenModelTest, C79_UnknownTensorsAreWarnedAbout) {
  ChangeTensors([](SafetensorsTensor&) { return true; },
                {{"model.extra.weight", "F32", {1}, std::string(4, 0)},
                 {"model.position_ids", "I64", {1}, std::string(8, 0)}});
  EXPECT_THAT(Open()->warnings(),
              ElementsAre(AllOf(HasSubstr("model.extra.weight"), HasSubstr("model.position_ids"))));
}

TEST_F(OpenModelTest, BiasesAreRefusedByName) {
  ChangeTensors([](SafetensorsTensor&) { return true; },
                {{"model.layers.0.self_attn.q_proj.bias", "F32", {64}, std::string(256, 0)}});
  EXPECT_THAT(Error(), AllOf(HasSubstr("q_proj.bias"), HasSubstr("not supported")));
  toy_.WriteHuggingFace(folder_.path());
  ChangeConfig({{"attention_bias", true}});
  EXPECT_THAT(Error(), HasSubstr("attention_bias"));
  ChangeConfig({{"mlp_bias", true}});
  EXPECT_THAT(Error(), HasSubstr("mlp_bias"));
}

TEST_F(OpenModelTest, C80_TiedWithoutHead) {
  ToyModel tied({.tie_embeddings = true});
  tied.WriteHuggingFace(folder_.path());
  const auto files = Open();
  EXPECT_TRUE(files->config().tie_embeddings);
  EXPECT_EQ(files->Matrix("head").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(files->warnings(), IsEmpty());
}

TEST_F(OpenModelTest, C80_UntiedWithHead) {
  const auto files = Open();
  EXPECT_FALSE(files->config().tie_embeddings);
  EXPECT_TRUE(files->Matrix("head").ok());
}

TEST_F(OpenModelTest, C80_UntiedWithoutHeadIsRefused) {
  ChangeTensors([](SafetensorsTensor& t) { return t.name != "lm_head.weight"; });
  EXPECT_THAT(Error(), HasSubstr("lm_head.weight is missing"));
}

TEST_F(OpenModelTest, C80_TiedWithHeadUsesTheEmbedding) {
  ChangeConfig({{"tie_word_embeddings", true}});
  const auto different = Open();
  EXPECT_TRUE(different->config().tie_embeddings);
  EXPECT_FALSE(different->Matrix("head").ok());
  EXPECT_THAT(different->warnings(),
              ElementsAre(AllOf(HasSubstr("lm_head.weight is ignored"), HasSubstr("differs"))));
  // An equal copy is nothing to warn about.
  ChangeTensors([this](SafetensorsTensor& t) {
    if (t.name == "lm_head.weight") t.bytes = Stored(toy_.tensor(kEmbed)).bytes;
    return true;
  });
  EXPECT_THAT(Open()->warnings(), IsEmpty());
}

TEST_F(OpenModelTest, C80_GgufWithoutOutputIsTied) {
  ToyModel tied({.tie_embeddings = true});
  const auto files = OpenModel(tied.WriteGguf(folder_.path()));
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_TRUE((*files)->config().tie_embeddings);
}

TEST_F(OpenModelTest, C81_NeededTensorOfAnotherTypeIsRefusedByName) {
  ChangeTensors([](SafetensorsTensor& t) {
    if (t.name != "model.layers.0.self_attn.o_proj.weight") return true;
    t.dtype = "F64";
    t.bytes += t.bytes;
    return true;
  });
  EXPECT_THAT(Error(), AllOf(HasSubstr("o_proj.weight"), HasSubstr("F64")));
}

TEST_F(OpenModelTest, C81_TypesMayDifferBetweenTensors) {
  ChangeTensors([this](SafetensorsTensor& t) {
    for (const auto& [part, type] : {std::pair("q_proj", "F16"), std::pair("k_proj", "BF16")}) {
      if (!t.name.ends_with(std::string(part) + ".weight")) continue;
      const std::string layer = t.name.substr(13, 1);
      t.dtype = type;
      t.bytes = EncodeTensor(type, toy_.tensor("layers." + layer + "." + part).values);
    }
    return true;
  });
  const auto files = Open();
  EXPECT_EQ(files->Stored("layers.0.q_proj")->type, "F16");
  EXPECT_EQ(files->Stored("layers.1.k_proj")->type, "BF16");
}

TEST_F(OpenModelTest, C84_EosIdsAreTheUnionOfAllFiles) {
  ChangeConfig({{"eos_token_id", 2}});
  Write("generation_config.json", R"({"eos_token_id": [2, 7], "temperature": 0.5, "top_k": 40,
        "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.1, "do_sample": true})");
  const auto files = Open();
  EXPECT_THAT(files->eos_token_ids(), ElementsAre(2, 7));
  EXPECT_EQ(files->sampling_defaults().temperature, 0.5);
  EXPECT_EQ(files->sampling_defaults().top_k, 40);
  EXPECT_EQ(files->sampling_defaults().top_p, 0.9);
  EXPECT_EQ(files->sampling_defaults().min_p, 0.01);
  EXPECT_EQ(files->sampling_defaults().repetition_penalty, 1.1);
  // Three keys of a GGUF.
  ToyModel toy({.eos_token_ids = {2, 7, 9}});
  const auto gguf = OpenModel(toy.WriteGguf(folder_.path()));
  ASSERT_TRUE(gguf.ok());
  EXPECT_THAT((*gguf)->eos_token_ids(), ElementsAre(2, 7, 9));
}

TEST_F(OpenModelTest, C84_EosOnlyInTheTokenizerConfig) {
  ChangeConfig({{"eos_token_id", nullptr}});
  const auto files = Open();
  EXPECT_THAT(files->eos_token_ids(), IsEmpty());
  const auto tokenizer = files->LoadTokenizer();
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ((*tokenizer)->eos_id(), fakes::kToyImEnd);
}

TEST_F(OpenModelTest, EosIdsOutsideTheVocabularyAreWarnedAbout) {
  ChangeConfig({{"eos_token_id", {2, 300}}});
  const auto files = Open();
  EXPECT_THAT(files->eos_token_ids(), ElementsAre(2));
  EXPECT_THAT(files->warnings(), ElementsAre(HasSubstr("300")));
  for (const json& bad : {json(-1), json("2"), json(1.5), json::array({2, "x"})}) {
    ChangeConfig({{"eos_token_id", bad}});
    EXPECT_THAT(Error(), HasSubstr("eos_token_id"));
  }
}

TEST_F(OpenModelTest, C85_HeadDimMayBeStated) {
  ChangeConfig({{"head_dim", nullptr}});
  EXPECT_EQ(Open()->config().head_dim, 16);
  ChangeConfig({{"head_dim", nullptr}, {"num_attention_heads", 5}, {"num_key_value_heads", 5}});
  EXPECT_THAT(Error(), AllOf(HasSubstr("hidden_size 64"), HasSubstr("head_dim is missing")));
}

TEST_F(OpenModelTest, C120_BothSpellingsOfTheRopeType) {
  for (const char* key : {"rope_type", "type"}) {
    ChangeConfig({{"rope_scaling", {{key, "linear"}, {"factor", 2.0}}}});
    EXPECT_EQ(Open()->config().rope.scaling, RopeScaling::kLinear);
    EXPECT_EQ(Open()->config().rope.factor, 2);
    ChangeConfig({{"rope_scaling",
                   {{key, "llama3"},
                    {"factor", 8},
                    {"low_freq_factor", 1.5},
                    {"high_freq_factor", 5},
                    {"original_max_position_embeddings", 512}}}});
    const RopeConfig llama3 = Open()->config().rope;
    EXPECT_EQ(llama3.scaling, RopeScaling::kLlama3);
    EXPECT_EQ(llama3.low_frequency_factor, 1.5);
    EXPECT_EQ(llama3.high_frequency_factor, 5);
    EXPECT_EQ(llama3.original_max_positions, 512);
    ChangeConfig({{"rope_scaling", {{key, "yarn"}, {"factor", 4}, {"beta_fast", 16}}}});
    const RopeConfig yarn = Open()->config().rope;
    EXPECT_EQ(yarn.scaling, RopeScaling::kYarn);
    EXPECT_EQ(yarn.beta_fast, 16);
    EXPECT_EQ(yarn.original_max_positions, 2048);
    ChangeConfig({{"rope_scaling", {{key, "default"}}}});
    EXPECT_EQ(Open()->config().rope.scaling, RopeScaling::kNone);
  }
  // The layout of transformers 5.
  ChangeConfig({{"rope_theta", nullptr},
                {"rope_parameters", {{"rope_theta", 5000.0}, {"rope_type", "default"}}}});
  EXPECT_EQ(Open()->config().rope.base, 5000);
}

TEST_F(OpenModelTest, C120_C121_UnknownAndDynamicRopeTypesAreRefused) {
  for (const char* type : {"dynamic", "longrope", "su", "new"}) {
    ChangeConfig({{"rope_scaling", {{"rope_type", type}, {"factor", 2.0}}}});
    EXPECT_THAT(Error(), AllOf(HasSubstr("config.json"), HasSubstr(type)));
  }
  ChangeConfig({{"rope_scaling", {{"rope_type", "linear"}}}});
  EXPECT_THAT(Error(), HasSubstr("factor is missing"));
  ChangeConfig({{"rope_scaling", "linear"}});
  EXPECT_THAT(Error(), HasSubstr("rope_scaling"));
}

TEST_F(OpenModelTest, ConfigNumbersAreChecked) {
  const auto error = [&](const json& changes) {
    ChangeConfig(changes);
    return Error();
  };
  EXPECT_THAT(error({{"hidden_size", nullptr}}), HasSubstr("hidden_size is missing"));
  EXPECT_THAT(error({{"hidden_size", -64}}), HasSubstr("hidden_size"));
  EXPECT_THAT(error({{"hidden_size", "64"}}), HasSubstr("hidden_size"));
  EXPECT_THAT(error({{"hidden_size", 1e300}}), HasSubstr("hidden_size"));
  EXPECT_THAT(error({{"num_hidden_layers", 0}}), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(error({{"num_hidden_layers", 18446744073709551615U}}),
              HasSubstr("num_hidden_layers"));
  EXPECT_THAT(error({{"num_key_value_heads", 3}}), HasSubstr("multiple"));
  EXPECT_THAT(error({{"head_dim", 15}}), HasSubstr("even"));
  EXPECT_THAT(error({{"rms_norm_eps", 0}}), HasSubstr("rms_norm_eps"));
  EXPECT_THAT(error({{"rope_theta", -1}}), HasSubstr("rope base"));
  EXPECT_THAT(error({{"hidden_act", "relu"}}), HasSubstr("relu"));
  EXPECT_THAT(error({{"partial_rotary_factor", 0.5}}), HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(error({{"quantization_config", {{"bits", 4}}}}), HasSubstr("quantization_config"));
}

TEST_F(OpenModelTest, C136_NeededFilesAreNamed) {
  const auto without = [&](const char* name) {
    fs::rename(folder_.File(name), folder_.File("hidden"));
    std::string error;
    const auto opened = OpenModel(folder_.path());
    if (!opened.ok()) error = std::string(opened.status().message());
    fs::rename(folder_.File("hidden"), folder_.File(name));
    return error;
  };
  EXPECT_THAT(without("config.json"), HasSubstr("config.json"));
  EXPECT_THAT(without("model.safetensors"), HasSubstr("model.safetensors"));
  EXPECT_EQ(without("tokenizer.json"), "");
  EXPECT_EQ(without("tokenizer_config.json"), "");
  fakes::TempFolder empty;
  EXPECT_THAT(Error(empty.path()), HasSubstr("config.json"));
  EXPECT_THAT(Error(empty.File("nothing")), HasSubstr("no such model"));
}

TEST_F(OpenModelTest, C136_FolderWithoutTokenizerHasNone) {
  fs::remove(folder_.File("tokenizer.json"));
  const auto tokenizer = Open()->LoadTokenizer();
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(*tokenizer, nullptr);
}

TEST_F(OpenModelTest, C136_OtherArchitecturesAreRefusedByName) {
  ChangeConfig({{"architectures", {"GemmaForCausalLM"}}, {"model_type", "gemma"}});
  EXPECT_THAT(Error(), HasSubstr("GemmaForCausalLM"));
  ChangeConfig({{"architectures", nullptr}, {"model_type", "gpt2"}});
  EXPECT_THAT(Error(), HasSubstr("gpt2"));
  ChangeConfig({{"architectures", {"MistralForCausalLM"}}, {"sliding_window", 128}});
  EXPECT_EQ(Open()->config().sliding_window, 128);
  const std::string path = folder_.File("other.gguf");
  fakes::WriteFile(path, fakes::GgufWriter().Text("general.architecture", "qwen3").Build());
  EXPECT_THAT(Error(path), HasSubstr("qwen3"));
}

TEST_F(OpenModelTest, C136_OddPathsWork) {
  const std::string odd = folder_.File("my models ñ 模型");
  fs::create_directory(odd);
  EXPECT_TRUE(OpenModel(toy_.WriteHuggingFace(odd)).ok());
  EXPECT_TRUE(OpenModel(odd + "/").ok());
  EXPECT_EQ((*OpenModel(odd + "/"))->name(), "my models ñ 模型");
  EXPECT_TRUE(OpenModel(toy_.WriteGguf(odd)).ok());
}

TEST_F(OpenModelTest, SamplingDefaultsThatNoRequestCouldUseAreRefused) {
  Write("generation_config.json", R"({"temperature": -1})");
  EXPECT_THAT(Error(), AllOf(HasSubstr("sampling defaults"), HasSubstr("temperature")));
  Write("generation_config.json", R"({"repetition_penalty": 0})");
  EXPECT_THAT(Error(), HasSubstr("repetition_penalty"));
}

TEST_F(OpenModelTest, DeeplyNestedEosIdsAreRefused) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  Write("generation_config.json", "{\"eos_token_id\": " + deep + "}");
  EXPECT_THAT(Error(), AllOf(HasSubstr("generation_config.json"), HasSubstr("eos_token_id")));
}

TEST_F(OpenModelTest, C136_ATokenizerWithoutMergesIsRefused) {
  const std::string path = toy_.WriteGguf(folder_.path());
  std::string bytes;
  {
    std::ifstream file(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  const std::string key = "tokenizer.ggml.merges";
  ASSERT_NE(bytes.find(key), std::string::npos);
  bytes.replace(bytes.find(key), key.size(), "tokenizer.ggml.mergez");
  std::ofstream(path, std::ios::binary) << bytes;
  const auto files = OpenModel(path);
  ASSERT_TRUE(files.ok()) << files.status();
  const auto tokenizer = (*files)->LoadTokenizer();
  EXPECT_THAT(tokenizer.status().message(), HasSubstr("tokenizer.ggml.merges is missing"));
}

TEST_F(OpenModelTest, JsonFilesThatAreNotJsonAreNamed) {
  for (const char* name : {"config.json", "generation_config.json"}) {
    Write(name, "{\"a\": ");
    EXPECT_THAT(Error(), HasSubstr(std::string(name) + ": not JSON at byte 7"));
    Write(name, "[1]");
    EXPECT_THAT(Error(), HasSubstr("not a JSON object"));
    toy_.WriteHuggingFace(folder_.path());
  }
}

TEST_F(OpenModelTest, ChatTemplateOfItsOwnFileComesFirst) {
  Write("chat_template.jinja", "from the file");
  EXPECT_EQ(Open()->chat_template(), "from the file");
  fs::remove(folder_.File("chat_template.jinja"));
  Write("tokenizer_config.json",
        R"({"chat_template": [{"name": "tool_use", "template": "x"},
                              {"name": "default", "template": "the default"}]})");
  EXPECT_EQ(Open()->chat_template(), "the default");
  Write("tokenizer_config.json", R"({"chat_template": 7})");
  EXPECT_THAT(Error(), HasSubstr("chat_template"));
  Write("tokenizer_config.json", "{}");
  EXPECT_EQ(Open()->chat_template(), "");
}

TEST_F(OpenModelTest, GgufKeysAreChecked) {
  const auto error = [&](const fakes::GgufWriter& writer) {
    const std::string path = folder_.File("bad.gguf");
    fakes::WriteFile(path, writer.Build());
    return Error(path);
  };
  const auto base = [] { return fakes::GgufWriter().Text("general.architecture", "llama"); };
  EXPECT_THAT(error(fakes::GgufWriter()), HasSubstr("general.architecture"));
  EXPECT_THAT(error(base()), HasSubstr("llama.block_count is missing"));
  EXPECT_THAT(error(base().Text("llama.block_count", "two")), HasSubstr("llama.block_count"));
  EXPECT_THAT(error(base().U32("llama.block_count", 0)), HasSubstr("llama.block_count"));
  EXPECT_THAT(error(base().U32("llama.block_count", 1U << 31U)), HasSubstr("llama.block_count"));
}

// The toy's GGUF keys with some more.
TEST_F(OpenModelTest, GgufRopeScaling) {
  const auto open = [&](const std::function<void(fakes::GgufWriter&)>& more) {
    fakes::GgufWriter writer;
    writer.Text("general.architecture", "llama")
        .U32("llama.block_count", 1)
        .U32("llama.context_length", 64)
        .U32("llama.embedding_length", 32)
        .U32("llama.feed_forward_length", 32)
        .U32("llama.attention.head_count", 2)
        .F32("llama.attention.layer_norm_rms_epsilon", 1e-5F);
    more(writer);
    ModelConfig config;
    config.num_layers = 1;
    config.hidden_size = config.intermediate_size = 32;
    config.num_heads = config.num_kv_heads = 2;
    config.head_dim = 16;
    config.vocab_size = 8;
    for (const ExpectedTensor& tensor : ExpectedTensors(config)) {
      const std::size_t elements = static_cast<std::size_t>(*CheckedElements(tensor.shape));
      writer.Tensor(GgufTensorName(tensor.name), {tensor.shape.begin(), tensor.shape.end()}, "F32",
                    std::string(elements * 4, '\0'));
    }
    const std::string path = folder_.File("rope.gguf");
    fakes::WriteFile(path, writer.Build());
    return OpenModel(path);
  };
  const auto plain = open([](auto&) {});
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ((*plain)->config().rope.scaling, RopeScaling::kNone);
  EXPECT_EQ((*plain)->config().num_kv_heads, 2);
  EXPECT_EQ((*plain)->config().vocab_size, 8);

  const auto linear = open([](auto& writer) {
    writer.Text("llama.rope.scaling.type", "linear").F32("llama.rope.scaling.factor", 4);
  });
  ASSERT_TRUE(linear.ok()) << linear.status();
  EXPECT_EQ((*linear)->config().rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ((*linear)->config().rope.factor, 4);

  const auto factors = open([](auto& writer) {
    writer.Tensor("rope_freqs.weight", {8}, "F32",
                  EncodeTensor("F32", std::vector<float>{1, 1, 1, 1, 2, 4, 8, 8}));
  });
  ASSERT_TRUE(factors.ok()) << factors.status();
  EXPECT_THAT((*factors)->config().rope.frequency_factors, ElementsAre(1, 1, 1, 1, 2, 4, 8, 8));
  EXPECT_THAT((*factors)->warnings(), IsEmpty());

  EXPECT_THAT(
      std::string(open([](auto& writer) { writer.Text("llama.rope.scaling.type", "longrope"); })
                      .status()
                      .message()),
      HasSubstr("longrope"));
  EXPECT_THAT(std::string(open([](auto& writer) {
                            writer.Tensor("rope_freqs.weight", {4}, "F32", std::string(16, 0));
                          })
                              .status()
                              .message()),
              HasSubstr("rope_freqs.weight"));
  EXPECT_THAT(
      std::string(
          open([](auto& writer) { writer.U32("llama.expert_count", 8); }).status().message()),
      HasSubstr("llama.expert_count"));
}

TEST_F(OpenModelTest, C76_TruncatedModelsAreRefused) {
  const std::string gguf = toy_.WriteGguf(folder_.path());
  fs::resize_file(gguf, fs::file_size(gguf) - 1000);
  EXPECT_THAT(Error(gguf), HasSubstr("truncated"));
  const std::string weights = folder_.File("model.safetensors");
  fs::resize_file(weights, fs::file_size(weights) - 1000);
  EXPECT_THAT(Error(), HasSubstr("model.safetensors"));
}

// Bytes of headers and metadata changed at random: an error or a model, never a crash.
TEST_F(OpenModelTest, C83_SpoiledGgufsNeverCrash) {
  const std::string path = toy_.WriteGguf(folder_.path());
  const std::string whole = ReadAll(path);
  const std::size_t metadata_bytes = 8192;
  ASSERT_GT(whole.size(), metadata_bytes);
  for (std::uint64_t round = 0; round < 400; ++round) {
    SCOPED_TRACE(round);
    std::string spoiled = whole;
    for (std::uint32_t i = 0; i <= round % 3; ++i) {
      const double where = PhiloxUniform(1, 2 * i, round),
                   what = PhiloxUniform(1, 2 * i + 1, round);
      spoiled[static_cast<std::size_t>(where * metadata_bytes)] = static_cast<char>(what * 256);
    }
    fakes::WriteFile(path, spoiled);
    const auto opened = OpenModel(path);
    if (!opened.ok()) {
      EXPECT_THAT(std::string(opened.status().message()), HasSubstr(path));
      continue;
    }
    const auto tokenizer = (*opened)->LoadTokenizer();
    if (tokenizer.ok() && *tokenizer != nullptr) {
      (*tokenizer)->Encode("a text", {}).status().IgnoreError();
    }
  }
}

TEST_F(OpenModelTest, C74_SpoiledFoldersNeverCrash) {
  const std::string config = toy_.ConfigJson();
  const std::string weights = ReadAll(folder_.File("model.safetensors"));
  for (std::uint64_t round = 0; round < 400; ++round) {
    SCOPED_TRACE(round);
    const bool in_config = round % 2 == 0;
    std::string spoiled = in_config ? config : weights;
    const double size = in_config ? static_cast<double>(config.size()) : 3000;
    const double where = PhiloxUniform(2, 0, round), what = PhiloxUniform(2, 1, round);
    spoiled[static_cast<std::size_t>(where * size)] = static_cast<char>(what * 256);
    Write("config.json", in_config ? spoiled : config);
    Write("model.safetensors", in_config ? weights : spoiled);
    const auto opened = OpenModel(folder_.path());
    if (!opened.ok()) {
      EXPECT_THAT(std::string(opened.status().message()), HasSubstr(folder_.path()));
    }
  }
}

}  // namespace
}  // namespace quire::engine::model
