// Helpers around absl::Status. Debian's absl::string_view is not std::string_view, so the
// constructors here take std types and convert at this one place.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace quire {

inline absl::string_view AsAbsl(std::string_view s) { return {s.data(), s.size()}; }
inline std::string_view AsStd(absl::string_view s) { return {s.data(), s.size()}; }

// InvalidArgument("top_p must be in (0, 1], got {}", p) and so on: a status with a formatted
// message.
#define QUIRE_DEFINE_STATUS(Name)                                               \
  template <class... Args>                                                      \
  absl::Status Name(fmt::format_string<Args...> format, Args&&... args) {       \
    return absl::Name##Error(fmt::format(format, std::forward<Args>(args)...)); \
  }
QUIRE_DEFINE_STATUS(InvalidArgument)
QUIRE_DEFINE_STATUS(NotFound)
QUIRE_DEFINE_STATUS(AlreadyExists)
QUIRE_DEFINE_STATUS(FailedPrecondition)
QUIRE_DEFINE_STATUS(ResourceExhausted)
QUIRE_DEFINE_STATUS(Unavailable)
QUIRE_DEFINE_STATUS(Unimplemented)
QUIRE_DEFINE_STATUS(Aborted)
QUIRE_DEFINE_STATUS(Internal)
#undef QUIRE_DEFINE_STATUS

}  // namespace quire

// Returns from the enclosing function when `expression` is an error status.
#define QUIRE_RETURN_IF_ERROR(expression)          \
  do {                                             \
    absl::Status quire_status_ = (expression);     \
    if (!quire_status_.ok()) return quire_status_; \
  } while (false)

#define QUIRE_CONCAT_INNER(a, b) a##b
#define QUIRE_CONCAT(a, b) QUIRE_CONCAT_INNER(a, b)
// QUIRE_ASSIGN_OR_RETURN(auto model, LoadModel(path));
#define QUIRE_ASSIGN_OR_RETURN(lhs, expression)                   \
  auto QUIRE_CONCAT(quire_or_, __LINE__) = (expression);          \
  if (!QUIRE_CONCAT(quire_or_, __LINE__).ok())                    \
    return std::move(QUIRE_CONCAT(quire_or_, __LINE__)).status(); \
  lhs = *std::move(QUIRE_CONCAT(quire_or_, __LINE__))
