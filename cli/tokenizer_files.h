// A tokenizer without its model.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/text/tokenizer.h"

namespace quire::cli {

// Of a .gguf file, or of a folder that needs to hold no more than tokenizer.json (and
// tokenizer_config.json).
absl::StatusOr<std::unique_ptr<engine::text::Tokenizer>> OpenTokenizer(const std::string& path);

}  // namespace quire::cli
