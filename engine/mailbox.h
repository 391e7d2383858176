// Where other threads leave messages for the engine thread, and where that thread sleeps.
//
// Thread: Send, Poke and Close from any thread; Wait from the engine thread only.
// Size: requests are bounded by the ledger's caps, aborts by one per live request, queries by the
// number of callers that wait for an answer, and pokes merge into one.
#pragma once

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "block_manager/session_leases.h"
#include "engine/kv_event_hub.h"
#include "engine/request_state.h"
#include "engine/stats.h"

namespace quire::engine {

// The answer to a query. Shared by the caller, who may give up waiting, and the engine thread.
template <class T>
struct Reply {
  absl::StatusOr<T> value = absl::UnknownError("not answered");
  absl::Notification ready;
  void Answer(absl::StatusOr<T> answer) {
    value = std::move(answer);
    ready.Notify();
  }
};

struct NewRequestMail {
  std::shared_ptr<Request> request;
};
struct AbortMail {
  std::shared_ptr<Request> request;
  absl::Status status;
};
// Every request that is alive when this is read.
struct AbortAllMail {
  absl::Status status;
};
struct BlockMapMail {
  std::shared_ptr<Reply<BlockMap>> reply;
};
struct ResetPrefixCacheMail {
  std::shared_ptr<Reply<std::int64_t>> reply;
};
struct EndSessionMail {
  block_manager::SessionKey session;
  std::shared_ptr<Reply<bool>> reply;
};
struct KvSubscribeMail {
  std::shared_ptr<KvEventSubscription> subscription;
};

using Mail = std::variant<NewRequestMail, AbortMail, AbortAllMail, BlockMapMail,
                          ResetPrefixCacheMail, EndSessionMail, KvSubscribeMail>;

class Mailbox {
 public:
  // False, and the mail is dropped, once closed.
  bool Send(Mail mail);

  // Wakes the engine thread without a message.
  void Poke();

  // Nothing is accepted any more; mail that is already here can still be read.
  void Close();

  // Moves all mail into `out` (emptied first; its memory is reused), sleeping up to `timeout` until
  // there is mail, a poke or the end. Returns false once closed.
  bool Wait(absl::Duration timeout, std::vector<Mail>& out);

 private:
  bool Awake() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return poked_ || closed_ || !mail_.empty();
  }

  absl::Mutex mutex_;
  std::vector<Mail> mail_ ABSL_GUARDED_BY(mutex_);
  bool poked_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace quire::engine
