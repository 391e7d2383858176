// Tokenizers for tests: the real ones, out of golden files.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer.h"

namespace quire::engine::text {

// The tables of SmolLM2-135M-Instruct's GGUF file.
TokenizerTables SmolLm2Tables();

// A tokenizer of single bytes: token b is byte b. Then control tokens 256 "<s>" (BOS, not added)
// and 257 "</s>" (EOS), and the user-defined token 258 "<u>". `extra` tokens follow, as bytes.
TokenizerTables ByteTables(const std::vector<std::string>& extra = {});
// GPT-2's spelling of bytes.
std::string Spelling(std::string_view bytes);

// Each is loaded once per process. Null (and a failed test) when loading fails.
const Tokenizer* SmolLm2();
const Tokenizer* Qwen3();
const Tokenizer* DeepSeekV3();  // tokenizer.json alone, without tokenizer_config.json.

}  // namespace quire::engine::text
