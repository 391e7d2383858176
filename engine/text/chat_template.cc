#include "engine/text/chat_template.h"

#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "engine/text/characters.h"
#include "engine/text/utf8.h"

namespace quire::engine::text {
namespace {

constexpr std::array<std::string_view, 3> kRoles = {"system", "user", "assistant"};

// A format in which each message is `header` role `middle` content `footer`.
struct ChatFormat {
  std::string name;
  std::string start;                        // Before everything.
  std::string header;                       // Before the role,
  std::string middle;                       // between role and content,
  std::string footer;                       // after the content.
  std::vector<std::string> control_tokens;  // In all of these.
  // The system message when the first one is of another role.
  std::optional<std::string> default_system;
  bool trims_content = false;  // White space at both ends of the content is dropped.
};

ChatFormat ChatMl(std::string name, std::optional<std::string> default_system) {
  return {.name = std::move(name),
          .start = "",
          .header = "<|im_start|>",
          .middle = "\n",
          .footer = "<|im_end|>\n",
          .control_tokens = {"<|im_start|>", "<|im_end|>"},
          .default_system = std::move(default_system)};
}

const std::vector<ChatFormat>& BuiltinFormats() {
  static const auto* const formats = new std::vector<ChatFormat>{
      ChatMl("chatml", std::nullopt),
      ChatMl("smollm2", "You are a helpful AI assistant named SmolLM, trained by Hugging Face"),
      ChatMl("qwen2", "You are a helpful assistant."),
      {.name = "llama3",
       .start = "<|begin_of_text|>",
       .header = "<|start_header_id|>",
       .middle = "<|end_header_id|>\n\n",
       .footer = "<|eot_id|>",
       .control_tokens = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                          "<|eot_id|>"},
       .default_system = std::nullopt,
       .trims_content = true},
  };
  return *formats;
}

std::string BuiltinNames() {
  return fmt::format("{}", fmt::join(BuiltinChatTemplateNames(), ", "));
}

// Jinja's trim, which is Python's str.strip().
bool IsStripped(std::int32_t code_point) {
  return IsWhiteSpace(code_point) || (code_point >= 0x1C && code_point <= 0x1F);
}
std::string_view Trim(std::string_view text) {
  while (IsStripped(FirstCharacter(text).code_point)) {
    text.remove_prefix(FirstCharacter(text).bytes);
  }
  while (IsStripped(LastCharacter(text).code_point)) {
    text.remove_suffix(LastCharacter(text).bytes);
  }
  return text;
}

class FormatTemplate final : public ChatTemplate {
 public:
  explicit FormatTemplate(ChatFormat format) : format_(std::move(format)) {}

  std::string_view name() const override { return format_.name; }
  std::vector<std::string> control_tokens() const override { return format_.control_tokens; }

  absl::StatusOr<std::vector<PromptSegment>> Render(const std::vector<ChatMessage>& messages,
                                                    bool add_generation_prompt) const override {
    if (messages.empty()) return InvalidArgument("messages: a chat needs at least one message");
    std::vector<PromptSegment> segments = {{.text = format_.start, .from_template = true}};
    if (format_.default_system && messages.front().role != "system") {
      OpenMessage("system", segments);
      segments.back().text += *format_.default_system + format_.footer;
    }
    for (std::size_t i = 0; i < messages.size(); ++i) {
      QUIRE_RETURN_IF_ERROR(CheckRole(messages[i].role, i));
      OpenMessage(messages[i].role, segments);
      const std::string_view content = messages[i].content;
      segments.push_back({.text = std::string(format_.trims_content ? Trim(content) : content),
                          .from_template = false});
      segments.push_back({.text = format_.footer, .from_template = true});
    }
    if (add_generation_prompt) OpenMessage("assistant", segments);
    return segments;
  }

 private:
  // Roles become template text, so only known ones may pass.
  absl::Status CheckRole(std::string_view role, std::size_t message) const {
    for (const std::string_view known : kRoles) {
      if (role == known) return absl::OkStatus();
    }
    return InvalidArgument(
        "chat.messages[{}].role is \"{}\"; chat template {} knows system, user and assistant",
        message, role, format_.name);
  }

  // REQUIRES: the last segment is the template's.
  void OpenMessage(std::string_view role, std::vector<PromptSegment>& segments) const {
    segments.back().text.append(format_.header).append(role).append(format_.middle);
  }

  const ChatFormat format_;
};

// --- Recognising Jinja sources -------------------------------------------------------------------

// The two ChatML sources that models carry: a plain one, and one that puts a system message of its
// own first, cut where that message stands.
constexpr std::string_view kChatMlMessage =
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
constexpr std::string_view kLoop = "{% for message in messages %}";
constexpr std::string_view kDefaultSystem =
    "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n";
constexpr std::string_view kDefaultSystemEnd = "<|im_end|>\n' }}{% endif %}";

constexpr std::string_view kLlama3 =
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
    "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim "
    "+ '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
    "{{ content }}{% endfor %}{% if add_generation_prompt %}{{ "
    "'<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}";

bool Consume(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::optional<ChatFormat> ChatMlFormat(std::string_view source) {
  if (!Consume(source, kLoop)) return std::nullopt;
  if (source == kChatMlMessage) return ChatMl("chatml", std::nullopt);
  if (!Consume(source, kDefaultSystem)) return std::nullopt;
  const std::size_t end = source.find(kDefaultSystemEnd);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string system(source.substr(0, end));
  // Inside a Jinja string literal; with quotes or escapes it would not stand for itself.
  if (system.find_first_of("'\\") != std::string::npos) return std::nullopt;
  if (source.substr(end + kDefaultSystemEnd.size()) != kChatMlMessage) return std::nullopt;
  for (const ChatFormat& format : BuiltinFormats()) {
    if (format.default_system == system) return format;
  }
  return ChatMl("chatml", system);
}

std::optional<ChatFormat> Recognise(std::string_view jinja) {
  // Files write line breaks in literals either way, and some end with one (which Jinja drops).
  std::string source = absl::StrReplaceAll(AsAbsl(jinja), {{"\\n", "\n"}});
  if (source.ends_with('\n')) source.pop_back();
  if (std::optional<ChatFormat> format = ChatMlFormat(source)) return format;
  if (source == kLlama3) return BuiltinFormats().back();
  return std::nullopt;
}

}  // namespace

std::vector<std::string> BuiltinChatTemplateNames() {
  std::vector<std::string> names;
  for (const ChatFormat& format : BuiltinFormats()) names.push_back(format.name);
  return names;
}

absl::StatusOr<std::unique_ptr<ChatTemplate>> BuiltinChatTemplate(std::string_view name) {
  for (const ChatFormat& format : BuiltinFormats()) {
    if (format.name == name) return std::make_unique<FormatTemplate>(format);
  }
  return NotFound("there is no chat template \"{}\"; built in are {}", name, BuiltinNames());
}

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplateFor(std::string_view jinja) {
  if (jinja.empty()) {
    return FailedPrecondition(
        "the model has no chat template; choose one with --chat-template ({})", BuiltinNames());
  }
  if (std::optional<ChatFormat> format = Recognise(jinja)) {
    return std::make_unique<FormatTemplate>(*std::move(format));
  }
  return FailedPrecondition(
      "the model's chat template is not one that is understood; choose one with --chat-template "
      "({})",
      BuiltinNames());
}

}  // namespace quire::engine::text
