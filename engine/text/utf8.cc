#include "engine/text/utf8.h"

#include <cstdint>

namespace quire::engine::text {
namespace {

enum class Utf8Kind { kValid, kIncomplete, kInvalid };

// The character, or the maximal part of one, that `bytes` begins with. REQUIRES: not empty.
struct Utf8Part {
  Utf8Kind kind;
  std::size_t length;
};

Utf8Part FirstPart(std::string_view bytes) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(bytes[i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {Utf8Kind::kValid, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Kind::kInvalid, 1};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes longer-than-needed forms, surrogates and code points past
  // U+10FFFF.
  std::uint8_t low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Utf8Kind::kIncomplete, i};
    if (byte(i) < low || byte(i) > high) return {Utf8Kind::kInvalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Kind::kValid, length};
}

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

std::optional<std::size_t> FindInvalidUtf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const Utf8Part part = FirstPart(text.substr(at));
    if (part.kind != Utf8Kind::kValid) return at;
    at += part.length;
  }
  return std::nullopt;
}

void Utf8Repairer::Append(std::string_view bytes, std::string& out) {
  pending_.append(bytes);
  const std::string_view all = pending_;
  std::size_t at = 0;
  while (at < all.size()) {
    const Utf8Part part = FirstPart(all.substr(at));
    if (part.kind == Utf8Kind::kIncomplete) break;
    out.append(part.kind == Utf8Kind::kValid ? all.substr(at, part.length) : kReplacement);
    at += part.length;
  }
  pending_.erase(0, at);
}

void Utf8Repairer::Flush(std::string& out) {
  if (!pending_.empty()) out.append(kReplacement);
  pending_.clear();
}

}  // namespace quire::engine::text
