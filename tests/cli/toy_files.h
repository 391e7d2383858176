// A toy checkpoint on disk whose greedy answer to anything that ends with a line break is the
// alphabet, then the end of the turn.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/fakes/toy_model.h"
#include "zip_fixture.h"

namespace quire::cli {

inline const std::string kAlphabet = "abcdefghijklmnopqrstuvwxyz";

class ToyFiles {
 public:
  ToyFiles() : folder_(temporary_.path() + "/ein Mödell mit Leerzeichen") {
    std::filesystem::create_directories(folder_);
    std::vector<TokenId> chain = {fakes::ToyModel::Byte('\n')};
    for (const char c : kAlphabet) chain.push_back(fakes::ToyModel::Byte(c));
    chain.push_back(fakes::kToyImEnd);
    toy_.MakeChain(chain);
    gguf_ = toy_.WriteGguf(folder_);
  }

  const std::string& folder() const { return folder_; }
  const std::string& gguf() const { return gguf_; }
  const fakes::ToyModel& toy() const { return toy_; }

 private:
  TemporaryFolder temporary_;
  const std::string folder_;
  fakes::ToyModel toy_;
  std::string gguf_;
};

}  // namespace quire::cli
