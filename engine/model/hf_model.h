// A Hugging Face folder of the Llama family as ModelFiles.
//
// Which weight files are read: those that model.safetensors.index.json names, if it exists, else
// model.safetensors; never any other file of the folder. Names in the index must be plain file
// names (no separators, no ".."): they come with the model and must not reach outside its folder.
// A symbolic link in the folder is followed wherever it points: whoever set up the folder put it
// there (the Hugging Face cache is made of such links).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/model/model.h"

namespace quire::engine::model {

absl::StatusOr<std::unique_ptr<ModelFiles>> OpenHuggingFaceModel(const std::string& folder);

}  // namespace quire::engine::model
