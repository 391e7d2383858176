// Single characters of UTF-8 text and the Unicode classes that tokenizer files speak of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace quire::engine::text {

struct Character {
  std::int32_t code_point = -1;  // -1: the text is empty.
  std::size_t bytes = 0;
};

// REQUIRES: `text` is UTF-8.
Character FirstCharacter(std::string_view text);
Character LastCharacter(std::string_view text);

// Unicode's property White_Space: \s in Oniguruma and Rust.
bool IsWhiteSpace(std::int32_t code_point);
// \w in Unicode's regular expressions (UTS #18, annex C). False for -1.
bool IsWordCharacter(std::int32_t code_point);

}  // namespace quire::engine::text
