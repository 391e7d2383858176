// The KV block pool as a line of characters.
#pragma once

#include <cstddef>
#include <string>

#include "quire/v1/stats.pb.h"

namespace quire::cli {

enum class Color { kOff, kOn };

// One character per block, or per few neighbouring blocks when there are more than `max_cells`:
// '.' free, '+' cached, '#' active with one owner, a digit for the number of owners (9: or more).
// A character that stands for several blocks shows the busiest.
std::string DrawBlocks(const v1::GetBlockMapResponse& map, std::size_t max_cells, Color color);

// How many blocks one character of DrawBlocks stands for.
std::size_t BlocksPerCell(std::size_t num_blocks, std::size_t max_cells);

// What the characters mean.
std::string BlockLegend(std::size_t blocks_per_cell, Color color);

}  // namespace quire::cli
