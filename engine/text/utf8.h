// Checking and repairing UTF-8 (Unicode 15, table 3-7: shortest forms only, no surrogates).
//
// Invalid bytes become U+FFFD, one per maximal part that could have begun a character, as the
// Unicode standard recommends (section 3.9) and Python and Rust do.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace quire::engine::text {

// Offset of the first byte that is not part of a whole valid character; nullopt when all is valid.
std::optional<std::size_t> FindInvalidUtf8(std::string_view text);

// Bytes in, whole characters out. Holds back at most the three bytes of a character that is not yet
// complete; a byte that cannot become valid is replaced as soon as that is certain.
class Utf8Repairer {
 public:
  // Appends to `out` all that `bytes` completes.
  void Append(std::string_view bytes, std::string& out);
  // Ends the text: a character that is still incomplete becomes one U+FFFD.
  void Flush(std::string& out);

 private:
  std::string pending_;  // A proper prefix of a valid character.
};

}  // namespace quire::engine::text
