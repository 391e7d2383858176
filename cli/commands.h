// The subcommands of `quire`, one file each. Every function adds its subcommand to `app`; when the
// command line chooses it, `*action` becomes what it does. Nothing is done before the whole command
// line has been read.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "cli/console.h"
#include "cli/environment.h"
#include "cli/exit_code.h"

namespace quire::cli {

struct CommandContext {
  Environment environment;
  Console console;
};

using Action = std::function<ExitCode()>;

void AddServeCommand(CLI::App& app, const CommandContext& context, Action* action);
void AddGenerateCommand(CLI::App& app, const CommandContext& context, Action* action);
void AddChatCommand(CLI::App& app, const CommandContext& context, Action* action);
void AddDemoCommand(CLI::App& app, const CommandContext& context, Action* action);
void AddInfoCommand(CLI::App& app, const CommandContext& context, Action* action);
void AddBenchCommand(CLI::App& app, const CommandContext& context, Action* action);
// Subcommands of `quire bench`.
void AddBenchThroughputCommand(CLI::App& bench_app, const CommandContext& context, Action* action);
void AddBenchCacheCommand(CLI::App& bench_app, const CommandContext& context, Action* action);
void AddPerplexityCommand(CLI::App& app, const CommandContext& context, Action* action);
void AddTokenizeCommand(CLI::App& app, const CommandContext& context, Action* action);
void AddPlanCommand(CLI::App& app, const CommandContext& context, Action* action);
void AddSimulateCommand(CLI::App& app, const CommandContext& context, Action* action);
void AddModelCommand(CLI::App& app, const CommandContext& context, Action* action);

}  // namespace quire::cli
