// Unicode normal forms (NFC, NFD, NFKC, NFKD), in O(n log n) whatever the text.
#pragma once

#include <string>
#include <string_view>

namespace quire::engine::text {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// REQUIRES: `text` is UTF-8.
std::string Normalize(std::string_view text, NormalForm form);

}  // namespace quire::engine::text
