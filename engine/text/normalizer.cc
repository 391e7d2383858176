#include "engine/text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace quire::engine::text {
namespace {

utf8proc_option_t Options(NormalForm form) {
  int options = UTF8PROC_STABLE;
  const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  options |= composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
  return static_cast<utf8proc_option_t>(options);
}

utf8proc_propval_t CombiningClass(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

// Canonical order: runs of combining marks sorted by class. utf8proc's own pass over a whole text
// takes quadratic time on long runs.
void SortMarks(std::vector<utf8proc_int32_t>& code_points) {
  auto at = code_points.begin();
  while (at != code_points.end()) {
    if (CombiningClass(*at) == 0) {
      ++at;
      continue;
    }
    const auto end = std::find_if(at, code_points.end(),
                                  [](utf8proc_int32_t c) { return CombiningClass(c) == 0; });
    std::stable_sort(at, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return CombiningClass(a) < CombiningClass(b);
    });
    at = end;
  }
}

// All below U+0300, which every text in NFC may hold: nothing to do.
bool IsPlainNfc(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) >= 0xCC; });
}

std::vector<utf8proc_int32_t> Decompose(std::string_view text, utf8proc_option_t options) {
  // U+FDFA has the longest decomposition, 18 code points.
  constexpr utf8proc_ssize_t kMaxDecomposition = 32;
  utf8proc_int32_t decomposed[kMaxDecomposition];
  std::vector<utf8proc_int32_t> code_points;
  code_points.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    utf8proc_int32_t code_point = 0;
    const utf8proc_ssize_t bytes =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                         static_cast<utf8proc_ssize_t>(text.size() - at), &code_point);
    QUIRE_CHECK(bytes > 0) << "text is not UTF-8 at byte " << at;
    at += static_cast<std::size_t>(bytes);
    int boundary_state = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        code_point, decomposed, kMaxDecomposition, options, &boundary_state);
    QUIRE_CHECK(count > 0 && count <= kMaxDecomposition) << "code point " << code_point;
    code_points.insert(code_points.end(), decomposed, decomposed + count);
  }
  return code_points;
}

}  // namespace

std::string Normalize(std::string_view text, NormalForm form) {
  if (form == NormalForm::kNfc && IsPlainNfc(text)) return std::string(text);
  const utf8proc_option_t options = Options(form);
  std::vector<utf8proc_int32_t> code_points = Decompose(text, options);
  SortMarks(code_points);
  const utf8proc_ssize_t count = utf8proc_normalize_utf32(
      code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()), options);
  QUIRE_CHECK(count >= 0) << utf8proc_errmsg(count);
  std::string normalized;
  normalized.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    utf8proc_uint8_t bytes[4];
    const utf8proc_ssize_t length =
        utf8proc_encode_char(code_points[static_cast<std::size_t>(i)], bytes);
    normalized.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(length));
  }
  return normalized;
}

}  // namespace quire::engine::text
