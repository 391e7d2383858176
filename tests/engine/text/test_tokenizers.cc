#include "tests/engine/text/test_tokenizers.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

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
