#include "cli/block_picture.h"

#include <fmt/format.h>

#include <algorithm>

namespace quire::cli {
namespace {

constexpr char kFree = '.';
constexpr char kCached = '+';
constexpr char kActive = '#';

char BlockCharacter(const v1::GetBlockMapResponse& map, int block) {
  switch (map.states(block)) {
    case v1::BLOCK_STATE_ACTIVE: {
      const int owners = block < map.owners_size() ? map.owners(block) : 1;
      return owners <= 1 ? kActive : static_cast<char>('0' + std::min(owners, 9));
    }
    case v1::BLOCK_STATE_CACHED:
      return kCached;
    default:
      return kFree;
  }
}

// Free < cached < one owner < several.
int Busyness(char c) {
  if (c == kFree) return 0;
  if (c == kCached) return 1;
  if (c == kActive) return 2;
  return 3 + (c - '0');
}

const char* ColorOf(char c) {
  if (c == kFree) return "\x1b[90m";    // Grey.
  if (c == kCached) return "\x1b[33m";  // Yellow.
  if (c == kActive) return "\x1b[32m";  // Green.
  return "\x1b[1;36m";                  // Bold cyan: shared.
}

std::string Paint(const std::string& cells, Color color) {
  if (color == Color::kOff) return cells;
  std::string painted;
  const char* last = "";
  for (const char c : cells) {
    const char* paint = ColorOf(c);
    if (paint != last) painted += paint;
    last = paint;
    painted += c;
  }
  return painted + "\x1b[0m";
}

}  // namespace

std::size_t BlocksPerCell(std::size_t num_blocks, std::size_t max_cells) {
  return std::max<std::size_t>(1, (num_blocks + max_cells - 1) / max_cells);
}

std::string DrawBlocks(const v1::GetBlockMapResponse& map, std::size_t max_cells, Color color) {
  const auto num_blocks = static_cast<std::size_t>(map.states_size());
  const std::size_t per_cell = BlocksPerCell(num_blocks, max_cells);
  std::string cells;
  for (std::size_t begin = 0; begin < num_blocks; begin += per_cell) {
    char busiest = kFree;
    for (std::size_t block = begin; block < std::min(begin + per_cell, num_blocks); ++block) {
      const char c = BlockCharacter(map, static_cast<int>(block));
      if (Busyness(c) > Busyness(busiest)) busiest = c;
    }
    cells += busiest;
  }
  return Paint(cells, color);
}

std::string BlockLegend(std::size_t blocks_per_cell, Color color) {
  const std::string what = blocks_per_cell == 1 ? "one character is one block"
                                                : fmt::format(
                                                      "one character is {} blocks, the "
                                                      "busiest of them",
                                                      blocks_per_cell);
  return fmt::format("{}: {} active, {} active and shared by so many, {} cached, {} free", what,
                     Paint("#", color), Paint("2-9", color), Paint("+", color), Paint(".", color));
}

}  // namespace quire::cli
