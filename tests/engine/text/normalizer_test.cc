#include "engine/text/normalizer.h"

#include <gtest/gtest.h>

#include <string>

namespace quire::engine::text {
namespace {

TEST(Normalizer, C68_NormalForms) {
  EXPECT_EQ(Normalize("Cafe\u0301 \u212B \u1100\u1161\u11A8", NormalForm::kNfc),
            "Caf\u00E9 \u00C5 \uAC01");
  EXPECT_EQ(Normalize("Caf\u00E9 \uAC01", NormalForm::kNfd), "Cafe\u0301 \u1100\u1161\u11A8");
  EXPECT_EQ(Normalize("\uFB01 \u00BD \uFF11e\u0301", NormalForm::kNfkc), "fi 1\u20442 1\u00E9");
  EXPECT_EQ(Normalize("\uFB01\u00E9", NormalForm::kNfkd), "fie\u0301");
  // Compatibility characters are left alone by the canonical forms.
  EXPECT_EQ(Normalize("\uFB01 \u00BD", NormalForm::kNfc), "\uFB01 \u00BD");
}

TEST(Normalizer, OrdersMarksByClass) {
  EXPECT_EQ(Normalize("a\u0301\u0323", NormalForm::kNfd), "a\u0323\u0301");
  EXPECT_EQ(Normalize("a\u0301\u0323", NormalForm::kNfc), "\u1EA1\u0301");
}

TEST(Normalizer, KeepsNulAndPlainText) {
  const std::string text("a\0b", 3);
  EXPECT_EQ(Normalize(text, NormalForm::kNfc), text);
  EXPECT_EQ(Normalize(text + "e\u0301", NormalForm::kNfc), text + "\u00E9");
  EXPECT_EQ(Normalize("", NormalForm::kNfkc), "");
}

// Sorting 400,000 marks one step at a time would take hours.
TEST(Normalizer, C63_LongRunsOfMarks) {
  std::string above, below;
  for (int i = 0; i < 200000; ++i) {
    above += "\u0301";
    below += "\u0323";
  }
  EXPECT_TRUE(Normalize("x" + above + below, NormalForm::kNfd) == "x" + below + above);
}

}  // namespace
}  // namespace quire::engine::text
