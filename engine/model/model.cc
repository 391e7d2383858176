#include "engine/model/model.h"

#include <filesystem>
#include <system_error>

#include "base/status.h"
#include "engine/model/gguf_model.h"
#include "engine/model/hf_model.h"

namespace quire::engine::model {

KvGeometry KvGeometryFor(const ModelConfig& config, std::int32_t block_size, KvDtype dtype) {
  return {.num_layers = config.num_layers,
          .num_kv_heads = config.num_kv_heads,
          .k_dim = config.head_dim,
          .v_dim = config.head_dim,
          .block_size = block_size,
          .k_dtype = dtype,
          .v_dtype = dtype};
}

absl::StatusOr<std::unique_ptr<ModelFiles>> OpenModel(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    return NotFound("{}: no such model file or folder{}", path,
                    error ? fmt::format(" ({})", error.message()) : "");
  }
  if (std::filesystem::is_directory(status)) return OpenHuggingFaceModel(path);
  return OpenGgufModel(path);
}

}  // namespace quire::engine::model
