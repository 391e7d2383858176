// quire perplexity
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/atomic_file.h"
#include "cli/commands.h"
#include "cli/perplexity.h"
#include "cli/progress.h"
#include "cli/request_runner.h"
#include "cli/target.h"
#include "cli/tokenizer_files.h"
#include "engine/text/utf8.h"

namespace quire::cli {
namespace {

// Enough to fill a step, few enough to show progress.
constexpr std::size_t kWindowsInFlight = 8;

struct PerplexityFlags {
  EngineFlags engine;
  std::string file;
  std::int32_t context = 512;
  bool json = false;
};

absl::StatusOr<std::vector<TokenId>> TokensOf(const std::string& model_path,
                                              const std::string& file, const std::string& text,
                                              const CommandContext& context) {
  const auto tokenizer = OpenTokenizer(model_path);
  if (!tokenizer.ok()) return WithFetchHint(tokenizer.status(), model_path, context);
  auto ids = (*tokenizer)->Encode(text, {.parse_special = false, .add_special = false});
  if (!ids.ok()) return InvalidArgument("{}: {}", file, AsStd(ids.status().message()));
  if (ids->size() < 2) return InvalidArgument("{}: needs at least two tokens", file);
  return ids;
}

absl::StatusOr<PerplexitySum> Measure(const PerplexityFlags& flags, const std::string& text,
                                      const CommandContext& context) {
  EngineFlags engine = flags.engine;
  QUIRE_ASSIGN_OR_RETURN(engine.model.model, ResolveModel(flags.engine.model, context));
  QUIRE_ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                         TokensOf(engine.model.model, flags.file, text, context));
  QUIRE_ASSIGN_OR_RETURN(const auto target, OpenLocalTarget(engine, context));
  const auto requests = WindowRequests(ids, static_cast<std::size_t>(flags.context));

  PerplexitySum sum;
  absl::Status status;
  Progress bar(context.console);
  RunRequests(*target, requests, {.concurrency = kWindowsInFlight, .call = {}},
              {.on_response = {},
               .on_progress =
                   [&](std::size_t num_done) {
                     bar.Update("windows", static_cast<std::int64_t>(num_done),
                                static_cast<std::int64_t>(requests.size()));
                   },
               .on_result =
                   [&](std::size_t, const RequestResult& result) {
                     status.Update(result.outcome.status);
                     if (status.ok()) status.Update(sum.Add(result.answer));
                   }});
  QUIRE_RETURN_IF_ERROR(status);
  if (sum.predicted() == 0) return Internal("no log-probabilities came back");
  return sum;
}

absl::Status CheckText(const std::string& file, const std::string& text) {
  if (text.empty()) return InvalidArgument("{} is empty", file);
  const auto at = engine::text::FindInvalidUtf8(text);
  return at ? InvalidArgument("{} is not valid UTF-8 at byte {}", file, *at) : absl::OkStatus();
}

ExitCode Perplexity(const PerplexityFlags& flags, const CommandContext& context) {
  const auto options = MakeHostOptions(flags.engine, context.environment);
  if (!options.ok()) return context.console.Fail(options.status(), ExitCode::kUsage);
  const auto text = ReadFile(flags.file);
  if (!text.ok()) return context.console.Fail(text.status(), ExitCode::kUsage);
  const absl::Status valid = CheckText(flags.file, *text);
  if (!valid.ok()) return context.console.Fail(valid, ExitCode::kUsage);
  const auto sum = Measure(flags, *text, context);
  if (!sum.ok()) return context.console.Fail(sum.status());
  if (flags.json) {
    context.console.out << nlohmann::ordered_json({{"perplexity", sum->perplexity()},
                                                   {"mean_nll", sum->mean_nll()},
                                                   {"predicted", sum->predicted()}})
                               .dump()
                        << std::endl;
  } else {
    context.console.out << fmt::format(
        "perplexity {:.4f} (mean NLL {:.6f} nats over {}, windows of {})\n", sum->perplexity(),
        sum->mean_nll(), Counted(sum->predicted(), "predicted token"), flags.context);
  }
  return ExitCode::kOk;
}

}  // namespace

void AddPerplexityCommand(CLI::App& app, const CommandContext& context, Action* action) {
  auto flags = std::make_shared<PerplexityFlags>();
  auto* perplexity = app.add_subcommand("perplexity", "How well a model predicts a text");
  AddEngineFlags(*perplexity, &flags->engine)->required();
  perplexity->add_option("--file", flags->file, "the text, taken literally")
      ->type_name("FILE")
      ->required();
  AddInt(*perplexity, "--context", &flags->context, {2, 1 << 24}, "tokens of a window");
  AddSwitch(*perplexity, "--json", &flags->json,
            "print {\"perplexity\", \"mean_nll\", \"predicted\"}");
  perplexity->footer(
      "Windows do not overlap; each starts from an empty context, its first token is not\n"
      "predicted, and a shorter last one counts. Nothing is added to the text.\n\n"
      "Example:\n"
      "  quire perplexity --model smollm2-135m --file text.txt --context 1024 --json");
  perplexity->callback([=] { *action = [=] { return Perplexity(*flags, context); }; });
}

}  // namespace quire::cli
