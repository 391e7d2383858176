// Requests to an engine in this process: the server's conversions without its network.
#include <deque>
#include <memory>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/status.h"
#include "cli/target.h"
#include "server/convert.h"

namespace quire::cli {
namespace {

// Hands the engine's output from its thread to the dispatcher's.
class StreamQueue final : public engine::OutputSink {
 public:
  void OnOutput(std::vector<std::shared_ptr<engine::TokenStream>> streams) override {
    absl::MutexLock lock(&mutex_);
    for (auto& stream : streams) ready_.push_back(std::move(stream));
  }
  // Waits for output; false once closed.
  bool Take(std::deque<std::shared_ptr<engine::TokenStream>>* streams) {
    absl::MutexLock lock(&mutex_, absl::Condition(
                                      +[](StreamQueue* queue) ABSL_NO_THREAD_SAFETY_ANALYSIS {
                                        return queue->closed_ || !queue->ready_.empty();
                                      },
                                      this));
    streams->swap(ready_);
    return !closed_ || !streams->empty();
  }
  void Close() {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }

 private:
  absl::Mutex mutex_;
  std::deque<std::shared_ptr<engine::TokenStream>> ready_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

class EngineTarget final : public LocalTarget {
 public:
  EngineTarget() = default;
  ~EngineTarget() override {
    host_.reset();  // Every stream gets its terminal status.
    queue_.Close();
    if (dispatcher_.joinable()) dispatcher_.join();
  }

  const engine::EngineHost& host() const override { return *host_; }
  engine::OutputSink* sink() { return &queue_; }
  void Start(std::unique_ptr<engine::EngineHost> host) {
    host_ = std::move(host);
    dispatcher_ = std::thread([this] { Dispatch(); });
  }

  std::shared_ptr<server::Call> Generate(const v1::GenerateRequest& request,
                                         const server::CallOptions& options, OnResponse on_response,
                                         OnDone on_done) override {
    const absl::Time deadline = options.timeout == absl::InfiniteDuration()
                                    ? absl::InfiniteFuture()
                                    : Clock::Real().Now() + options.timeout;
    auto live = std::make_shared<LocalCall>();
    live->on_response = std::move(on_response);
    live->on_done = std::move(on_done);
    absl::Status status;
    {
      // The dispatcher may see a stream's first output before Submit has returned.
      absl::MutexLock lock(&mutex_);
      auto converted = server::ToEngine(request, request.model(), deadline);
      auto stream = converted.ok()
                        ? host_->engine->Submit(*std::move(converted))
                        : absl::StatusOr<std::shared_ptr<engine::TokenStream>>(converted.status());
      status = stream.status();
      if (stream.ok()) {
        live->engine = host_->engine.get();
        live->stream = *stream;
        live_[stream->get()] = live;
      }
    }
    if (!status.ok()) live->on_done({.status = status, .retry_after = std::nullopt});
    return live;
  }

  void EndSession(const std::string& session_id, const std::string& cache_salt,
                  absl::Duration timeout) override {
    host_->engine->EndSession(session_id, cache_salt, timeout).status().IgnoreError();
  }

 private:
  struct LocalCall final : public server::Call {
    void Cancel() override {
      if (stream != nullptr) engine->Abort(stream, absl::CancelledError("cancelled"));
    }
    engine::Engine* engine = nullptr;
    std::shared_ptr<engine::TokenStream> stream;
    OnResponse on_response;
    OnDone on_done;
  };

  void Dispatch() {
    std::deque<std::shared_ptr<engine::TokenStream>> streams;
    while (queue_.Take(&streams)) {
      for (const auto& stream : streams) Deliver(stream);
      streams.clear();
    }
  }

  void Deliver(const std::shared_ptr<engine::TokenStream>& stream) {
    const engine::StreamChunk chunk = stream->Take();
    std::shared_ptr<LocalCall> call;
    {
      absl::MutexLock lock(&mutex_);
      const auto found = live_.find(stream.get());
      if (found == live_.end()) return;
      call = found->second;
      if (chunk.terminal) live_.erase(found);
    }
    for (const auto& response : server::ToResponses(stream->request_id(), chunk)) {
      call->on_response(response);
    }
    if (chunk.terminal) call->on_done({.status = *chunk.terminal, .retry_after = std::nullopt});
  }

  StreamQueue queue_;
  std::unique_ptr<engine::EngineHost> host_;
  absl::Mutex mutex_;
  std::unordered_map<engine::TokenStream*, std::shared_ptr<LocalCall>> live_
      ABSL_GUARDED_BY(mutex_);
  std::thread dispatcher_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LocalTarget>> OpenLocalTarget(const EngineFlags& flags,
                                                             const CommandContext& context) {
  QUIRE_ASSIGN_OR_RETURN(engine::HostOptions options, MakeHostOptions(flags, context.environment));
  // Nobody else sends requests here, so nothing is gained by refusing any.
  options.engine.max_queued_requests = 1 << 20;
  options.engine.max_queued_prompt_tokens = std::int64_t{1} << 40;
  options.engine.max_logprobs = -1;
  auto target = std::make_unique<EngineTarget>();
  QUIRE_ASSIGN_OR_RETURN(auto host, StartHost(flags, options, target->sink(), context));
  target->Start(std::move(host));
  return target;
}

}  // namespace quire::cli
