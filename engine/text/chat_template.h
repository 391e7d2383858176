// Chat formatting: messages to a prompt in which only the template's own words can be control
// tokens, whatever the user typed.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace quire::engine::text {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// A piece of a rendered prompt. Control tokens are recognised only where `from_template` is set.
struct PromptSegment {
  std::string text;
  bool from_template = false;
};

// Thread: immutable after construction; any thread.
class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  virtual std::string_view name() const = 0;
  // The control tokens that it writes; a vocabulary without them reads them as plain text.
  virtual std::vector<std::string> control_tokens() const = 0;
  // INVALID_ARGUMENT in the template's own terms for an unknown role, no messages, and so on.
  virtual absl::StatusOr<std::vector<PromptSegment>> Render(
      const std::vector<ChatMessage>& messages, bool add_generation_prompt) const = 0;
};

// The names that BuiltinChatTemplate knows.
std::vector<std::string> BuiltinChatTemplateNames();
// The built-in template called `name` (--chat-template), or NOT_FOUND listing the names.
absl::StatusOr<std::unique_ptr<ChatTemplate>> BuiltinChatTemplate(std::string_view name);

// The built-in that renders exactly what the model's Jinja source does. FAILED_PRECONDITION with a
// clear message when the source is not one that is understood; `jinja` empty: the model has none.
absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplateFor(std::string_view jinja);

}  // namespace quire::engine::text
