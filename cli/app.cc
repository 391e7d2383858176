#include "cli/app.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>

#include "cli/help_formatter.h"

namespace quire::cli {
namespace {

constexpr const char* kDescription = "Quire serves language models out of paged KV blocks.";

constexpr const char* kFooter = R"(Exit codes:
  0         done
  1         the work could not be done, or at least one request failed
  2         a flag, an argument or a line of an input file is wrong; nothing was started
  130, 143  ended by SIGINT or SIGTERM before the work was done

Environment:
  QUIRE_HOME  the cache folder of models (default ~/.cache/quire)
  QUIRE_ISA   forces a level of the CPU kernels, such as avx2

Examples:
  quire serve --model smollm2-135m
  quire generate --server 127.0.0.1:50051 --prompt "Once upon a time" --max-tokens 32
  quire chat --model smollm2-135m

Each command has its own help: quire generate --help)";

void AddCommands(CLI::App& app, const CommandContext& context, Action* action) {
  AddServeCommand(app, context, action);
  AddGenerateCommand(app, context, action);
  AddChatCommand(app, context, action);
  AddDemoCommand(app, context, action);
  AddInfoCommand(app, context, action);
  AddBenchCommand(app, context, action);
  AddPerplexityCommand(app, context, action);
  AddTokenizeCommand(app, context, action);
  AddPlanCommand(app, context, action);
  AddSimulateCommand(app, context, action);
  AddModelCommand(app, context, action);
}

// The command whose help explains the fault: `quire`, `quire bench`, `quire bench serve`, ….
const CLI::App& ChosenCommand(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : ChosenCommand(*chosen.front());
}

std::string FullName(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return (parent == nullptr ? "" : FullName(*parent) + " ") + command.get_name();
}

// The library's message, or one in plain words where the library speaks of itself.
std::string UsageMessage(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> unread = app.remaining(/*recurse=*/true);
  const bool lacks_command =
      error.get_name() == "RequiredError" && ChosenCommand(app).get_require_subcommand_min() > 0;
  if (lacks_command && unread.empty()) return "needs a command";
  // Its name is that of the command.
  const bool has_extras = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  if (lacks_command || (has_extras && !unread.empty())) {
    const std::string kind = unread[0].starts_with('-') ? "flag"
                             : lacks_command            ? "command"
                                                        : "argument";
    return fmt::format("unknown {} \"{}\"", kind, unread[0]);
  }
  const std::string message = error.what();
  const std::string flag = message.substr(0, message.find(':'));
  if (message.ends_with("missing")) return flag + " needs a value";
  if (message.find(": At Most 1 ") != std::string::npos) return flag + " may be given only once";
  return message;
}

ExitCode Run(std::vector<std::string> arguments, const CommandContext& context) {
  CLI::App app(kDescription, "quire");
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_version_flag("--version", "quire " QUIRE_VERSION);
  app.footer(kFooter);
  app.require_subcommand(1);
  Action action;
  AddCommands(app, context, &action);
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back.
    app.parse(std::move(arguments));
  } catch (const CLI::Success& asked) {  // --help, --version
    app.exit(asked, context.console.out, context.console.err);
    context.console.out.flush();
    return ExitCode::kOk;
  } catch (const CLI::ParseError& error) {
    context.console.err << "error: " << UsageMessage(app, error)
                        << "\nTry: " << FullName(ChosenCommand(app)) << " --help" << std::endl;
    return ExitCode::kUsage;
  }
  const ExitCode code = action();
  context.console.out.flush();
  if (code == ExitCode::kOk && !context.console.out) {
    return context.console.Fail(absl::DataLossError("standard output cannot be written"));
  }
  return code;
}

}  // namespace

ExitCode RunQuire(std::vector<std::string> arguments, const CommandContext& context) {
  try {
    return Run(std::move(arguments), context);
  } catch (const std::exception& error) {
    return context.console.Fail(absl::InternalError(error.what()));
  }
}

}  // namespace quire::cli
