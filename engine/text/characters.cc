#include "engine/text/characters.h"

#include <utf8proc.h>

namespace quire::engine::text {
namespace {

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

}  // namespace

Character FirstCharacter(std::string_view text) {
  if (text.empty()) return {};
  Character first;
  first.bytes = static_cast<std::size_t>(
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                       static_cast<utf8proc_ssize_t>(text.size()), &first.code_point));
  return first;
}

Character LastCharacter(std::string_view text) {
  std::size_t begin = text.size();
  while (begin > 0 && IsContinuation(text[begin - 1])) --begin;
  if (begin == 0) return {};
  return FirstCharacter(text.substr(begin - 1));
}

bool IsWhiteSpace(std::int32_t code_point) {
  const std::int32_t c = code_point;
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool IsWordCharacter(std::int32_t code_point) {
  const std::int32_t c = code_point;
  if (c < 0) return false;
  const bool is_join_control = c == 0x200C || c == 0x200D;
  const bool is_enclosed_letter = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                                  (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  if (is_join_control || is_enclosed_letter) return true;
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

}  // namespace quire::engine::text
