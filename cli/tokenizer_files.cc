#include "cli/tokenizer_files.h"

#include <filesystem>

#include "base/status.h"
#include "engine/model/model.h"

namespace quire::cli {

absl::StatusOr<std::unique_ptr<engine::text::Tokenizer>> OpenTokenizer(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return engine::text::TokenizerFromFolder(path);
  }
  QUIRE_ASSIGN_OR_RETURN(const auto files, engine::model::OpenModel(path));
  QUIRE_ASSIGN_OR_RETURN(auto tokenizer, files->LoadTokenizer());
  if (tokenizer == nullptr) return NotFound("{} holds no tokenizer", path);
  return tokenizer;
}

}  // namespace quire::cli
