#include "simulator/paper.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace quire::simulator {
namespace {

std::vector<PaperRow> Rows(const PaperOptions& options) {
  std::vector<PaperRow> rows;
  RunPaperPreset(options, [&](const PaperRow& row) { rows.push_back(row); });
  return rows;
}

// A small preset: its numbers are rougher than the full one's, which `quire simulate --preset
// paper` checks against the bounds.
TEST(PaperTest, ReportsEveryRowOnceTheSameEveryTime) {
  const PaperOptions options{.scale = 0.05};
  const std::vector<PaperRow> rows = Rows(options), again = Rows(options);
  std::map<std::string, PaperRow> by_name;
  ASSERT_EQ(rows.size(), again.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_TRUE(by_name.emplace(rows[i].row, rows[i]).second) << rows[i].row;
    EXPECT_EQ(rows[i].row, again[i].row);
    EXPECT_EQ(rows[i].ours, again[i].ours) << rows[i].row;
    EXPECT_FALSE(rows[i].note.empty()) << rows[i].row;
    EXPECT_FALSE(rows[i].bound.empty()) << rows[i].row;
  }
  EXPECT_EQ(by_name.at("kv-size/per-token").ours, 800);
  EXPECT_TRUE(by_name.at("kv-size/pool").pass);
  EXPECT_NEAR(by_name.at("useful-share/sharegpt/quire").ours, 98.2, 0.5);
  EXPECT_NEAR(by_name.at("useful-share/alpaca/quire").ours, 90.5, 3);
  EXPECT_LT(by_name.at("useful-share/sharegpt/orca-max").ours,
            by_name.at("useful-share/sharegpt/orca-pow2").ours);
  EXPECT_LT(by_name.at("useful-share/sharegpt/orca-pow2").ours,
            by_name.at("useful-share/sharegpt/orca-oracle").ours);
  EXPECT_GE(by_name.at("forks/sharegpt/mean-lengths/n=6").ours, 30);
  EXPECT_GE(by_name.at("forks/alpaca/mean-lengths/n=6").ours, 20);
  EXPECT_GT(by_name.at("block-size/alpaca/1").ours, by_name.at("block-size/alpaca/128").ours);
  EXPECT_EQ(by_name.at("recompute-tax/100%").ours, 0);
}

}  // namespace
}  // namespace quire::simulator
