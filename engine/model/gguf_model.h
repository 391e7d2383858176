// A GGUF file of the architecture "llama" as ModelFiles.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/model/model.h"

namespace quire::engine::model {

absl::StatusOr<std::unique_ptr<ModelFiles>> OpenGgufModel(const std::string& path);

}  // namespace quire::engine::model
