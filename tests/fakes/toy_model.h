// A tiny Llama-shaped checkpoint with a byte-level tokenizer, written to disk as a GGUF file or a
// Hugging Face folder. Its numbers are fixed, so greedy answers are repeatable in milliseconds.
//
//   fakes::TempFolder folder;
//   fakes::ToyModel toy;                         // TOY: random weights
//   toy.MakeChain({toy.Byte('a'), toy.Byte('b'), fakes::kToyImEnd});  // CHAIN: a, b, end of turn
//   const std::string path = toy.WriteGguf(folder.path());
//
// Vocabulary: 0-2 control tokens, 3-258 the bytes, 259-299 merges, then ToyOptions::extra_tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace quire::fakes {

inline constexpr TokenId kToyEndOfText = 0;  // <|endoftext|>
inline constexpr TokenId kToyImStart = 1;    // <|im_start|>, BOS
inline constexpr TokenId kToyImEnd = 2;      // <|im_end|>, EOS
inline constexpr TokenId kToyFirstByte = 3;
inline constexpr TokenId kToyFirstMerge = kToyFirstByte + 256;

struct ToyOptions {
  int num_layers = 2;
  int hidden_size = 64;
  int num_heads = 4;
  int num_kv_heads = 2;
  int head_dim = 16;
  int intermediate_size = 128;
  int max_positions = 2048;
  double rope_base = 10000;
  int sliding_window = 0;  // Above 0: a MistralForCausalLM with this window (folders only).
  bool tie_embeddings = false;
  std::uint64_t seed = 1;
  // The element type of matrices: F32, F16, BF16 (both formats), Q8_0, Q4_0, Q4_1 (GGUF only).
  std::string matrix_type = "F32";
  // Further tokens, as the bytes they stand for; no merge makes them, so only output has them.
  std::vector<std::string> extra_tokens = {};
  std::vector<TokenId> eos_token_ids = {kToyImEnd};  // The first is the tokenizer's.
  bool add_bos = false;
};

// A tensor in the Hugging Face layout (rotary pairs are (i, i + half)).
struct ToyTensor {
  std::string name;  // weight_names.h
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

class ToyModel {
 public:
  explicit ToyModel(ToyOptions options = {});

  const ToyOptions& options() const { return options_; }
  std::int32_t vocab_size() const { return static_cast<std::int32_t>(tokens_.size()); }
  static TokenId Byte(char c) { return kToyFirstByte + static_cast<unsigned char>(c); }
  // The id of ToyOptions::extra_tokens[index].
  TokenId Extra(int index) const;

  std::vector<ToyTensor>& tensors() { return tensors_; }
  ToyTensor& tensor(std::string_view name);
  // Puts a NaN into the embedding of `token` (catalogue row C60).
  void PoisonEmbedding(TokenId token);

  // Turns TOY into CHAIN: whatever stands before it, sequence[i] is followed by sequence[i + 1].
  // Attention and FFN add nothing, and the head's row of a token is its predecessor's embedding.
  // REQUIRES: no token but the last appears twice, tie_embeddings is false. After a token outside
  // the sequence, and after its end, the arg-max is arbitrary but fixed.
  void MakeChain(const std::vector<TokenId>& sequence);

  // Both return the path to give to OpenModel: <folder>/toy.gguf, and `folder` itself.
  std::string WriteGguf(const std::string& folder) const;
  std::string WriteHuggingFace(const std::string& folder) const;

  // Pieces of the latter, for tests that change one of them.
  std::string ConfigJson() const;
  std::string TokenizerJson() const;
  std::string TokenizerConfigJson() const;

 private:
  void AddTensor(std::string name, std::vector<std::int64_t> shape, double scale, double offset);

  ToyOptions options_;
  std::vector<std::string> tokens_;  // The bytes each id stands for; control tokens by name.
  std::vector<ToyTensor> tensors_;
};

}  // namespace quire::fakes
