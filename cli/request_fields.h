// The fields of a request as command-line flags and as keys of a JSON line. Both come from the
// proto's own descriptors, so that a field added there is a flag and a key here at once:
// `top_k` is --top-k and {"top_k": …}.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "quire/v1/generation.pb.h"

namespace quire::cli {

// Names that SetField knows: every field of SamplingParams, and of GenerateRequest and TextPrompt
// what is not a prompt.
std::vector<std::string> RequestFieldNames();

// What a field means, for --help. Empty for an unknown name.
std::string_view RequestFieldHelp(std::string_view name);

// Sets one field; null leaves it unset. INVALID_ARGUMENT naming the field for an unknown name, a
// wrong JSON type, a number that does not fit, or text that is not UTF-8. Ranges are for
// CheckRequest.
absl::Status SetField(const std::string& name, const nlohmann::json& value,
                      v1::GenerateRequest* request);

// What is wrong with a request that can be told without its server or model: the engine's own
// checks. INVALID_ARGUMENT starting with the field's name.
absl::Status CheckRequest(const v1::GenerateRequest& request);
// Such a message for a request that came from flags: "top_p must be …" is said of --top-p.
std::string AsFlag(std::string_view message);

// A value for an error message: lists and objects, which may be deep or long, by their type alone.
std::string Brief(const nlohmann::json& value);

// Adds a flag for every field but `model` and those in `without`, in kebab case, writing into
// `request`, which must outlive the parsing. Lists are given with commas (ids) or by repeating the
// flag (texts), logit_bias as ID=BIAS.
void AddRequestFlags(CLI::App& app, v1::GenerateRequest* request,
                     const std::set<std::string>& without = {});

}  // namespace quire::cli
