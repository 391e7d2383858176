#include "server/kv_event_call.h"

#include <utility>

#include "base/check.h"
#include "server/convert.h"
#include "server/wire.h"

namespace quire::server {
namespace {

constexpr std::size_t kSoftMessageBytes = 1 << 20;

}  // namespace

KvEventCall::KvEventCall(const ServiceContext& services, grpc::CallbackServerContext* context,
                         Gate::Pass pass)
    : services_(services),
      context_(context),
      pass_(std::move(pass)),
      block_size_(pass_.engine().kv_geometry().block_size) {}

void KvEventCall::Start() {
  self_ = shared_from_this();
  // The engine thread must not become the last owner of a call, so the weak pointer travels on.
  auto subscription =
      pass_.engine().SubscribeKvEvents([weak = weak_from_this(), emitter = services_.emitter] {
        emitter->Post([weak] {
          if (const auto call = weak.lock()) call->Pump();
        });
      });
  if (!subscription.ok()) return End(subscription.status());
  {
    absl::MutexLock lock(&mutex_);
    subscription_ = *std::move(subscription);
  }
  StartSendInitialMetadata();
  Pump();
}

void KvEventCall::End(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (!end_.has_value()) end_ = status;
  }
  Pump();
}

void KvEventCall::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    if (!ok && !end_.has_value()) end_ = absl::CancelledError();
  }
  Pump();
}

void KvEventCall::OnCancel() { End(absl::CancelledError("the client cancelled the call")); }

void KvEventCall::OnDone() { self_.reset(); }

void KvEventCall::Pump() {
  bool write = false;
  bool cut = false;
  std::optional<absl::Status> end;
  {
    absl::MutexLock lock(&mutex_);
    if (finished_) return;
    if (!end_.has_value() && subscription_ != nullptr) {
      if (absl::Status status = subscription_->status(); !status.ok()) end_ = std::move(status);
    }
    if (writing_) {
      cut = end_.has_value() && !std::exchange(cut_due_, true);
    } else if (end_.has_value()) {
      finished_ = true;
      end = end_;
      batch_.reset();
      subscription_.reset();
    } else {
      write = writing_ = NextMessage();
    }
  }
  if (cut) CutLater();
  if (write) StartWrite(&message_);
  if (end.has_value()) Finish(ToGrpc(*end));
}

bool KvEventCall::NextMessage() {
  if (batch_ == nullptr) {
    num_sent_ = 0;
    batch_ = subscription_->Next();
    if (batch_ == nullptr) return false;
  }
  v1::KvEventBatch message;
  message.set_sequence_number(++sequence_number_);
  message.set_snapshot(batch_->snapshot);
  message.set_block_size(block_size_);
  std::size_t bytes = 0;
  while (num_sent_ < batch_->events.size() && bytes < kSoftMessageBytes) {
    v1::KvEvent* event = message.add_events();
    *event = ToProto(batch_->events[num_sent_++]);
    bytes += event->ByteSizeLong();
  }
  if (num_sent_ == batch_->events.size()) batch_.reset();
  const absl::Status fits = PutMessage(message, &message_);
  QUIRE_DCHECK(fits.ok());
  return true;
}

void KvEventCall::CutLater() {
  services_.timers->AddPeriodic(services_.cut_grace, [weak = weak_from_this()] {
    if (const auto call = weak.lock()) call->context_->TryCancel();
    return false;
  });
}

}  // namespace quire::server
