#include "cli/bench/local_load.h"

#include <utility>

#include "base/status.h"

namespace quire::cli::bench {

absl::StatusOr<LocalLoad> RunLocalLoad(
    LocalTarget& target, LocalLoadOptions options,
    const std::function<void(std::int32_t done, std::int32_t total)>& on_progress) {
  const engine::EngineHost& host = target.host();
  options.workload.vocab_size = host.engine->vocab_size();
  options.workload.max_model_len = host.report.max_model_len;
  QUIRE_ASSIGN_OR_RETURN(std::vector<BenchRequest> requests, MakeWorkload(options.workload));
  const LoadOptions load{.num_requests = static_cast<std::int32_t>(requests.size()),
                         .follows = FollowsOf(requests),
                         .max_concurrency = options.max_concurrency};
  RequestTarget sender(
      [&target](const v1::GenerateRequest& request, server::Client::OnResponse on_response,
                server::Client::OnDone on_done) {
        target.Generate(request, {}, std::move(on_response), std::move(on_done));
      },
      std::move(requests), options.requests);
  const auto before = host.engine->stats();
  LocalLoad result{.load = RunLoad(load, sender, [&](std::int32_t done) {
                     if (on_progress) on_progress(done, load.num_requests);
                   })};
  result.usage = UsageBetween(*before, *host.engine->stats(), host.engine->kv_geometry());
  result.answers = sender.answers();
  return result;
}

absl::Status WarmUp(LocalTarget& target, std::uint64_t seed) {
  const LocalLoadOptions options{.workload = {.kind = WorkloadKind::kFixed,
                                              .num_prompts = 1,
                                              .input_len = 8,
                                              .output_len = 4,
                                              .seed = ~seed}};
  QUIRE_ASSIGN_OR_RETURN(const LocalLoad warm, RunLocalLoad(target, options, {}));
  for (const RequestRecord& record : warm.load.records) QUIRE_RETURN_IF_ERROR(record.status);
  return absl::OkStatus();
}

}  // namespace quire::cli::bench
