// Small tokenizers that differ in one component each, against the ids that Hugging Face's
// tokenizers package gives (tests/golden/tokenizers/make_components.py): C66 (ignore_merges), C67
// (split rules), C68 (normal forms), C69 (flags of added tokens), C62 (BOS by template).
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/text/tokenizer.h"
#include "tests/engine/text/golden_files.h"

namespace quire::engine::text {
namespace {

using nlohmann::json;
using Ids = std::vector<TokenId>;

const std::vector<json>& Rows() {
  static const auto* const rows =
      new std::vector<json>(ReadGoldenLines("tokenizers/components.jsonl.xz"));
  return *rows;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const json& row) {
  json root = row["tokenizer"];
  json& model = root["model"];
  model["type"] = "BPE";
  model["vocab"] = Rows()[0]["model"]["vocab"];
  model["merges"] = Rows()[0]["model"]["merges"];
  if (model.contains("extra_vocab")) model["vocab"].update(model["extra_vocab"]);
  const TempFolder folder;
  folder.Write("tokenizer.json", root.dump());
  return TokenizerFromFolder(folder.path().string());
}

TEST(TokenizerComponents, C62_C66_C67_C68_C69_EqualHuggingFace) {
  ASSERT_GT(Rows().size(), 30U);
  for (std::size_t i = 1; i < Rows().size(); ++i) {
    const json& row = Rows()[i];
    SCOPED_TRACE(row["name"].get<std::string>());
    const auto tokenizer = Load(row);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const json& entry : row["cases"]) {
      const std::string text = entry[0];
      const auto parsed = (*tokenizer)->Encode(text, {.parse_special = true});
      ASSERT_TRUE(parsed.ok()) << parsed.status();
      EXPECT_EQ(*parsed, entry[1].get<Ids>()) << entry[0];
      EXPECT_EQ(*(*tokenizer)->Encode(text, {}), entry[2].get<Ids>()) << entry[0];
      const auto added = (*tokenizer)->Encode(text, {.parse_special = true, .add_special = true});
      EXPECT_EQ(*added, entry[3].get<Ids>()) << entry[0];
      EXPECT_EQ(Decode(**tokenizer, *parsed, false), entry[4].get<std::string>()) << entry[0];
    }
  }
}

}  // namespace
}  // namespace quire::engine::text
