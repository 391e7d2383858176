// quire generate
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/atomic_file.h"
#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/progress.h"
#include "cli/request_fields.h"
#include "cli/request_file.h"
#include "cli/request_runner.h"
#include "cli/target.h"
#include "engine/text/utf8.h"

namespace quire::cli {
namespace {

// How long a full server is asked again before its refusal counts.
constexpr absl::Duration kRetryFor = absl::Minutes(10);

struct GenerateFlags {
  TargetFlags target;
  v1::GenerateRequest request;  // The request flags; defaults for every line of --input.
  std::optional<std::string> prompt;
  std::optional<std::vector<TokenId>> prompt_ids;
  std::string input;
  std::int32_t concurrency = 0;
  absl::Duration timeout = absl::InfiniteDuration();
  bool no_retry = false;
  bool json = false;
};

// The requests, and where each comes from.
struct Batch {
  std::string file_name;  // Empty: the only one comes from flags.
  std::vector<v1::GenerateRequest> requests;
  std::vector<int> lines;  // In the file, from 0; 0 for the only one.
};

// Asks for what only --json shows.
bool NeedsJson(const v1::SamplingParams& sampling) {
  return sampling.has_logprobs() || sampling.has_prompt_logprobs() ||
         (sampling.has_detokenize() && !sampling.detokenize());
}

absl::StatusOr<Batch> BatchFromFile(const GenerateFlags& flags) {
  QUIRE_ASSIGN_OR_RETURN(const InputFile input, ReadInput(flags.input));
  QUIRE_ASSIGN_OR_RETURN(auto lines, ParseRequestLines(input.content, input.name, flags.request));
  if (!flags.request.request_id().empty() && lines.size() > 1) {
    return InvalidArgument("--request-id names one request, {} has {}", input.name, lines.size());
  }
  Batch batch{.file_name = input.name, .requests = {}, .lines = {}};
  for (RequestLine& line : lines) {
    if (!flags.json && NeedsJson(line.request.sampling())) {
      return InvalidArgument("{}:{}: logprobs, prompt_logprobs and detokenize false need --json",
                             input.name, line.line + 1);
    }
    batch.requests.push_back(std::move(line.request));
    batch.lines.push_back(line.line);
  }
  return batch;
}

absl::StatusOr<v1::GenerateRequest> RequestFromFlags(const GenerateFlags& flags) {
  v1::GenerateRequest request = flags.request;
  if (flags.prompt) {
    if (const auto at = engine::text::FindInvalidUtf8(*flags.prompt)) {
      return InvalidArgument("--prompt: is not valid UTF-8 at byte {}", *at);
    }
    request.mutable_text()->set_text(*flags.prompt);
  } else {
    if (request.has_text()) {
      return InvalidArgument("--parse-special and --add-special apply to --prompt only");
    }
    auto* ids = request.mutable_token_ids()->mutable_ids();
    ids->Assign(flags.prompt_ids->begin(), flags.prompt_ids->end());
  }
  const absl::Status status = CheckRequest(request);
  if (!status.ok()) return InvalidArgument("{}", AsFlag(AsStd(status.message())));
  return request;
}

absl::StatusOr<Batch> MakeBatch(const GenerateFlags& flags) {
  const int num_sources =
      flags.prompt.has_value() + flags.prompt_ids.has_value() + !flags.input.empty();
  if (num_sources != 1) {
    return InvalidArgument("needs exactly one of --prompt, --prompt-ids and --input");
  }
  if (!flags.json && NeedsJson(flags.request.sampling())) {
    return InvalidArgument("--logprobs, --prompt-logprobs and --no-detokenize need --json");
  }
  if (flags.timeout <= absl::ZeroDuration()) {
    return InvalidArgument("--timeout must be above 0 seconds");
  }
  if (!flags.input.empty()) return BatchFromFile(flags);
  QUIRE_ASSIGN_OR_RETURN(v1::GenerateRequest request, RequestFromFlags(flags));
  return Batch{.file_name = "", .requests = {std::move(request)}, .lines = {0}};
}

// Prints answers in the order of the requests, errors as they are met.
class AnswerPrinter {
 public:
  AnswerPrinter(const GenerateFlags& flags, const Batch& batch, const CommandContext& context)
      : json_(flags.json),
        timeout_(flags.timeout),
        streams_(!flags.json && batch.requests.size() == 1 &&
                 batch.requests.front().sampling().n() <= 1),
        batch_(batch),
        console_(context.console),
        bar_(context.console) {}

  bool failed() const { return failed_; }

  void OnResponse(const v1::GenerateResponse& response) {
    if (streams_ && response.has_delta()) {
      console_.out << response.delta().text() << std::flush;
      text_began_ = true;
    }
  }
  void OnProgress(std::size_t num_done) {
    if (batch_.requests.size() == 1) return;
    bar_.Update("answers", static_cast<std::int64_t>(num_done),
                static_cast<std::int64_t>(batch_.requests.size()));
  }
  void OnResult(std::size_t index, const RequestResult& result) {
    bar_.Clear();
    if (streams_ && (text_began_ || result.outcome.status.ok())) console_.out << std::endl;
    if (!result.outcome.status.ok()) {
      PrintError(batch_.lines[index], result.outcome.status);
      return;
    }
    for (const v1::Completion& completion : result.answer.completions()) {
      if (json_) {
        console_.out << CompletionJson(batch_.lines[index], completion, result.answer).dump()
                     << '\n';
      } else if (!streams_) {
        PrintText(batch_.lines[index], completion);
      }
    }
    console_.out.flush();
  }

 private:
  // "in.jsonl:3"; nothing for the only request.
  std::string Place(int line) const {
    return batch_.file_name.empty() ? "" : fmt::format("{}:{}", batch_.file_name, line + 1);
  }
  void PrintError(int line, const absl::Status& status) {
    failed_ = true;
    const std::string place = Place(line);
    const std::string message =
        absl::IsDeadlineExceeded(status)
            ? fmt::format("not answered within {} (--timeout)", absl::FormatDuration(timeout_))
            : std::string(status.message());
    console_.err << fmt::format("error: {}{}{}: {}", place, place.empty() ? "" : ": ",
                                absl::StatusCodeToString(status.code()), message)
                 << std::endl;
  }
  void PrintText(int line, const v1::Completion& completion) {
    const std::string place = Place(line);
    console_.out << fmt::format("--- {}{}answer {}: {}, {}\n", place, place.empty() ? "" : ", ",
                                completion.index(), Counted(completion.token_ids_size(), "token"),
                                completion.finished().finish_reason() == v1::FINISH_REASON_STOP
                                    ? "stop"
                                    : "length")
                 << completion.text() << '\n';
  }

  const bool json_;
  const absl::Duration timeout_;
  const bool streams_;  // The only answer is printed as it comes.
  const Batch& batch_;
  const Console& console_;
  Progress bar_;
  bool text_began_ = false;
  bool failed_ = false;
};

ExitCode Generate(const GenerateFlags& flags, const CommandContext& context) {
  const auto batch = MakeBatch(flags);
  if (!batch.ok()) return context.console.Fail(batch.status(), ExitCode::kUsage);
  const absl::Status wrong_flags = CheckTargetFlags(flags.target, context.environment);
  if (!wrong_flags.ok()) return context.console.Fail(wrong_flags, ExitCode::kUsage);
  if (batch->requests.empty()) {
    context.console.err << batch->file_name << " has no requests" << std::endl;
    return ExitCode::kOk;
  }
  const auto target = OpenTarget(flags.target, context);
  if (!target.ok()) return context.console.Fail(target.status());
  RunnerOptions options;
  options.concurrency = static_cast<std::size_t>(flags.concurrency);
  options.call.timeout = flags.timeout;
  options.call.retry_for = flags.no_retry ? absl::ZeroDuration() : kRetryFor;
  AnswerPrinter printer(flags, *batch, context);
  RunRequests(
      **target, batch->requests, options,
      {.on_response = [&](std::size_t,
                          const v1::GenerateResponse& response) { printer.OnResponse(response); },
       .on_progress = [&](std::size_t num_done) { printer.OnProgress(num_done); },
       .on_result = [&](std::size_t index,
                        const RequestResult& result) { printer.OnResult(index, result); }});
  return printer.failed() ? ExitCode::kFailed : ExitCode::kOk;
}

}  // namespace

void AddGenerateCommand(CLI::App& app, const CommandContext& context, Action* action) {
  auto flags = std::make_shared<GenerateFlags>();
  auto* generate = app.add_subcommand("generate", "Complete one prompt or a file of them");
  generate
      ->add_option_function<std::string>(
          "--prompt", [flags](const std::string& text) { flags->prompt = text; },
          "the prompt's text")
      ->type_name("TEXT");
  AddParsed<std::vector<TokenId>>(
      *generate, "--prompt-ids", [](const std::string& text) { return ParseTokenIds(text); },
      [flags](std::vector<TokenId> ids) { flags->prompt_ids = std::move(ids); },
      "the prompt as token ids", "ID,ID,…");
  generate
      ->add_option(
          "--input", flags->input,
          "lines of {\"prompt\" | \"prompt_ids\" | \"messages\", and any request field}; -: "
          "standard input")
      ->type_name("FILE");
  AddInt(*generate, "--concurrency", &flags->concurrency, {0, 1 << 20},
         "requests in flight at most; 0: all at once");
  AddSeconds(*generate, "--timeout", &flags->timeout, "give up on a request after this long");
  AddSwitch(*generate, "--no-retry", &flags->no_retry, "do not ask again when the server is full");
  AddSwitch(*generate, "--json", &flags->json, "print one JSON object per answer");
  AddRequestFlags(*generate, &flags->request);
  AddTargetFlags(*generate, &flags->target);
  generate->footer(
      "A single answer is printed as it comes, several in the order of the requests. A refused\n"
      "request prints its error on stderr and makes the exit code 1.\n\n"
      "Examples:\n"
      "  quire generate --server 127.0.0.1:50051 --prompt \"Once upon a time\" --max-tokens 32\n"
      "  quire generate --model smollm2-135m --prompt-ids 1,2,3 --temperature 0 --logprobs 5 "
      "--json\n"
      "  quire generate --server 127.0.0.1:50051 --input requests.jsonl --concurrency 16 --json");
  generate->callback([=] { *action = [=] { return Generate(*flags, context); }; });
}

}  // namespace quire::cli
