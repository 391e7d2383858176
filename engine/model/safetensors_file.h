// The safetensors container: a JSON header and tensors that fill the rest of the file without holes
// or overlap, every number checked before use.
//
// Format: https://github.com/huggingface/safetensors#format
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/file.h"
#include "engine/model/llama_files.h"
#include "engine/model/tensor.h"

namespace quire::engine::model {

struct SafetensorsFile {
  std::vector<StoredTensor> tensors;           // F32, F16, BF16.
  std::vector<UnsupportedTensor> unsupported;  // Of a known element type that is not read.
};

absl::StatusOr<SafetensorsFile> ParseSafetensors(const std::shared_ptr<const File>& file);

}  // namespace quire::engine::model
