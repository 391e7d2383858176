// Reading fields out of JSON that a stranger wrote. `where` names the object in messages.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace quire::engine::text {

// The member, or null when it is absent or null, or `object` is no object.
const nlohmann::json* FindField(const nlohmann::json& object, std::string_view key);

// INVALID_ARGUMENT when the member has another type, or when there is neither member nor fallback.
absl::StatusOr<std::string> StringField(const nlohmann::json& object, std::string_view key,
                                        std::string_view where);
absl::StatusOr<bool> BoolField(const nlohmann::json& object, std::string_view key, bool fallback,
                               std::string_view where);
absl::StatusOr<const nlohmann::json*> ArrayField(const nlohmann::json& object, std::string_view key,
                                                 std::string_view where);
// A token id: an integer that fits.
absl::StatusOr<std::int32_t> IdOf(const nlohmann::json& value, std::string_view where);

// A value for a message: scalars as they are, anything larger by its type only.
std::string Brief(const nlohmann::json& value);

// What `text` says. INVALID_ARGUMENT naming `where`, and the byte (from 1) at which it is no JSON.
absl::StatusOr<nlohmann::json> ParseJson(
    std::string_view text, std::string_view where,
    const nlohmann::json::parser_callback_t& callback = nullptr);

// Parses a whole file of at most `max_bytes`. Errors name the path.
absl::StatusOr<nlohmann::json> ReadJsonFile(const std::string& path, std::size_t max_bytes);

}  // namespace quire::engine::text
