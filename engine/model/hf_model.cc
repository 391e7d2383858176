#include "engine/model/hf_model.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/model/hf_config.h"
#include "engine/model/json_reader.h"
#include "engine/model/llama_files.h"
#include "engine/model/safetensors_file.h"
#include "engine/model/weight_names.h"

namespace quire::engine::model {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

// Which file of the folder holds which tensor, as the index says.
absl::StatusOr<std::map<std::string, std::string>> ReadWeightMap(const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(const json object, ReadJsonFile(path));
  const auto map = object.find("weight_map");
  if (map == object.end() || !map->is_object()) {
    return InvalidArgument("{}: weight_map is missing or not an object", path);
  }
  std::map<std::string, std::string> result;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) {
      return InvalidArgument("{}: weight_map.{} must be a file name", path, tensor);
    }
    const auto name = file.get<std::string>();
    if (!IsPlainFileName(name)) {
      return InvalidArgument("{}: weight_map.{} is \"{}\", which is not a plain file name", path,
                             tensor, name);
    }
    result.emplace(tensor, name);
  }
  return result;
}

// Adds the tensors of one file. `where` remembers the file of every tensor seen.
absl::Status AddWeightFile(const fs::path& path, std::map<std::string, std::string>& where,
                           LlamaModel& model) {
  QUIRE_ASSIGN_OR_RETURN(const auto file, File::Open(path.string()));
  QUIRE_ASSIGN_OR_RETURN(SafetensorsFile parsed, ParseSafetensors(file));
  const auto note = [&](const std::string& name) -> absl::Status {
    const auto [it, is_new] = where.emplace(name, path.filename().string());
    if (is_new) return absl::OkStatus();
    return InvalidArgument("{}: tensor {} is also in {}", path.string(), name, it->second);
  };
  for (StoredTensor& tensor : parsed.tensors) {
    QUIRE_RETURN_IF_ERROR(note(tensor.name));
    model.tensors.push_back(std::move(tensor));
  }
  for (UnsupportedTensor& tensor : parsed.unsupported) {
    QUIRE_RETURN_IF_ERROR(note(tensor.name));
    model.unsupported_tensors.push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

absl::Status AddIndexedFiles(const fs::path& folder, LlamaModel& model) {
  const std::string index = (folder / kIndexName).string();
  QUIRE_ASSIGN_OR_RETURN(const auto weight_map, ReadWeightMap(index));
  std::set<std::string> shards;
  for (const auto& [tensor, file] : weight_map) shards.insert(file);
  std::map<std::string, std::string> where;
  for (const std::string& shard : shards) {
    QUIRE_RETURN_IF_ERROR(AddWeightFile(folder / shard, where, model));
  }
  for (const auto& [tensor, file] : weight_map) {
    const auto found = where.find(tensor);
    if (found == where.end() || found->second != file) {
      return InvalidArgument("{}: weight_map says that {} is in {}, but it is not", index, tensor,
                             file);
    }
  }
  if (!shards.contains(std::string(kSingleName)) && Exists(folder / kSingleName)) {
    model.warnings.push_back(fmt::format("{}: ignored, since {} names other files",
                                         (folder / kSingleName).string(), kIndexName));
  }
  return absl::OkStatus();
}

absl::Status AddWeights(const fs::path& folder, LlamaModel& model) {
  if (Exists(folder / kIndexName)) return AddIndexedFiles(folder, model);
  std::map<std::string, std::string> where;
  const absl::Status status = AddWeightFile(folder / kSingleName, where, model);
  if (!absl::IsNotFound(status)) return status;
  return NotFound("{}: holds neither {} nor {} (other weight formats are not read)",
                  folder.string(), kSingleName, kIndexName);
}

class HuggingFaceModel final : public LlamaFiles {
 public:
  HuggingFaceModel(std::string folder, LlamaModel model)
      : LlamaFiles(std::move(model)), folder_(std::move(folder)) {}

  absl::Status Match() {
    QUIRE_RETURN_IF_ERROR(SettleHead());
    return MatchTensors(HuggingFaceTensorName);
  }
  std::string_view format() const override { return "safetensors"; }
  absl::StatusOr<std::unique_ptr<text::Tokenizer>> LoadTokenizer() const override {
    if (!Exists(fs::path(folder_) / "tokenizer.json")) return std::unique_ptr<text::Tokenizer>();
    return text::TokenizerFromFolder(folder_);
  }

 private:
  // The written rule: when tie_word_embeddings is true the embedding is the head and an lm_head in
  // the file is left out, with a warning if it differs.
  absl::Status SettleHead() {
    if (!model_.config.tie_embeddings) return absl::OkStatus();
    const auto find = [&](std::string_view weight) {
      const std::string name = HuggingFaceTensorName(weight);
      return std::find_if(model_.tensors.begin(), model_.tensors.end(),
                          [&](const StoredTensor& t) { return t.name == name; });
    };
    const auto head = find(kHead), embed = find(kEmbed);
    if (head == model_.tensors.end()) return absl::OkStatus();
    bool same = false;
    if (embed != model_.tensors.end() && embed->shape == head->shape && head->shape.size() == 2) {
      QUIRE_ASSIGN_OR_RETURN(same, SameMatrix(*head, *embed));
    }
    if (!same) {
      model_.warnings.push_back(
          fmt::format("{}: tie_word_embeddings is true, so {} is ignored although it differs from "
                      "{}",
                      model_.source, head->name, HuggingFaceTensorName(kEmbed)));
    }
    model_.tensors.erase(head);
    return absl::OkStatus();
  }

  static absl::StatusOr<bool> SameMatrix(const StoredTensor& a, const StoredTensor& b) {
    QUIRE_ASSIGN_OR_RETURN(const auto left, ReadMatrix(a));
    QUIRE_ASSIGN_OR_RETURN(const auto right, ReadMatrix(b));
    std::vector<float> left_row(static_cast<std::size_t>(left->cols())), right_row(left_row);
    for (std::int64_t row = 0; row < left->rows(); ++row) {
      left->ReadRow(row, left_row);
      right->ReadRow(row, right_row);
      if (left_row != right_row) return false;
    }
    return true;
  }

  const std::string folder_;
};

// Appends the ids that are not there yet.
void AddIds(const std::vector<TokenId>& more, std::vector<TokenId>& ids) {
  for (const TokenId id : more) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
}

std::string FolderName(const fs::path& folder) {
  std::error_code error;
  const fs::path absolute = fs::weakly_canonical(folder, error);
  return (error || absolute.filename().empty() ? folder : absolute).filename().string();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelFiles>> OpenHuggingFaceModel(const std::string& folder) {
  const fs::path root(folder);
  LlamaModel model;
  model.source = folder;
  model.name = FolderName(root);
  QUIRE_ASSIGN_OR_RETURN(HfConfig config, ReadHfConfig((root / "config.json").string()));
  model.config = config.model;
  AddIds(config.eos_token_ids, model.eos_token_ids);
  const fs::path generation = root / "generation_config.json";
  if (Exists(generation)) {
    QUIRE_ASSIGN_OR_RETURN(const auto defaults, ReadHfGenerationConfig(generation.string()));
    AddIds(defaults.eos_token_ids, model.eos_token_ids);
    model.sampling_defaults = defaults.sampling_defaults;
  }
  QUIRE_ASSIGN_OR_RETURN(model.chat_template, ReadHfChatTemplate(folder));
  QUIRE_RETURN_IF_ERROR(AddWeights(root, model));
  auto result = std::make_unique<HuggingFaceModel>(folder, std::move(model));
  QUIRE_RETURN_IF_ERROR(result->Match());
  return std::unique_ptr<ModelFiles>(std::move(result));
}

}  // namespace quire::engine::model
