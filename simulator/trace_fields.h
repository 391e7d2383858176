// The fields of one line of a trace file, JSON or CSV, checked one by one. Errors name the line and
// the field, say what is allowed and what was found.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"

namespace quire::simulator {

class FieldReader {
 public:
  // REQUIRES: `object` is a JSON object and outlives the reader.
  FieldReader(const nlohmann::json& object, std::int64_t line) : object_(object), line_(line) {}

  bool Has(const std::string& name) const { return object_.contains(name); }
  // A missing field is an error; ask Has first where it is optional.
  absl::Status Int(const std::string& name, std::int64_t min, std::int64_t max,
                   std::int64_t* value);
  absl::Status Int(const std::string& name, std::int64_t min, std::int64_t max,
                   std::int32_t* value);
  absl::Status Number(const std::string& name, double min, double max, double* value);
  absl::Status String(const std::string& name, std::string* value);             // Not empty.
  absl::Status TokenIds(const std::string& name, std::vector<TokenId>* value);  // Not empty.
  // An error for every field that nobody asked for.
  absl::Status NoOthers() const;

  absl::Status Error(const std::string& name, const std::string& what) const;

 private:
  absl::Status Find(const std::string& name, const nlohmann::json** value);

  const nlohmann::json& object_;
  const std::int64_t line_;
  std::set<std::string> known_;
};

using LineHandler = std::function<absl::Status(FieldReader& fields)>;

// Calls `handle` for each line that is not blank; ends at the first error.
absl::Status ForEachJsonLine(std::string_view text, const LineHandler& handle);
// The first line names the fields. Commas part the cells, which are numbers or plain words (no
// quotes); an empty cell is a missing field.
absl::Status ForEachCsvLine(std::string_view text, const LineHandler& handle);

}  // namespace quire::simulator
