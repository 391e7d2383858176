#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/tokenizer.h"
#include "tests/engine/text/golden_files.h"
#include "tests/engine/text/test_tokenizers.h"

namespace quire::engine::text {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr TokenId kBos = 256, kEos = 257;

// The tokenizer of ByteTables as a tokenizer.json.
json ByteJson() {
  const TokenizerTables tables = ByteTables();
  json root = json::parse(R"({
    "added_tokens": [{"id": 256, "content": "<s>", "special": true},
                     {"id": 257, "content": "</s>", "special": true}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "post_processor": null,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "merges": []}})");
  for (std::size_t id = 0; id < 256; ++id) root["model"]["vocab"][tables.tokens[id]] = id;
  return root;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& tokenizer,
                                                const std::string& config = "") {
  const TempFolder folder;
  folder.Write("tokenizer.json", tokenizer);
  if (!config.empty()) folder.Write("tokenizer_config.json", config);
  return TokenizerFromFolder(folder.path().string());
}

TEST(TokenizerJson, LoadsWithoutAConfig) {
  const auto tokenizer = Load(ByteJson().dump());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(*(*tokenizer)->Encode("a<s>", {.parse_special = true, .add_special = true}),
              ElementsAre('a', kBos));
  EXPECT_EQ((*tokenizer)->bos_id(), std::nullopt);
  EXPECT_EQ((*tokenizer)->eos_id(), std::nullopt);
  EXPECT_TRUE((*tokenizer)->IsSpecial(kEos));
}

TEST(TokenizerJson, ConfigNamesBosAndEos) {
  const auto tokenizer =
      Load(ByteJson().dump(),
           R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": true,
          "tokenizer_class": "GPT2Tokenizer"})");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->bos_id(), kBos);
  EXPECT_EQ((*tokenizer)->eos_id(), kEos);
  EXPECT_FALSE((*tokenizer)->adds_bos());  // tokenizer.json adds nothing.
}

TEST(TokenizerJson, LlamaClassesObeyTheConfig) {
  for (const std::string name : {"LlamaTokenizer", "LlamaTokenizerFast"}) {
    const json config = {{"bos_token", "<s>"},
                         {"eos_token", "</s>"},
                         {"add_bos_token", true},
                         {"tokenizer_class", name}};
    const auto tokenizer = Load(ByteJson().dump(), config.dump());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_TRUE((*tokenizer)->adds_bos());
    EXPECT_THAT(*(*tokenizer)->Encode("a", {.add_special = true}), ElementsAre(kBos, 'a'));
  }
}

TEST(TokenizerJson, MergesInBothNotations) {
  json root = ByteJson();
  root["model"]["vocab"]["ab"] = 300;
  for (const json& merges : {json{"a b"}, json::array({json{"a", "b"}})}) {
    root["model"]["merges"] = merges;
    const auto tokenizer = Load(root.dump());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_THAT(*(*tokenizer)->Encode("ab", {}), ElementsAre(300));
  }
}

TEST(TokenizerJson, BytesWithoutATokenBecomeUnknown) {
  json root = ByteJson();
  root["model"]["vocab"].erase("?");
  root["model"]["unk_token"] = "!";
  const auto tokenizer = Load(root.dump());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(*(*tokenizer)->Encode("a??", {}), ElementsAre('a', '!', '!'));
}

struct Refusal {
  std::string pointer;  // Into the JSON.
  std::string value;
  std::string expected;  // In the message.
};

TEST(TokenizerJson, C67_RefusesWhatItDoesNotKnowByName) {
  const std::string sequence_of = R"({"type": "Sequence", "pretokenizers": [)";
  const std::string byte_level = R"({"type": "ByteLevel"})";
  const std::vector<Refusal> refusals = {
      {"/model/type", R"("Unigram")", "model \"Unigram\""},
      {"/model/dropout", "0.1", "model.dropout 0.1"},
      {"/model/byte_fallback", "true", "model.byte_fallback"},
      {"/model/continuing_subword_prefix", R"("##")", "continuing_subword_prefix \"##\""},
      {"/model/end_of_word_suffix", R"("</w>")", "end_of_word_suffix"},
      {"/model/unk_token", R"("<unk>")", "unk_token \"<unk>\""},
      {"/model/vocab", "[]", "model.vocab"},
      {"/model/vocab/a", "-1", "model.vocab[\"a\"]"},
      {"/model/vocab/a", "98", "which is taken"},
      {"/model/vocab/a", "2000000000", "id 2000000000, outside"},
      {"/model/vocab/a", "1.5", "must be a token id"},
      {"/model/merges", R"(["a b c"])", "merge 0"},
      {"/model/merges", R"([["a"]])", "model.merges[0]"},
      {"/model/merges", R"(["q z"])", "which is not in the vocabulary"},
      {"/normalizer", R"({"type": "Lowercase"})", "normalizer Lowercase"},
      {"/normalizer", R"({"type": "Sequence", "normalizers": [{"type": "Replace"}]})",
       "normalizer Replace"},
      {"/pre_tokenizer", "null", "pre_tokenizer without ByteLevel"},
      {"/pre_tokenizer", R"({"type": "Metaspace"})", "pre_tokenizer Metaspace"},
      {"/pre_tokenizer", sequence_of + byte_level + R"(, {"type": "Digits"}]})",
       "Digits after ByteLevel"},
      {"/pre_tokenizer",
       sequence_of + R"({"type": "Split", "pattern": {"Regex": "^a"}, "behavior": "Isolated"}, )" +
           byte_level + "]}",
       "\"^a\""},
      {"/pre_tokenizer",
       sequence_of + R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Odd"}, )" +
           byte_level + "]}",
       "behavior Odd"},
      {"/post_processor", R"({"type": "BertProcessing"})", "post_processor BertProcessing"},
      {"/post_processor",
       R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<x>"}}]})",
       "no ids for <x>"},
      {"/decoder", "null", "decoder other than one ByteLevel"},
      {"/decoder", R"({"type": "WordPiece"})", "decoder WordPiece"},
      {"/added_tokens", R"([{"id": 0, "content": "<x>"}])", "id 0, which is taken"},
      {"/added_tokens", R"([{"id": 300}])", "added_tokens.content"},
      {"/added_tokens", R"([{"id": 300, "content": "x", "lstrip": 1}])", "added_tokens.lstrip"},
  };
  for (const Refusal& refusal : refusals) {
    json root = ByteJson();
    root[json::json_pointer(refusal.pointer)] = json::parse(refusal.value);
    const absl::Status status = Load(root.dump()).status();
    EXPECT_FALSE(status.ok()) << refusal.pointer << refusal.value;
    EXPECT_THAT(std::string(status.message()), HasSubstr(refusal.expected));
    EXPECT_THAT(std::string(status.message()), HasSubstr("tokenizer.json: "));
  }
}

TEST(TokenizerJson, C136_FilesThatAreMissingOrNoJson) {
  const TempFolder folder;
  const absl::Status missing = TokenizerFromFolder(folder.path().string()).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("tokenizer.json"));
  for (const std::string text : {"", "{", "[]", "\xFF", "{\"model\": 1}", "{}"}) {
    EXPECT_EQ(Load(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_THAT(std::string(Load("{").status().message()),
              HasSubstr("tokenizer.json: not JSON at byte 2"));
  const absl::Status config = Load(ByteJson().dump(), "{").status();
  EXPECT_THAT(std::string(config.message()), HasSubstr("tokenizer_config.json"));
  const absl::Status bos = Load(ByteJson().dump(), R"({"bos_token": "<nope>"})").status();
  EXPECT_THAT(std::string(bos.message()), HasSubstr("bos_token \"<nope>\""));
}

// A hostile file must not overflow the stack.
TEST(TokenizerJson, DeepNestingIsRefused) {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  std::string text = ByteJson().dump();
  text.replace(text.find("\"dropout\":null"), 14, "\"dropout\":" + deep);
  EXPECT_EQ(Load(text).status().code(), absl::StatusCode::kUnimplemented);

  json pre_tokenizer = {{"type", "ByteLevel"}};
  for (int i = 0; i < 20; ++i) {
    pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", json::array({pre_tokenizer})}};
  }
  json root = ByteJson();
  root["pre_tokenizer"] = pre_tokenizer;
  EXPECT_THAT(std::string(Load(root.dump()).status().message()), HasSubstr("nested"));
}

}  // namespace
}  // namespace quire::engine::text
