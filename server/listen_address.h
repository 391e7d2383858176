// Where a server may listen.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace quire::server {

// INVALID_ARGUMENT unless `host` is an IP address or "localhost", and loopback unless
// `insecure_listen`: there is no encryption and no authentication.
absl::Status CheckListenHost(const std::string& host, bool insecure_listen);

// "localhost" as an address; everything else unchanged.
std::string ListenAddress(const std::string& host);
// "127.0.0.1:50051", "[::1]:50051".
std::string GrpcAddress(const std::string& host, std::int32_t port);

// UNAVAILABLE, saying why, when nobody could listen there now. Port 0 is always fine.
absl::Status CheckPortFree(const std::string& host, std::int32_t port);

}  // namespace quire::server
