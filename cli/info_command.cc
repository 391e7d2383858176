// quire info
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/table.h"
#include "server/client.h"

namespace quire::cli {
namespace {

using nlohmann::ordered_json;

struct InfoFlags {
  std::string server;
  bool json = false;
};

struct ServerFacts {
  v1::GetServerInfoResponse server;
  v1::GetModelInfoResponse model;
  v1::Stats stats;
};

absl::StatusOr<ServerFacts> Ask(const std::string& target) {
  QUIRE_ASSIGN_OR_RETURN(const auto client, server::Client::Connect({.target = target}));
  ServerFacts facts;
  QUIRE_ASSIGN_OR_RETURN(facts.server, client->GetServerInfo());
  QUIRE_ASSIGN_OR_RETURN(facts.model, client->GetModelInfo());
  QUIRE_ASSIGN_OR_RETURN(facts.stats, client->GetStats());
  return facts;
}

ordered_json ServerJson(const v1::GetServerInfoResponse& server) {
  ordered_json object = {{"version", server.version()},
                         {"build", server.build()},
                         {"backend", server.backend()},
                         {"isa", server.isa()},
                         {"threads", server.threads()},
                         {"uptime_seconds", server.uptime_seconds()},
                         {"block_size", server.block_size()},
                         {"num_blocks", server.num_blocks()},
                         {"kv_bytes", server.kv_bytes()},
                         {"kv_bytes_per_token", server.kv_bytes_per_token()},
                         {"weight_bytes", server.weight_bytes()},
                         {"max_model_len", server.max_model_len()},
                         {"max_num_seqs", server.max_num_seqs()},
                         {"max_num_batched_tokens", server.max_num_batched_tokens()},
                         {"max_prefill_tokens", server.max_prefill_tokens()}};
  object["settings"] = ordered_json::object();
  for (const auto& [name, value] : server.settings()) object["settings"][name] = value;
  object["startup_seconds"] = ordered_json::object();
  for (const auto& [stage, seconds] : server.startup_seconds()) {
    object["startup_seconds"][stage] = seconds;
  }
  return object;
}

ordered_json ModelJson(const v1::GetModelInfoResponse& model) {
  return {{"served_model_name", model.served_model_name()},
          {"model_path", model.model_path()},
          {"architecture", model.architecture()},
          {"num_parameters", model.num_parameters()},
          {"num_layers", model.num_layers()},
          {"num_heads", model.num_heads()},
          {"num_kv_heads", model.num_kv_heads()},
          {"head_dim", model.head_dim()},
          {"hidden_size", model.hidden_size()},
          {"vocab_size", model.vocab_size()},
          {"weight_format", model.weight_format()},
          {"kv_cache_dtype", model.kv_cache_dtype()},
          {"chat_template", model.chat_template()}};
}

ordered_json StatsJson(const v1::Stats& stats) {
  return {{"active", stats.blocks().active()},
          {"cached", stats.blocks().cached()},
          {"free", stats.blocks().free()},
          {"leased", stats.blocks().leased()},
          {"sessions", stats.blocks().sessions()},
          {"peak_active", stats.blocks().peak_active()},
          {"requests_running", stats.requests().running()},
          {"requests_queued", stats.requests().queued()},
          {"requests_received", stats.requests().received()},
          {"preemptions", stats.preemptions()},
          {"generation_tokens", stats.generation_tokens()},
          {"healthy", stats.healthy()},
          {"draining", stats.draining()}};
}

void PrintTable(const ServerFacts& facts, std::ostream& out) {
  const v1::GetServerInfoResponse& server = facts.server;
  const v1::GetModelInfoResponse& model = facts.model;
  const v1::BlockStats& blocks = facts.stats.blocks();
  Table table({{""}, {""}});
  table.AddRow({"quire", fmt::format("{} ({}), up {}", server.version(), server.build(),
                                     DurationText(absl::Seconds(server.uptime_seconds())))});
  table.AddRow({"model", fmt::format("{}, {} parameters, context {}", model.served_model_name(),
                                     FormatCount(model.num_parameters()),
                                     FormatCount(server.max_model_len()))});
  table.AddRow({"weights",
                fmt::format("{}, {}", model.weight_format(), FormatBytes(server.weight_bytes()))});
  table.AddRow({"kernels", fmt::format("{} {}, {}", server.backend(), server.isa(),
                                       Counted(server.threads(), "thread"))});
  table.AddRow({"KV pool", fmt::format("{} blocks of {} tokens, {}, {}",
                                       FormatCount(server.num_blocks()), server.block_size(),
                                       model.kv_cache_dtype(), FormatBytes(server.kv_bytes()))});
  table.AddRow({"blocks now", fmt::format("{} active, {} cached, {} free", blocks.active(),
                                          blocks.cached(), blocks.free())});
  table.AddRow({"sessions now",
                fmt::format("{}, {} of the cached blocks", blocks.sessions(), blocks.leased())});
  table.AddRow({"requests now",
                fmt::format("{} running, {} queued, {} in all", facts.stats.requests().running(),
                            facts.stats.requests().queued(),
                            FormatCount(facts.stats.requests().received()))});
  table.AddRow({"state", facts.stats.draining()  ? "draining"
                         : facts.stats.healthy() ? "healthy"
                                                 : "unhealthy (see its log)"});
  table.Print(out);
}

ExitCode Info(const InfoFlags& flags, const CommandContext& context) {
  const auto facts = Ask(flags.server);
  if (!facts.ok()) return context.console.Fail(facts.status());
  if (flags.json) {
    ordered_json object = ServerJson(facts->server);
    object["model"] = ModelJson(facts->model);
    object["stats"] = StatsJson(facts->stats);
    context.console.out << object.dump(2) << std::endl;
  } else {
    PrintTable(*facts, context.console.out);
  }
  return ExitCode::kOk;
}

}  // namespace

void AddInfoCommand(CLI::App& app, const CommandContext& context, Action* action) {
  auto flags = std::make_shared<InfoFlags>();
  auto* info = app.add_subcommand("info", "What a server is and what it is doing");
  AddServer(*info, &flags->server, "a running quire serve")->required();
  AddSwitch(*info, "--json", &flags->json, "print a JSON object with every effective setting");
  info->footer("Example:\n  quire info --server 127.0.0.1:50051 --json");
  info->callback([=] { *action = [=] { return Info(*flags, context); }; });
}

}  // namespace quire::cli
