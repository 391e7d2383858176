// Assertions for bugs inside one class. Never on anything that input, files, peers or load decide:
// those get an absl::Status.
//
// QUIRE_CHECK is on in every build; QUIRE_DCHECK only where NDEBUG is not defined or
// QUIRE_DEBUG_CHECKS is, for hot loops. Both accept a streamed explanation:
//   QUIRE_CHECK(a + b == capacity) << "active " << a << " cached " << b;
#pragma once

#include <sstream>

namespace quire::internal {

// Collects the message, prints it with file and line to stderr and aborts when destroyed.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  CheckFailure(const CheckFailure&) = delete;
  CheckFailure& operator=(const CheckFailure&) = delete;
  std::ostream& stream() { return message_; }

 private:
  std::ostringstream message_;
};

// Turns the streamed expression into void, so that both arms of ?: agree.
struct Voidify {
  void operator&(std::ostream&) const {}
};

}  // namespace quire::internal

#define QUIRE_CHECK(condition)                 \
  (condition) ? (void)0                        \
              : ::quire::internal::Voidify() & \
                    ::quire::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()

#if !defined(NDEBUG) || defined(QUIRE_DEBUG_CHECKS)
#define QUIRE_DCHECK(condition) QUIRE_CHECK(condition)
#else
#define QUIRE_DCHECK(condition) QUIRE_CHECK(true || (condition))
#endif
