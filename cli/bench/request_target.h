// The requests of a workload, sent to whatever takes quire.v1 requests: a server or an engine in
// this process. Later turns of a conversation get the answers so far before their own prompt.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "cli/bench/load.h"
#include "cli/bench/workload.h"
#include "quire/v1/generation.pb.h"
#include "server/client.h"

namespace quire::cli::bench {

struct RequestTargetOptions {
  enum class AtEos { kGoOn, kStop };
  AtEos at_eos = AtEos::kGoOn;
  // How conversations, and answers, find their past.
  enum class Past {
    kWholeText,  // Every turn sends the whole text.
    kSession,    // Every turn but the first continues a session and sends only what is new.
    // Every token is a request of its own with the whole text before it: no cache at all.
    // REQUIRES: kGoOn.
    kEveryToken,
  };
  Past past = Past::kWholeText;
};

class RequestTarget final : public LoadTarget {
 public:
  // Starts a request; calls back from any one thread.
  using Generate =
      std::function<void(const v1::GenerateRequest& request, server::Client::OnResponse on_response,
                         server::Client::OnDone on_done)>;
  RequestTarget(Generate generate, std::vector<BenchRequest> requests,
                const RequestTargetOptions& options);
  ~RequestTarget() override;

  absl::Time Now() override;
  void Send(std::int32_t index) override;
  std::vector<LoadEvent> WaitUntil(absl::Time until) override;

  // The tokens of every answer, as far as WaitUntil has told of them.
  const std::vector<std::vector<TokenId>>& answers() const { return answers_; }

 private:
  class Queue;
  void SendMessage(std::int32_t index);
  v1::GenerateRequest MakeMessage(std::int32_t index) const;
  // With kEveryToken: whether the event belongs to the load, and not to one of many requests.
  bool BookToken(LoadEvent& event);

  const Generate generate_;
  const std::vector<BenchRequest> requests_;
  const RequestTargetOptions options_;
  std::vector<std::vector<TokenId>> texts_;  // Whole prompts.
  std::vector<std::vector<TokenId>> answers_;
  // Shared with callbacks still on their way.
  const std::shared_ptr<Queue> queue_;
};

}  // namespace quire::cli::bench
