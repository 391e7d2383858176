// quire serve
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "cli/atomic_file.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/signals.h"
#include "cli/table.h"
#include "server/server.h"
#include "server/status.h"

namespace quire::cli {
namespace {

struct ServeFlags {
  EngineFlags engine;
  server::ServerOptions server;
  std::int32_t http_port = 8081;
  bool no_http = false;
  std::string served_model_name;
  std::string ready_file;
  absl::Duration drain_timeout = absl::Seconds(30);
  spdlog::level::level_enum log_level = spdlog::level::info;
};

// The file that tells scripts where the server listens. Removed when the server ends.
class ReadyFile {
 public:
  // An empty path: no file. What an earlier server left is removed at once.
  explicit ReadyFile(std::string path) : path_(std::move(path)) { Remove(); }
  ~ReadyFile() { Remove(); }
  ReadyFile(const ReadyFile&) = delete;
  ReadyFile& operator=(const ReadyFile&) = delete;

  absl::Status Write(const server::Server& server) {
    if (path_.empty()) return absl::OkStatus();
    const nlohmann::ordered_json content = {
        {"grpc_port", server.grpc_port()}, {"http_port", server.http_port()}, {"pid", getpid()}};
    return WriteFileAtomically(path_, content.dump() + "\n");
  }

 private:
  void Remove() {
    if (!path_.empty()) std::remove(path_.c_str());
  }
  const std::string path_;
};

// What a signal means, depending on how far the server is.
class StopSwitch {
 public:
  void OnSignal(int signal, int count) {
    server::Server* const server = server_.load();
    if (server == nullptr) ExitNow(128 + signal);  // Loading or ending: nothing is owed to anybody.
    if (count == 1) {
      spdlog::info("draining; a second signal ends at once");
      stop_.Notify();
    } else if (count == 2) {
      server->StopNow();
    } else {
      ExitNow(128 + signal);
    }
  }
  // Null: no requests can be lost.
  void SetServing(server::Server* server) { server_.store(server); }
  void Wait() { stop_.WaitForNotification(); }

 private:
  std::atomic<server::Server*> server_ = nullptr;
  absl::Notification stop_;
};

std::string StageText(const engine::HostReport& report) {
  std::string text;
  double total = 0;
  for (const auto& [stage, seconds] : report.stage_seconds) {
    text += fmt::format("{} {}, ", stage, DurationText(absl::Seconds(seconds)));
    total += seconds;
  }
  return text + "in all " + DurationText(absl::Seconds(total));
}

// HOST:PORT, with brackets around an IPv6 address.
std::string HostPort(const std::string& host, std::int32_t port) {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return is_ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

void PrintStartUp(const engine::EngineHost& host, const ServeFlags& flags,
                  const server::Server& server, std::ostream& err) {
  const engine::HostReport& report = host.report;
  Table table({{""}, {""}});
  table.AddRow(
      {"model", fmt::format("{} ({}, {} layers, context {})",
                            server::PrintableMessage(report.model_name), report.model_format,
                            host.config.num_layers, FormatCount(report.max_model_len))});
  table.AddRow(
      {"weights", fmt::format("{}, {}", report.weight_format, FormatBytes(report.weight_bytes))});
  table.AddRow({"KV pool",
                fmt::format("{} blocks of {} tokens, {}, {} ({} per token), committed as used",
                            FormatCount(report.num_blocks), report.block_size, report.kv_dtype,
                            FormatBytes(report.kv_bytes), FormatBytes(report.kv_bytes_per_token))});
  table.AddRow({"activations", FormatBytes(report.activation_bytes)});
  table.AddRow({"kernels", fmt::format("{} {}, {}", report.backend, report.isa,
                                       Counted(report.threads, "thread"))});
  table.AddRow({"chat", report.chat_template.empty() ? "no template" : report.chat_template});
  table.AddRow({"start-up", StageText(report)});
  table.AddRow({"gRPC", HostPort(flags.server.host, server.grpc_port())});
  if (server.http_port() != 0) {
    table.AddRow({"HTTP", fmt::format("http://{}/metrics",
                                      HostPort(flags.server.host, server.http_port()))});
  }
  table.Print(err);
  err.flush();
}

// A model that was asked for by name keeps that name.
std::string ServedName(const ServeFlags& flags, const engine::HostReport& report) {
  if (!flags.served_model_name.empty()) return flags.served_model_name;
  for (const KnownModel& known : KnownModels()) {
    if (known.name == flags.engine.model.model) return known.name;
  }
  return report.model_name;
}

// Every flag of serve, by its name, with the value that holds now.
std::map<std::string, std::string> Settings(const ServeFlags& flags,
                                            const engine::HostOptions& host_options,
                                            const engine::HostReport& report,
                                            const server::Server& server) {
  auto settings = EffectiveSettings(host_options, report);
  settings["served-model-name"] = ServedName(flags, report);
  settings["host"] = flags.server.host;
  settings["port"] = std::to_string(server.grpc_port());
  settings["http-port"] = flags.no_http ? "none" : std::to_string(server.http_port());
  settings["insecure-listen"] = flags.server.insecure_listen ? "true" : "false";
  settings["ready-file"] = flags.ready_file;
  settings["drain-timeout"] = absl::FormatDuration(flags.drain_timeout);
  const auto level = spdlog::level::to_string_view(flags.log_level);
  settings["log-level"] = std::string(level.data(), level.size());
  return settings;
}

// As many file descriptors as the system grants: gRPC's listener does not survive their lack, and a
// connection takes one.
absl::Status RaiseFileLimit() {
  constexpr rlim_t kLeast = 64;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return absl::OkStatus();
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_max >= kLeast) return absl::OkStatus();
  return FailedPrecondition("at most {} files may be open here, serving needs {} (ulimit -n)",
                            limit.rlim_max, kLeast);
}

absl::Status ServeUntilSignal(const ServeFlags& flags, const engine::HostOptions& host_options,
                              const CommandContext& context) {
  QUIRE_RETURN_IF_ERROR(RaiseFileLimit());
  StopSwitch stop;
  const SignalListener signals([&](int signal, int count) { stop.OnSignal(signal, count); });
  ReadyFile ready_file(flags.ready_file);
  QUIRE_ASSIGN_OR_RETURN(const auto server, server::Server::Start(flags.server));
  QUIRE_ASSIGN_OR_RETURN(const auto host,
                         StartHost(flags.engine, host_options, server->sink(), context));
  server->Serve(server::DescribeHost(*host, ServedName(flags, host->report),
                                     Settings(flags, host_options, host->report, *server)));
  stop.SetServing(server.get());
  PrintStartUp(*host, flags, *server, context.console.err);
  const absl::Status ready = ready_file.Write(*server);
  if (ready.ok()) {
    spdlog::info("serving {}", server::PrintableMessage(ServedName(flags, host->report)));
    stop.Wait();
  }
  // Before `host` goes, whatever happened: the server's threads use its engine.
  server->Shutdown(ready.ok() ? flags.drain_timeout : absl::ZeroDuration());
  stop.SetServing(nullptr);
  QUIRE_RETURN_IF_ERROR(ready);
  spdlog::info("stopped");
  return absl::OkStatus();
}

ExitCode Serve(ServeFlags flags, const CommandContext& context) {
  spdlog::set_level(flags.log_level);
  if (!flags.no_http) flags.server.http_port = flags.http_port;
  if (flags.no_http) flags.server.http_port.reset();
  const absl::Status server_flags = flags.server.Validate();
  if (!server_flags.ok()) return context.console.Fail(server_flags, ExitCode::kUsage);
  const auto host_options = MakeHostOptions(flags.engine, context.environment);
  if (!host_options.ok()) return context.console.Fail(host_options.status(), ExitCode::kUsage);
  const absl::Status status = ServeUntilSignal(flags, *host_options, context);
  return status.ok() ? ExitCode::kOk : context.console.Fail(status);
}

}  // namespace

void AddServeCommand(CLI::App& app, const CommandContext& context, Action* action) {
  auto flags = std::make_shared<ServeFlags>();
  auto* serve = app.add_subcommand("serve", "Serve a model over gRPC");
  AddEngineFlags(*serve, &flags->engine)->required();
  AddChatTemplateFlag(*serve, &flags->engine);
  AddServerLimitFlags(*serve, &flags->engine);
  serve->add_option("--host", flags->server.host, "address to listen on")->capture_default_str();
  AddInt(*serve, "--port", &flags->server.port, {0, 65'535}, "gRPC port; 0 picks a free one");
  auto* http_port = AddInt(*serve, "--http-port", &flags->http_port, {0, 65'535},
                           "port of /metrics and /health; 0 picks a free one");
  AddSwitch(*serve, "--no-http", &flags->no_http, "no HTTP port")->excludes(http_port);
  AddSwitch(*serve, "--insecure-listen", &flags->server.insecure_listen,
            "allow an address beyond loopback: anyone who reaches it may use the server");
  serve
      ->add_option("--served-model-name", flags->served_model_name,
                   "name of the model for clients (default: its own)")
      ->type_name("NAME");
  AddOutputFile(*serve, "--ready-file", &flags->ready_file,
                "gets {\"grpc_port\", \"http_port\", \"pid\"} when the server is ready");
  AddSeconds(*serve, "--drain-timeout", &flags->drain_timeout,
             "how long running requests may go on after a signal")
      ->default_str("30");
  AddChoice<spdlog::level::level_enum>(*serve, "--log-level", &flags->log_level,
                                       {{"debug", spdlog::level::debug},
                                        {"info", spdlog::level::info},
                                        {"warning", spdlog::level::warn},
                                        {"error", spdlog::level::err}},
                                       "what is logged on stderr");
  serve->footer(
      "SIGINT or SIGTERM drains: new requests are refused, running ones go on; a second signal\n"
      "aborts those, too.\n\n"
      "Examples:\n"
      "  quire serve --model smollm2-135m\n"
      "  quire serve --model model.gguf --port 0 --http-port 0 --ready-file ready.json\n"
      "  quire serve --model /models/llama --kv-cache-memory 4GiB --max-num-seqs 128");
  serve->callback([=] { *action = [=] { return Serve(*flags, context); }; });
}

}  // namespace quire::cli
