#include "server/generation_call.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/convert.h"
#include "server/wire.h"

namespace quire::server {
namespace {

constexpr char kRequestIdKey[] = "x-request-id";
// A client cancels at its deadline by its own clock, a little before ours says so.
constexpr absl::Duration kDeadlineSlack = absl::Milliseconds(20);

absl::Duration TimeLeft(const grpc::CallbackServerContext& context) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return absl::InfiniteDuration();
  return absl::FromChrono(deadline) - absl::Now();
}

// Why the client is gone.
absl::Status CancelReason(const grpc::CallbackServerContext& context) {
  if (TimeLeft(context) <= kDeadlineSlack) {
    return absl::DeadlineExceededError("the client's deadline passed");
  }
  return absl::CancelledError("the client cancelled the call");
}

// What the two kinds of call have in common: admission, the stream, and how the client is told.
class Admission {
 public:
  Admission(const ServiceContext& services, grpc::CallbackServerContext* context)
      : services_(services), context_(context) {}

  // Hands the request to the engine. An error is the call's status.
  absl::Status Submit(absl::StatusOr<v1::GenerateRequest> request) {
    auto pass = services_.gate->Enter(Gate::Kind::kGeneration);
    if (!pass.ok()) {
      CountRefused();
      return pass.status();
    }
    pass_ = *std::move(pass);
    QUIRE_RETURN_IF_ERROR(request.status());
    if (IsPlainId(request->request_id())) asked_id_ = request->request_id();
    const absl::Time deadline = services_.clock->Now() + TimeLeft(*context_);
    QUIRE_ASSIGN_OR_RETURN(
        auto converted,
        ToEngine(*std::move(request), pass_.model().model_info.served_model_name(), deadline));
    QUIRE_ASSIGN_OR_RETURN(stream_, pass_.engine().Submit(std::move(converted)));
    return absl::OkStatus();
  }

  void Attach(std::shared_ptr<StreamReader> reader) {
    services_.emitter->Attach(stream_.get(), std::move(reader));
  }

  // The client is gone or must go.
  void Abort(absl::Status why) {
    if (stream_ != nullptr) pass_.engine().Abort(stream_, std::move(why));
  }

  void Detach() {
    if (stream_ != nullptr) services_.emitter->Detach(stream_.get());
  }

  engine::TokenStream& stream() const { return *stream_; }

  void AddHeaders() { context_->AddInitialMetadata(kRequestIdKey, RequestId()); }

  // The status that ends the call. `refused`: the engine never accepted the request.
  grpc::Status Final(const absl::Status& status, bool refused) {
    if (!refused || status.ok()) return ToGrpc(status);
    if (const std::string id = RequestId(); !id.empty()) {
      context_->AddTrailingMetadata(kRequestIdKey, id);
    }
    if (!absl::IsResourceExhausted(status) || !pass_.inside()) return ToGrpc(status);
    const absl::Duration retry_after = pass_.engine().retry_after();
    context_->AddTrailingMetadata(kRetryAfterKey,
                                  std::to_string(absl::ToInt64Milliseconds(retry_after)));
    return ToGrpc(status, retry_after);
  }

 private:
  // Of a server that drains; while the model loads there is no engine to count.
  void CountRefused() {
    const auto pass = services_.gate->Enter(Gate::Kind::kControl);
    if (pass.ok()) pass->engine().CountRefused();
  }

  // The client's own x-request-id when it sent a usable one.
  std::string RequestId() const {
    const auto& metadata = context_->client_metadata();
    if (const auto found = metadata.find(kRequestIdKey); found != metadata.end()) {
      std::string id(found->second.data(), found->second.size());
      if (!id.empty() && IsPlainId(id)) return id;
    }
    return stream_ != nullptr ? stream_->request_id() : asked_id_;
  }

  const ServiceContext& services_;
  grpc::CallbackServerContext* const context_;
  Gate::Pass pass_;
  std::string asked_id_;  // Of the request itself.
  std::shared_ptr<engine::TokenStream> stream_;
};

class StreamingCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                            public StreamReader,
                            public std::enable_shared_from_this<StreamingCall> {
 public:
  StreamingCall(const ServiceContext& services, grpc::CallbackServerContext* context)
      : services_(services), context_(context), admission_(services, context) {}

  void Start(const grpc::ByteBuffer* request) {
    self_ = shared_from_this();
    const absl::Status status = admission_.Submit(TakeMessage<v1::GenerateRequest>(request));
    if (!status.ok()) {
      {
        absl::MutexLock lock(&mutex_);
        finished_ = true;
      }
      Finish(admission_.Final(status, /*refused=*/true));
      return;
    }
    admission_.Attach(self_);
    Pump();
  }

  void OnWriteDone(bool ok) override {
    {
      absl::MutexLock lock(&mutex_);
      writing_ = false;
      if (!ok) broken_ = true;
      if (admission_.stream().terminated()) cut_deadline_ = absl::InfiniteFuture();
    }
    if (!ok) admission_.Abort(CancelReason(*context_));
    Pump();
  }

  void OnCancel() override {
    {
      absl::MutexLock lock(&mutex_);
      if (finished_) return;
      broken_ = true;
    }
    admission_.Abort(CancelReason(*context_));
    Pump();
  }

  void OnDone() override {
    admission_.Detach();
    self_.reset();
  }

  void OnOutputReady() override { Pump(); }

  void Fail(const absl::Status& status) override {
    {
      absl::MutexLock lock(&mutex_);
      if (finished_ || terminal_.has_value()) return;
      outbox_.clear();
      terminal_ = status;
      if (writing_) context_->TryCancel();
    }
    admission_.Abort(status);
    Pump();
  }

  void OnTick() override {
    absl::MutexLock lock(&mutex_);
    if (!writing_ && !finished_) return;
    // Nothing more will come, so nothing else notices a client that does not read the rest, be it a
    // message or the status behind those that gRPC has taken already.
    const bool over = finished_ || admission_.stream().terminated();
    if (over && cut_deadline_ == absl::InfiniteFuture()) {
      cut_deadline_ = services_.clock->Now() + services_.cut_grace;
    }
    if (services_.clock->Now() > cut_deadline_) context_->TryCancel();
  }

 private:
  // Starts the next operation, if one is due.
  void Pump() {
    bool write = false;
    bool cut = false;
    std::optional<grpc::Status> end;
    {
      absl::MutexLock lock(&mutex_);
      if (finished_) return;
      if (writing_) {
        cut = ShouldCut();
      } else {
        write = NextMessage();
        if (terminal_.has_value() && outbox_.empty() && (!write || terminal_->ok())) {
          end = admission_.Final(*terminal_, /*refused=*/!headers_);
          finished_ = true;
        }
      }
    }
    if (cut) return Cut();
    if (write && end.has_value()) {
      StartWriteAndFinish(&message_, grpc::WriteOptions(), *end);
    } else if (write) {
      StartWrite(&message_);
    } else if (end.has_value()) {
      Finish(*end);
    }
  }

  // Fills message_ with the next thing to say; false when there is nothing.
  bool NextMessage() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    // Before the stream is asked: its terminal status must be found even if nothing else is said.
    if (broken_) outbox_.clear();
    if (outbox_.empty() && !terminal_.has_value()) {
      const engine::StreamChunk chunk = admission_.stream().Take();
      for (auto& response : ToResponses(admission_.stream().request_id(), chunk)) {
        outbox_.push_back(std::move(response));
      }
      if (chunk.terminal.has_value()) terminal_ = *chunk.terminal;
    }
    if (broken_) outbox_.clear();
    if (outbox_.empty()) return false;
    if (!headers_) {
      admission_.AddHeaders();
      headers_ = true;
    }
    const absl::Status fits = PutMessage(outbox_.front(), &message_);
    outbox_.pop_front();
    if (!fits.ok()) {
      outbox_.clear();
      terminal_ = fits;
      return false;
    }
    writing_ = true;
    return true;
  }

  bool ShouldCut() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (cut_deadline_ != absl::InfiniteFuture() ||
        admission_.stream().num_pending_tokens() <= services_.max_unread_tokens) {
      return false;
    }
    cut_deadline_ = services_.clock->Now() + services_.cut_grace;
    return true;
  }

  void Cut() {
    spdlog::warn("request {}: cut, its client leaves more than {} tokens unread",
                 admission_.stream().request_id(), services_.max_unread_tokens);
    admission_.Abort(
        ResourceExhausted("the client reads too slowly: more than {} tokens are waiting for it",
                          services_.max_unread_tokens));
  }

  const ServiceContext& services_;
  grpc::CallbackServerContext* const context_;
  Admission admission_;
  std::shared_ptr<StreamingCall> self_;  // Until OnDone.

  absl::Mutex mutex_;
  std::deque<v1::GenerateResponse> outbox_ ABSL_GUARDED_BY(mutex_);  // The rest of a chunk.
  std::optional<absl::Status> terminal_ ABSL_GUARDED_BY(mutex_);
  absl::Time cut_deadline_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  bool headers_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;    // The client hears nothing any more.
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // The last operation has been started.
  grpc::ByteBuffer message_;                       // In flight while writing_.
};

class UnaryCall final : public grpc::ServerUnaryReactor,
                        public StreamReader,
                        public std::enable_shared_from_this<UnaryCall> {
 public:
  UnaryCall(const ServiceContext& services, grpc::CallbackServerContext* context,
            grpc::ByteBuffer* response)
      : context_(context), response_(response), admission_(services, context) {}

  void Start(const grpc::ByteBuffer* request) {
    self_ = shared_from_this();
    auto message = TakeMessage<v1::GenerateUnaryRequest>(request);
    const absl::Status status = admission_.Submit(
        message.ok() ? absl::StatusOr<v1::GenerateRequest>(std::move(*message->mutable_request()))
                     : message.status());
    if (!status.ok()) {
      End(status);
      return;
    }
    admission_.Attach(self_);
    OnOutputReady();
  }

  void OnCancel() override { admission_.Abort(CancelReason(*context_)); }

  void OnDone() override {
    admission_.Detach();
    self_.reset();
  }

  void OnOutputReady() override {
    std::optional<absl::Status> terminal;
    {
      absl::MutexLock lock(&mutex_);
      if (finished_) return;
      engine::StreamChunk chunk = admission_.stream().Take();
      answer_.Add(admission_.stream().request_id(), chunk);
      accepted_ = accepted_ || chunk.accepted.has_value();
      terminal = std::move(chunk.terminal);
    }
    if (terminal.has_value()) End(*terminal);
  }

  void Fail(const absl::Status& status) override {
    admission_.Abort(status);
    End(status);
  }

  void OnTick() override {}

 private:
  void End(absl::Status status) {
    grpc::Status end;
    {
      absl::MutexLock lock(&mutex_);
      if (finished_) return;
      finished_ = true;
      if (status.ok()) status = PutMessage(answer_.response(), response_);
      if (accepted_) admission_.AddHeaders();
      end = admission_.Final(status, /*refused=*/!accepted_);
    }
    Finish(end);
  }

  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const response_;
  Admission admission_;
  std::shared_ptr<UnaryCall> self_;  // Until OnDone.

  absl::Mutex mutex_;
  UnaryAnswer answer_ ABSL_GUARDED_BY(mutex_);
  bool accepted_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartStreamingCall(const ServiceContext& services,
                                                               grpc::CallbackServerContext* context,
                                                               const grpc::ByteBuffer* request) {
  auto call = std::make_shared<StreamingCall>(services, context);
  call->Start(request);
  return call.get();
}

grpc::ServerUnaryReactor* StartUnaryCall(const ServiceContext& services,
                                         grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) {
  auto call = std::make_shared<UnaryCall>(services, context, response);
  call->Start(request);
  return call.get();
}

}  // namespace quire::server
