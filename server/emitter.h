// The engine's OutputSink: one thread that carries "this stream has output" from the engine thread
// to the call that reads the stream, so that no socket is ever written on the engine thread.
//
// Ownership: shares readers with their calls until Detach. Must outlive the engine.
// Thread: OnOutput never blocks; all methods may be called from any thread. Readers are called on
// the emitter's thread.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "engine/token_stream.h"

namespace quire::server {

// A call that reads a stream.
class StreamReader {
 public:
  virtual ~StreamReader() = default;
  // There may be something to Take. Must not block.
  virtual void OnOutputReady() = 0;
  // The engine will never end this request: end the call with `status`, or as soon as possible.
  virtual void Fail(const absl::Status& status) = 0;
  // Once a second or so: gives up on a client that is cut off and does not even read that.
  virtual void OnTick() = 0;
};

class Emitter final : public engine::OutputSink {
 public:
  Emitter();
  ~Emitter() override;

  void OnOutput(std::vector<std::shared_ptr<engine::TokenStream>> streams) override;

  // Runs `job`, which must not block, on the emitter's thread; for output that is no stream's.
  void Post(std::function<void()> job);

  // From now on `reader` is told of output. What came before Attach is not told: the caller looks
  // once itself, after Attach.
  void Attach(const engine::TokenStream* stream, std::shared_ptr<StreamReader> reader);
  // No call of the reader starts after this returns, except one that runs right now.
  void Detach(const engine::TokenStream* stream);

  // For every attached reader.
  void FailAll(const absl::Status& status);
  void Tick();
  bool has_readers() const;

 private:
  void Run();
  std::vector<std::shared_ptr<StreamReader>> Readers() const;

  mutable absl::Mutex mutex_;
  absl::flat_hash_map<const engine::TokenStream*, std::shared_ptr<StreamReader>> readers_
      ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<engine::TokenStream>> ready_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> jobs_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace quire::server
