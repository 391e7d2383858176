// Tokenizers for tests: the real ones, out of golden files.
#pragma once

#include <memory>

#include "engine/text/tokenizer.h"

namespace quire::engine::text {

// The tables of SmolLM2-135M-Instruct's GGUF file.
TokenizerTables SmolLm2Tables();

// Each is loaded once per process. Null (and a failed test) when loading fails.
const Tokenizer* SmolLm2();
const Tokenizer* Qwen3();
const Tokenizer* DeepSeekV3();  // tokenizer.json alone, without tokenizer_config.json.

}  // namespace quire::engine::text
