#include "engine/text/vocabulary.h"

#include <utf8proc.h>

#include <array>

namespace quire::engine::text {
namespace {

// Code points of the 256 spellings: printable Latin-1 stands for itself, the rest follows from
// U+0100 on in byte order (OpenAI's bytes_to_unicode).
constexpr std::array<std::uint16_t, 256> MakeSpellings() {
  std::array<std::uint16_t, 256> code_points{};
  std::uint16_t next = 256;
  for (std::uint16_t byte = 0; byte < 256; ++byte) {
    const bool is_printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    code_points[byte] = is_printable ? byte : next++;
  }
  return code_points;
}
constexpr std::array<std::uint16_t, 256> kSpellings = MakeSpellings();
constexpr std::size_t kSpellingsEnd = 256 + 68;

constexpr std::array<std::int16_t, kSpellingsEnd> MakeBytes() {
  std::array<std::int16_t, kSpellingsEnd> bytes{};
  for (std::int16_t& byte : bytes) byte = -1;
  for (std::int16_t byte = 0; byte < 256; ++byte) {
    bytes[kSpellings[static_cast<std::size_t>(byte)]] = byte;
  }
  return bytes;
}
constexpr std::array<std::int16_t, kSpellingsEnd> kBytes = MakeBytes();

}  // namespace

std::optional<std::string> BytesFromSpelling(std::string_view spelling) {
  std::string bytes;
  for (std::size_t at = 0; at < spelling.size();) {
    utf8proc_int32_t code_point = 0;
    const utf8proc_ssize_t length =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(spelling.data()) + at,
                         static_cast<utf8proc_ssize_t>(spelling.size() - at), &code_point);
    if (length <= 0 || code_point >= static_cast<utf8proc_int32_t>(kSpellingsEnd)) {
      return std::nullopt;
    }
    const std::int16_t byte = kBytes[static_cast<std::size_t>(code_point)];
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
    at += static_cast<std::size_t>(length);
  }
  return bytes;
}

Vocabulary::Vocabulary(const std::vector<Entry>& entries) {
  ends_.reserve(entries.size());
  is_special_.reserve(entries.size());
  for (const Entry& entry : entries) {
    bytes_ += entry.bytes;
    ends_.push_back(bytes_.size());
    is_special_.push_back(entry.is_special);
  }
}

std::string_view Vocabulary::Bytes(TokenId id) const {
  if (!Contains(id)) return {};
  const auto i = static_cast<std::size_t>(id);
  const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
  return std::string_view(bytes_).substr(begin, ends_[i] - begin);
}

bool Vocabulary::IsSpecial(TokenId id) const {
  return Contains(id) && is_special_[static_cast<std::size_t>(id)];
}

}  // namespace quire::engine::text
