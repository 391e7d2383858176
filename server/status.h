// Statuses on the wire. Codes of absl::Status and gRPC have the same numbers; messages are made
// printable and short, since a message may quote what a client sent, and a refusal carries
// google.rpc details: which field (BadRequest) or when to try again (RetryInfo).
#pragma once

#include <grpcpp/support/status.h>

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace quire::server {

// Trailing metadata beside RetryInfo, for clients that do not decode details.
inline constexpr char kRetryAfterKey[] = "retry-after-ms";

// At most this many bytes of a message go out.
inline constexpr std::size_t kMaxMessageBytes = 1000;

// Valid UTF-8 without control characters (escaped as \n, \x1b, …; bytes that are not UTF-8 too), at
// most kMaxMessageBytes; what is cut is counted at the end.
std::string PrintableMessage(std::string_view message);

// The field of GenerateRequest that an INVALID_ARGUMENT message starts with ("top_p must be …",
// "stop[2] is empty"), as a path ("sampling.top_p"); empty when it starts with something else.
std::string FieldOf(std::string_view message);

// `retry_after`: the hint that goes with RESOURCE_EXHAUSTED; unset: none is given.
grpc::Status ToGrpc(const absl::Status& status,
                    std::optional<absl::Duration> retry_after = std::nullopt);
absl::Status FromGrpc(const grpc::Status& status);
// The hint in a status's details.
std::optional<absl::Duration> RetryAfterOf(const grpc::Status& status);

}  // namespace quire::server
