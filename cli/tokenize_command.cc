// quire tokenize
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/atomic_file.h"
#include "cli/commands.h"
#include "cli/model_flags.h"
#include "cli/request_file.h"
#include "cli/tokenizer_files.h"
#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"

namespace quire::cli {
namespace {

namespace text = engine::text;

struct TokenizeFlags {
  ModelFlags model;
  std::string text;
  bool has_text = false;
  std::string input;
  text::EncodeOptions encode;
  bool json = false;
};

absl::StatusOr<std::vector<std::string>> Texts(const TokenizeFlags& flags) {
  if (flags.has_text) {
    if (const auto at = text::FindInvalidUtf8(flags.text)) {
      return InvalidArgument("TEXT is not valid UTF-8 at byte {}", *at);
    }
    return std::vector<std::string>{flags.text};
  }
  QUIRE_ASSIGN_OR_RETURN(const InputFile input, ReadInput(flags.input));
  return ParseTextLines(input.content, input.name);
}

ExitCode Tokenize(const TokenizeFlags& flags, const CommandContext& context) {
  const Console& console = context.console;
  if (flags.has_text == !flags.input.empty()) {
    return console.Fail(InvalidArgument("needs either TEXT or --input FILE"), ExitCode::kUsage);
  }
  const auto texts = Texts(flags);
  if (!texts.ok()) return console.Fail(texts.status(), ExitCode::kUsage);
  if (texts->empty()) console.err << "no texts" << std::endl;
  const auto path = ResolveModel(flags.model, context);
  if (!path.ok()) return console.Fail(path.status());
  const auto tokenizer = OpenTokenizer(*path);
  if (!tokenizer.ok()) return console.Fail(WithFetchHint(tokenizer.status(), *path, context));
  for (std::size_t i = 0; i < texts->size(); ++i) {
    const auto ids = (*tokenizer)->Encode((*texts)[i], flags.encode);
    if (!ids.ok()) {
      return console.Fail(InvalidArgument("text {}: {}", i, AsStd(ids.status().message())));
    }
    if (flags.json) {
      console.out << nlohmann::ordered_json({{"ids", *ids}}).dump() << '\n';
    } else {
      console.out << fmt::format("{}\n", fmt::join(*ids, " "));
    }
  }
  return ExitCode::kOk;
}

}  // namespace

void AddTokenizeCommand(CLI::App& app, const CommandContext& context, Action* action) {
  auto flags = std::make_shared<TokenizeFlags>();
  auto* tokenize = app.add_subcommand("tokenize", "Text to token ids");
  AddModelFlags(*tokenize, &flags->model)->required();
  tokenize->add_option_function<std::string>(
      "TEXT",
      [flags](const std::string& text) {
        flags->text = text;
        flags->has_text = true;
      },
      "the text");
  tokenize->add_option("--input", flags->input, "lines of {\"text\": …} instead; -: standard input")
      ->type_name("FILE");
  AddSwitch(*tokenize, "--parse-special", &flags->encode.parse_special,
            "control tokens in the text become control tokens (else they are plain text)");
  AddSwitch(*tokenize, "--add-special", &flags->encode.add_special,
            "put BOS and EOS as the tokenizer's rules say");
  AddSwitch(*tokenize, "--json", &flags->json, "print {\"ids\": […]}, one line per text");
  tokenize->footer(
      "Reads only the tokenizer: a folder with tokenizer.json and tokenizer_config.json will "
      "do.\n\n"
      "Examples:\n"
      "  quire tokenize --model smollm2-135m \"Hello world\"\n"
      "  quire tokenize --model ./qwen3 --input texts.jsonl --json");
  tokenize->callback([=] { *action = [=] { return Tokenize(*flags, context); }; });
}

}  // namespace quire::cli
