// Every string of the golden vectors, which Hugging Face's tokenizers package made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/text/detokenizer.h"
#include "tests/engine/text/golden_files.h"
#include "tests/engine/text/test_tokenizers.h"

namespace quire::engine::text {
namespace {

using nlohmann::json;
using Ids = std::vector<TokenId>;

struct Case {
  std::string name;
  const Tokenizer* (*tokenizer)();
};

class TokenizerGolden : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override { ASSERT_NE(GetParam().tokenizer(), nullptr); }
  const Tokenizer& tokenizer() const { return *GetParam().tokenizer(); }
  std::vector<json> vectors() const {
    return ReadGoldenLines("tokenizers/" + GetParam().name + ".vectors.jsonl.xz");
  }
  std::vector<json> streams() const {
    return ReadGoldenLines("tokenizers/" + GetParam().name + ".streams.jsonl");
  }
};

TEST_P(TokenizerGolden, EncodesWithSpecialTokensParsed) {
  for (const json& row : vectors()) {
    const auto ids = tokenizer().Encode(row["text"].get<std::string>(), {.parse_special = true});
    ASSERT_TRUE(ids.ok()) << row["id"] << ids.status();
    EXPECT_EQ(*ids, row["ids"].get<Ids>()) << row["id"] << row["text"];
  }
}

TEST_P(TokenizerGolden, EncodesWithSpecialTokensAsText) {
  for (const json& row : vectors()) {
    const auto ids = tokenizer().Encode(row["text"].get<std::string>(), {});
    ASSERT_TRUE(ids.ok()) << row["id"] << ids.status();
    EXPECT_EQ(*ids, row["ids_literal"].get<Ids>()) << row["id"] << row["text"];
  }
}

TEST_P(TokenizerGolden, EncodesWithSpecialTokensAdded) {
  for (const json& row : vectors()) {
    const auto ids = tokenizer().Encode(row["text"].get<std::string>(),
                                        {.parse_special = true, .add_special = true});
    ASSERT_TRUE(ids.ok()) << row["id"] << ids.status();
    EXPECT_EQ(*ids, row["ids_special"].get<Ids>()) << row["id"] << row["text"];
  }
}

TEST_P(TokenizerGolden, Decodes) {
  for (const json& row : vectors()) {
    const Ids ids = row["ids"].get<Ids>();
    EXPECT_EQ(Decode(tokenizer(), ids, false), row["decode_keep"].get<std::string>()) << row["id"];
    EXPECT_EQ(Decode(tokenizer(), ids, true), row["decode_skip"].get<std::string>()) << row["id"];
    EXPECT_EQ(Decode(tokenizer(), row["ids_special"].get<Ids>(), false),
              row["decode_special_keep"].get<std::string>())
        << row["id"];
  }
}

// C43 (a character split over tokens) and C71 (spaces at the start of an answer): the pieces, token
// by token, are those of an incremental decoder of the same bytes.
TEST_P(TokenizerGolden, C43_C71_StreamsWholeCharacters) {
  for (const json& row : streams()) {
    Detokenizer detokenizer(tokenizer(), SpecialTokens::kSkip);
    std::vector<std::string> chunks;
    for (const TokenId id : row["ids"].get<Ids>()) detokenizer.Append(id, chunks.emplace_back());
    std::string flush;
    detokenizer.Flush(flush);
    EXPECT_EQ(chunks, row["chunks_bytewise"].get<std::vector<std::string>>()) << row["id"];
    EXPECT_EQ(flush, row["flush_bytewise"].get<std::string>()) << row["id"];
    std::string joined;
    for (const std::string& chunk : chunks) joined += chunk;
    EXPECT_EQ(joined + flush, row["decode"].get<std::string>()) << row["id"];
  }
}

TEST(TokenizerFuzz, C67_EqualsHuggingFaceOn2000Strings) {
  ASSERT_NE(SmolLm2(), nullptr);
  ASSERT_NE(Qwen3(), nullptr);
  const std::vector<json> rows = ReadGoldenLines("tokenizers/fuzz.jsonl.xz");
  ASSERT_EQ(rows.size(), 2000U);
  for (const json& row : rows) {
    const std::string text = row["text"];
    EXPECT_EQ(*SmolLm2()->Encode(text, {.parse_special = true}), row["smollm2"].get<Ids>()) << text;
    const Ids qwen3 = *Qwen3()->Encode(text, {.parse_special = true});
    EXPECT_EQ(qwen3, row["qwen3"].get<Ids>()) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerGolden,
                         testing::Values(Case{"smollm2", SmolLm2}, Case{"qwen3", Qwen3},
                                         Case{"deepseek_v3", DeepSeekV3}),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace quire::engine::text
