#include "tests/engine/text/test_tokenizers.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/vocabulary.h"
#include "tests/engine/text/golden_files.h"

namespace quire::engine::text {
namespace {

const Tokenizer* Keep(absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer) {
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? (*std::move(tokenizer)).release() : nullptr;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> FromArchive(const std::string& name, bool with_config) {
  const TempFolder folder;
  UnpackGolden(name, folder);
  if (!with_config) std::filesystem::remove(folder.path() / "tokenizer_config.json");
  return TokenizerFromFolder(folder.path().string());
}

}  // namespace

TokenizerTables SmolLm2Tables() {
  const auto json = nlohmann::json::parse(ReadGolden("tokenizers/smollm2.tables.json.xz"));
  TokenizerTables tables;
  tables.model = json.at("model");
  tables.pre = json.at("pre");
  tables.tokens = json.at("tokens").get<std::vector<std::string>>();
  tables.token_types = json.at("token_type").get<std::vector<std::int32_t>>();
  tables.merges = json.at("merges").get<std::vector<std::string>>();
  tables.bos = json.at("bos_token_id").get<TokenId>();
  tables.eos = json.at("eos_token_id").get<TokenId>();
  tables.unk = json.at("unknown_token_id").get<TokenId>();
  tables.pad = json.at("padding_token_id").get<TokenId>();
  tables.add_bos = json.at("add_bos_token").get<bool>();
  return tables;
}

std::string Spelling(std::string_view bytes) {
  static const auto* const spellings = [] {
    auto* table = new std::vector<std::string>(256);
    for (char32_t c = 33; c < 324; ++c) {
      const std::string spelling = c < 0x80 ? std::string(1, static_cast<char>(c))
                                            : std::string{static_cast<char>(0xC0 | c >> 6),
                                                          static_cast<char>(0x80 | (c & 63))};
      if (const auto byte = BytesFromSpelling(spelling)) {
        (*table)[static_cast<unsigned char>(byte->front())] = spelling;
      }
    }
    return table;
  }();
  std::string spelled;
  for (const char byte : bytes) spelled += (*spellings)[static_cast<unsigned char>(byte)];
  return spelled;
}

TokenizerTables ByteTables(const std::vector<std::string>& extra) {
  TokenizerTables tables;
  tables.model = "gpt2";
  tables.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    tables.tokens.push_back(Spelling(std::string(1, static_cast<char>(byte))));
  }
  tables.token_types.assign(256, 1);
  for (const std::string token : {"<s>", "</s>", "<u>"}) tables.tokens.push_back(token);
  tables.token_types.insert(tables.token_types.end(), {3, 3, 4});
  for (const std::string& bytes : extra) {
    tables.tokens.push_back(Spelling(bytes));
    tables.token_types.push_back(1);
  }
  tables.bos = 256;
  tables.eos = 257;
  return tables;
}

const Tokenizer* SmolLm2() {
  static const Tokenizer* const tokenizer = Keep(TokenizerFromTables(SmolLm2Tables()));
  return tokenizer;
}

const Tokenizer* Qwen3() {
  static const Tokenizer* const tokenizer =
      Keep(FromArchive("tokenizers/qwen3.tar.xz", /*with_config=*/true));
  return tokenizer;
}

const Tokenizer* DeepSeekV3() {
  static const Tokenizer* const tokenizer =
      Keep(FromArchive("tokenizers/deepseek_v3.tar.xz", /*with_config=*/false));
  return tokenizer;
}

}  // namespace quire::engine::text
