#include "engine/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/text/test_tokenizers.h"

namespace quire::engine::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<TokenId>;

constexpr TokenId kBos = 256, kEos = 257, kUserDefined = 258;

std::unique_ptr<Tokenizer> Make(const TokenizerTables& tables) {
  auto tokenizer = TokenizerFromTables(tables);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

TokenizerTables WithBosAndEos() {
  TokenizerTables tables = ByteTables();
  tables.add_bos = true;
  tables.add_eos = true;
  return tables;
}

TEST(Tokenizer, ParsesControlTokensOnlyWhenAsked) {
  const auto tokenizer = Make(ByteTables());
  EXPECT_THAT(*tokenizer->Encode("a<s>", {.parse_special = true}), ElementsAre('a', kBos));
  EXPECT_THAT(*tokenizer->Encode("a<s>", {}), ElementsAre('a', '<', 's', '>'));
  EXPECT_THAT(*tokenizer->Encode("a<u>", {}), ElementsAre('a', kUserDefined));
}

TEST(Tokenizer, C62_AddsExactlyOneBos) {
  const auto tokenizer = Make(WithBosAndEos());
  const EncodeOptions parsed{.parse_special = true, .add_special = true};
  EXPECT_THAT(*tokenizer->Encode("a", parsed), ElementsAre(kBos, 'a', kEos));
  EXPECT_THAT(*tokenizer->Encode("<s>a", parsed), ElementsAre(kBos, 'a', kEos));
  EXPECT_THAT(*tokenizer->Encode("<s>", {.add_special = true}),
              ElementsAre(kBos, '<', 's', '>', kEos));
  EXPECT_THAT(*tokenizer->Encode("a", {}), ElementsAre('a'));
}

TEST(Tokenizer, C62_ChatGetsExactlyOneBos) {
  const std::vector<PromptSegment> with_bos = {{"<s>", true}, {"a", false}};
  const std::vector<PromptSegment> without_bos = {{"[", true}, {"<s>", false}};
  const auto adds_bos = Make(WithBosAndEos());
  EXPECT_THAT(*EncodeChat(*adds_bos, with_bos), ElementsAre(kBos, 'a'));
  EXPECT_THAT(*EncodeChat(*adds_bos, without_bos), ElementsAre(kBos, '[', '<', 's', '>'));
  const auto adds_nothing = Make(ByteTables());
  EXPECT_THAT(*EncodeChat(*adds_nothing, with_bos), ElementsAre(kBos, 'a'));
  EXPECT_THAT(*EncodeChat(*adds_nothing, without_bos), ElementsAre('[', '<', 's', '>'));
}

TEST(Tokenizer, C61_ControlTokensAreNotMadeOfTwoSides) {
  const auto tokenizer = Make(ByteTables());
  const auto encode = [&](std::vector<PromptSegment> segments) {
    return *tokenizer->EncodeSegments(segments);
  };
  EXPECT_THAT(encode({{"<s", false}, {">", true}}), ElementsAre('<', 's', '>'));
  EXPECT_THAT(encode({{"<", true}, {"s>", false}}), ElementsAre('<', 's', '>'));
  // What the user began does not hide the template's own token.
  EXPECT_THAT(encode({{"<s", false}, {"<s>", true}}), ElementsAre('<', 's', kBos));
  // Neighbouring template segments are one text.
  EXPECT_THAT(encode({{"<s", true}, {"", false}, {">", true}}), ElementsAre(kBos));
}

TEST(Tokenizer, SegmentsAreMergedAcrossTheirBorders) {
  TokenizerTables tables = ByteTables({"ab"});
  tables.merges = {"a b"};
  const auto tokenizer = Make(tables);
  const std::vector<PromptSegment> segments = {{"a", true}, {"b", false}};
  EXPECT_THAT(*tokenizer->EncodeSegments(segments), ElementsAre(259));
}

TEST(Tokenizer, C64_KeepsTextAfterNul) {
  const std::string text("AB\0CD", 5);
  for (const Tokenizer* tokenizer : {SmolLm2(), Qwen3()}) {
    const auto ids = tokenizer->Encode(text, {});
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(Decode(*tokenizer, *ids, false), text);
  }
  EXPECT_THAT(*Make(ByteTables())->Encode(text, {}), ElementsAre('A', 'B', 0, 'C', 'D'));
}

TEST(Tokenizer, C65_RefusesBytesThatAreNotUtf8) {
  const auto tokenizer = Make(ByteTables());
  for (const std::string bytes :
       {"\xE6\xAD", "\x80", "\xF8\x88\x80\x80\x80", "\xC0\x80", "\xED\xA0\x80"}) {
    const absl::Status status = tokenizer->Encode(std::string("abc").append(bytes), {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("not UTF-8 at byte 3"));
  }
}

// Long unbroken runs; the work is bounded in Bpe.C63_WorkIsLinearInHeapOperations.
TEST(Tokenizer, C63_EncodesLongRuns) {
  std::string cjk;
  for (int i = 0; i < 60000; ++i) cjk += "中";
  const std::vector<std::string> texts = {std::string(100000, 'a'), std::string(100000, '_'), cjk,
                                          std::string(100000, ' ')};
  for (const Tokenizer* tokenizer : {SmolLm2(), Qwen3()}) {
    for (const std::string& text : texts) {
      const auto ids = tokenizer->Encode(text, {});
      ASSERT_TRUE(ids.ok()) << ids.status();
      EXPECT_TRUE(Decode(*tokenizer, *ids, false) == text);
      EXPECT_LE(ids->size(), text.size());
    }
  }
}

TEST(Tokenizer, C72_EmptyTextHasNoIds) {
  EXPECT_THAT(*Make(ByteTables())->Encode("", {.add_special = true}), ElementsAre());
  EXPECT_THAT(*Make(WithBosAndEos())->Encode("", {.add_special = true}), ElementsAre(kBos, kEos));
}

TEST(Tokenizer, IdsOutsideTheVocabularyStandForNothing) {
  const auto tokenizer = Make(ByteTables());
  EXPECT_EQ(tokenizer->vocab_size(), 259);
  for (const TokenId id : {-1, 259, 2147483647}) {
    EXPECT_EQ(tokenizer->TokenBytes(id), "");
    EXPECT_FALSE(tokenizer->IsSpecial(id));
  }
  EXPECT_EQ(Decode(*tokenizer, {'a', -1, 'b', 1 << 30}, false), "ab");
}

TEST(TokenizerTables, PreTokenizersOfOtherFamilies) {
  TokenizerTables tables = ByteTables({"12", "123", "1234", "xyz"});
  tables.merges = {"1 2", "12 3", "123 4"};
  const auto encode = [&](const std::string& pre, const std::string& text) {
    tables.pre = pre;
    return *Make(tables)->Encode(text, {.add_special = true});
  };
  EXPECT_THAT(encode("gpt-2", "1234"), ElementsAre(261));
  EXPECT_THAT(encode("smollm", "1234"), ElementsAre('1', '2', '3', '4'));
  EXPECT_THAT(encode("qwen2", "1234"), ElementsAre('1', '2', '3', '4'));
  EXPECT_THAT(encode("llama-bpe", "1234"), ElementsAre(kBos, 260, '4'));
  EXPECT_THAT(encode("default", "1234"), ElementsAre(260, '4'));
  EXPECT_THAT(encode("qwen2", "e\u0301"), ElementsAre(0xC3, 0xA9));  // NFC
  EXPECT_THAT(encode("llama-bpe", "xyz"), ElementsAre(kBos, 262));   // No merge leads there.
  tables.add_bos = false;
  EXPECT_THAT(encode("llama-bpe", "1"), ElementsAre('1'));
}

// Each case spoils one thing.
TEST(TokenizerTables, C67_RefusesWhatItDoesNotKnowByName) {
  using Spoil = void (*)(TokenizerTables&);
  const std::vector<std::pair<Spoil, std::string>> cases = {
      {[](TokenizerTables& t) { t.model = "llama"; }, "tokenizer.ggml.model \"llama\""},
      {[](TokenizerTables& t) { t.pre = "viking"; }, "tokenizer.ggml.pre \"viking\""},
      {[](TokenizerTables& t) { t.tokens.clear(); }, "tokenizer.ggml.tokens"},
      {[](TokenizerTables& t) { t.token_types.pop_back(); }, "tokenizer.ggml.token_type"},
      {[](TokenizerTables& t) { t.bos = 1000; }, "tokenizer.ggml.bos_token_id is 1000"},
      {[](TokenizerTables& t) { t.eos = -1; }, "tokenizer.ggml.eos_token_id is -1"},
      {[](TokenizerTables& t) { t.merges = {"a b"}; }, "merge 0 (\"a\" \"b\")"},
      {[](TokenizerTables& t) { t.merges = {"ab"}; }, "merge 0 is \"ab\""},
      {[](TokenizerTables& t) { t.tokens[257] = std::string(300, 'x'); }, "added token 257"},
      {[](TokenizerTables& t) { t.tokens[257] = std::string(1, '\xFF'); },
       "added token 257 is not UTF-8"},
  };
  for (const auto& [spoil, expected] : cases) {
    TokenizerTables tables = ByteTables();
    spoil(tables);
    const absl::Status status = TokenizerFromTables(tables).status();
    EXPECT_FALSE(status.ok()) << expected;
    EXPECT_THAT(std::string(status.message()), HasSubstr(expected));
  }
}

}  // namespace
}  // namespace quire::engine::text
