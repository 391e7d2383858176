// Numbers as people write and read them: sizes with binary units, durations, lists.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"

namespace quire::cli {

// The whole of `text` as a number; INVALID_ARGUMENT, quoting the text, for anything else ("12abc",
// an empty text, what does not fit).
absl::StatusOr<std::int64_t> ParseInt(std::string_view text);
absl::StatusOr<std::uint64_t> ParseUint(std::string_view text);
// Also refuses NaN and infinity.
absl::StatusOr<double> ParseDouble(std::string_view text);

// "536870912", "512MiB", "1.5 GiB": KiB, MiB, GiB and TiB are powers of 1024, a plain number is
// bytes. Decimal units (MB) are refused, since people mean two different things by them.
absl::StatusOr<std::int64_t> ParseBytes(std::string_view text);

// "1,2,3", blanks around the numbers allowed. Empty text is an empty list.
absl::StatusOr<std::vector<TokenId>> ParseTokenIds(std::string_view text);

std::string FormatBytes(std::int64_t bytes);  // "93.8 MiB"; exact below 1 KiB.
std::string FormatCount(std::int64_t count);  // "1,048,576"
// "1 request", "2,000 requests": `noun` is the singular of a regular plural.
std::string Counted(std::int64_t count, std::string_view noun);
std::string DurationText(absl::Duration duration);  // "12.3 ms", "4.56 s", "2 min 05 s"

}  // namespace quire::cli
