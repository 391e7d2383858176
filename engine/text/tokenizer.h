// Text to token ids and back. One implementation: byte-level BPE as GPT-2, Llama 3, Qwen and
// SmolLM use it, read from a GGUF file's metadata or from tokenizer.json.
//
// Thread: immutable after construction; every method may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "engine/text/chat_template.h"

namespace quire::engine::text {

struct EncodeOptions {
  // Control tokens in the text become control ids. Off: they are plain text. (Added tokens that are
  // not marked special, like Qwen's <think>, are recognised either way.)
  bool parse_special = false;
  // Put BOS / EOS where the tokenizer's rules say; a BOS that is there already is not doubled.
  bool add_special = false;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // INVALID_ARGUMENT for text that is not UTF-8 (naming the byte offset). Time is O(n log n) in the
  // text's length whatever it holds.
  virtual absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text,
                                                      const EncodeOptions& options) const = 0;

  // The segments' texts joined and encoded as one, with control tokens recognised only inside runs
  // of template segments; nothing is added. INVALID_ARGUMENT names the segment that is not UTF-8.
  virtual absl::StatusOr<std::vector<TokenId>> EncodeSegments(
      std::span<const PromptSegment> segments) const = 0;

  // The bytes a token stands for (not always whole UTF-8). Empty for ids outside the vocabulary.
  virtual std::string_view TokenBytes(TokenId id) const = 0;
  // Tokens marked special: left out of text when skip_special_tokens is set.
  virtual bool IsSpecial(TokenId id) const = 0;

  virtual std::int32_t vocab_size() const = 0;
  virtual bool adds_bos() const = 0;  // With add_special.
  virtual std::optional<TokenId> bos_id() const = 0;
  virtual std::optional<TokenId> eos_id() const = 0;  // The one the tokenizer's files name.
};

// All ids, joined and repaired to UTF-8 (one U+FFFD per maximal invalid part).
std::string Decode(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                   bool skip_special_tokens);

// Encodes a rendered chat: control tokens only where the template put them, and exactly one BOS if
// the tokenizer's rules or the template want one.
absl::StatusOr<std::vector<TokenId>> EncodeChat(const Tokenizer& tokenizer,
                                                const std::vector<PromptSegment>& segments);

// FAILED_PRECONDITION naming the first control token of `chat_template` that is no token here.
absl::Status CheckControlTokens(const Tokenizer& tokenizer, const ChatTemplate& chat_template);

// What a GGUF file says about its tokenizer (keys tokenizer.ggml.*).
struct TokenizerTables {
  std::string model;  // "gpt2"; others are refused by name.
  std::string pre;    // "smollm", "qwen2", …; others are refused by name.
  std::vector<std::string> tokens;
  std::vector<std::int32_t> token_types;  // 1 normal, 3 control, 4 user defined, …
  std::vector<std::string> merges;        // "left right"
  std::optional<TokenId> bos, eos, unk, pad;
  std::optional<bool> add_bos, add_eos;  // Unset: what `pre` implies (llama-bpe: BOS).
};

absl::StatusOr<std::unique_ptr<Tokenizer>> TokenizerFromTables(const TokenizerTables& tables);
// Reads tokenizer.json and, when present, tokenizer_config.json of `folder`. Errors name the file
// and the component that is not supported.
absl::StatusOr<std::unique_ptr<Tokenizer>> TokenizerFromFolder(const std::string& folder);

}  // namespace quire::engine::text
