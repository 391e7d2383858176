#include "server/emitter.h"

#include <iterator>
#include <utility>

namespace quire::server {

Emitter::Emitter() : thread_([this] { Run(); }) {}

Emitter::~Emitter() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void Emitter::OnOutput(std::vector<std::shared_ptr<engine::TokenStream>> streams) {
  absl::MutexLock lock(&mutex_);
  if (ready_.empty()) {
    ready_ = std::move(streams);
  } else {
    ready_.insert(ready_.end(), std::make_move_iterator(streams.begin()),
                  std::make_move_iterator(streams.end()));
  }
}

void Emitter::Post(std::function<void()> job) {
  absl::MutexLock lock(&mutex_);
  jobs_.push_back(std::move(job));
}

void Emitter::Attach(const engine::TokenStream* stream, std::shared_ptr<StreamReader> reader) {
  absl::MutexLock lock(&mutex_);
  readers_[stream] = std::move(reader);
}

void Emitter::Detach(const engine::TokenStream* stream) {
  absl::MutexLock lock(&mutex_);
  readers_.erase(stream);
}

void Emitter::FailAll(const absl::Status& status) {
  for (const auto& reader : Readers()) reader->Fail(status);
}

void Emitter::Tick() {
  for (const auto& reader : Readers()) reader->OnTick();
}

bool Emitter::has_readers() const {
  absl::MutexLock lock(&mutex_);
  return !readers_.empty();
}

std::vector<std::shared_ptr<StreamReader>> Emitter::Readers() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<StreamReader>> out;
  out.reserve(readers_.size());
  for (const auto& [stream, reader] : readers_) out.push_back(reader);
  return out;
}

void Emitter::Run() {
  std::vector<std::shared_ptr<engine::TokenStream>> streams;
  std::vector<std::shared_ptr<StreamReader>> readers;
  std::vector<std::function<void()>> jobs;
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(
          +[](Emitter* self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(self->mutex_) {
            return self->stopping_ || !self->ready_.empty() || !self->jobs_.empty();
          },
          this));
      if (stopping_) return;
      jobs.swap(jobs_);
      streams.swap(ready_);
      for (const auto& stream : streams) {
        if (const auto found = readers_.find(stream.get()); found != readers_.end()) {
          readers.push_back(found->second);
        }
      }
    }
    for (const auto& job : jobs) job();
    jobs.clear();
    for (const auto& reader : readers) reader->OnOutputReady();
    readers.clear();
    streams.clear();
  }
}

}  // namespace quire::server
