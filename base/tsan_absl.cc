// Linked into ThreadSanitizer builds only (cmake/quire.cmake). Debian's Abseil is not compiled with
// -fsanitize=thread, so ThreadSanitizer cannot see that absl::Mutex and absl::Notification order
// memory and would report every access that they protect. The linker sends our calls of them here
// (--wrap); these functions tell ThreadSanitizer and then do the real thing. Conditions that Abseil
// evaluates inside a call hold the lock, and are ignored as the lock's own code is.
#include <sanitizer/tsan_interface.h>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

// NOLINTBEGIN(bugprone-reserved-identifier): the linker's naming.
#define QUIRE_MUTEX(rest) _ZN4absl7debian35Mutex##rest
#define QUIRE_NOTIFICATION(rest) _ZN4absl7debian312Notification##rest
#define QUIRE_CONST_NOTIFICATION(rest) _ZNK4absl7debian312Notification##rest
#define QUIRE_PASTE_INNER(a, b) a##b
#define QUIRE_PASTE(a, b) QUIRE_PASTE_INNER(a, b)
#define QUIRE_REAL(symbol) QUIRE_PASTE(__real_, symbol)
#define QUIRE_WRAP(symbol) QUIRE_PASTE(__wrap_, symbol)

#define QUIRE_LOCK QUIRE_MUTEX(4LockEv)
#define QUIRE_UNLOCK QUIRE_MUTEX(6UnlockEv)
#define QUIRE_DESTROY QUIRE_MUTEX(D1Ev)
#define QUIRE_AWAIT QUIRE_MUTEX(5AwaitERKNS0_9ConditionE)
#define QUIRE_AWAIT_TIMEOUT QUIRE_MUTEX(16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE)
#define QUIRE_NOTIFY QUIRE_NOTIFICATION(6NotifyEv)
#define QUIRE_WAIT QUIRE_CONST_NOTIFICATION(19WaitForNotificationEv)
#define QUIRE_WAIT_TIMEOUT QUIRE_CONST_NOTIFICATION(30WaitForNotificationWithTimeoutENS0_8DurationE)

extern "C" {

void QUIRE_REAL(QUIRE_LOCK)(absl::Mutex* mutex);
void QUIRE_REAL(QUIRE_UNLOCK)(absl::Mutex* mutex);
void QUIRE_REAL(QUIRE_DESTROY)(absl::Mutex* mutex);
void QUIRE_REAL(QUIRE_AWAIT)(absl::Mutex* mutex, const absl::Condition& condition);
bool QUIRE_REAL(QUIRE_AWAIT_TIMEOUT)(absl::Mutex* mutex, const absl::Condition& condition,
                                     absl::Duration timeout);
void QUIRE_REAL(QUIRE_NOTIFY)(absl::Notification* notification);
void QUIRE_REAL(QUIRE_WAIT)(const absl::Notification* notification);
bool QUIRE_REAL(QUIRE_WAIT_TIMEOUT)(const absl::Notification* notification, absl::Duration timeout);

void QUIRE_WRAP(QUIRE_LOCK)(absl::Mutex* mutex) {
  __tsan_mutex_pre_lock(mutex, 0);
  QUIRE_REAL(QUIRE_LOCK)(mutex);
  __tsan_mutex_post_lock(mutex, 0, 0);
}

void QUIRE_WRAP(QUIRE_UNLOCK)(absl::Mutex* mutex) {
  __tsan_mutex_pre_unlock(mutex, 0);
  QUIRE_REAL(QUIRE_UNLOCK)(mutex);
  __tsan_mutex_post_unlock(mutex, 0);
}

void QUIRE_WRAP(QUIRE_DESTROY)(absl::Mutex* mutex) {
  __tsan_mutex_destroy(mutex, 0);
  QUIRE_REAL(QUIRE_DESTROY)(mutex);
}

void QUIRE_WRAP(QUIRE_AWAIT)(absl::Mutex* mutex, const absl::Condition& condition) {
  __tsan_mutex_pre_unlock(mutex, 0);
  __tsan_mutex_post_unlock(mutex, 0);
  __tsan_mutex_pre_lock(mutex, 0);
  QUIRE_REAL(QUIRE_AWAIT)(mutex, condition);
  __tsan_mutex_post_lock(mutex, 0, 0);
}

bool QUIRE_WRAP(QUIRE_AWAIT_TIMEOUT)(absl::Mutex* mutex, const absl::Condition& condition,
                                     absl::Duration timeout) {
  __tsan_mutex_pre_unlock(mutex, 0);
  __tsan_mutex_post_unlock(mutex, 0);
  __tsan_mutex_pre_lock(mutex, 0);
  const bool fulfilled = QUIRE_REAL(QUIRE_AWAIT_TIMEOUT)(mutex, condition, timeout);
  __tsan_mutex_post_lock(mutex, 0, 0);
  return fulfilled;
}

void QUIRE_WRAP(QUIRE_NOTIFY)(absl::Notification* notification) {
  __tsan_release(notification);
  QUIRE_REAL(QUIRE_NOTIFY)(notification);
}

void QUIRE_WRAP(QUIRE_WAIT)(const absl::Notification* notification) {
  QUIRE_REAL(QUIRE_WAIT)(notification);
  __tsan_acquire(const_cast<absl::Notification*>(notification));
}

bool QUIRE_WRAP(QUIRE_WAIT_TIMEOUT)(const absl::Notification* notification,
                                    absl::Duration timeout) {
  const bool notified = QUIRE_REAL(QUIRE_WAIT_TIMEOUT)(notification, timeout);
  if (notified) __tsan_acquire(const_cast<absl::Notification*>(notification));
  return notified;
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)
