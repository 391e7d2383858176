#include "cli/target.h"

#include <utility>

#include "base/status.h"

namespace quire::cli {
namespace {

class RemoteTarget final : public Target {
 public:
  explicit RemoteTarget(std::unique_ptr<server::Client> client) : client_(std::move(client)) {}
  std::shared_ptr<server::Call> Generate(const v1::GenerateRequest& request,
                                         const server::CallOptions& options, OnResponse on_response,
                                         OnDone on_done) override {
    return client_->Generate(request, options, std::move(on_response), std::move(on_done));
  }
  void EndSession(const std::string& session_id, const std::string& cache_salt,
                  absl::Duration timeout) override {
    client_->EndSession(session_id, cache_salt, timeout).status().IgnoreError();
  }

 private:
  const std::unique_ptr<server::Client> client_;
};

}  // namespace

void AddTargetFlags(CLI::App& app, TargetFlags* flags) {
  auto* server = AddServer(app, &flags->server,
                           "a running quire serve; else --model runs one in this process");
  AddEngineFlags(app, &flags->engine)->excludes(server);
  AddChatTemplateFlag(app, &flags->engine);
}

absl::Status CheckTargetFlags(const TargetFlags& flags, const Environment& environment) {
  if (flags.server.empty() == flags.engine.model.model.empty()) {
    return InvalidArgument("needs either --server HOST:PORT or --model MODEL");
  }
  if (!flags.server.empty()) return absl::OkStatus();
  return MakeHostOptions(flags.engine, environment).status();
}

absl::StatusOr<std::unique_ptr<Target>> OpenTarget(const TargetFlags& flags,
                                                   const CommandContext& context) {
  if (flags.server.empty()) return OpenLocalTarget(flags.engine, context);
  server::ClientOptions options;
  options.target = flags.server;
  QUIRE_ASSIGN_OR_RETURN(auto client, server::Client::Connect(options));
  return std::make_unique<RemoteTarget>(std::move(client));
}

}  // namespace quire::cli
