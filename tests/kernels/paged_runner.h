// Drives the paged operations of a backend as an engine would: sequences with block tables of any
// order, computed in any chunks and batches; and what their outputs should be, in double.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/kv_geometry.h"
#include "kernels/backend.h"

namespace quire::kernels {

// One layer's attention.
struct PagedSpec {
  int num_heads = 4;
  int num_kv_heads = 2;
  int head_dim = 64;
  int block_size = 16;
  KvDtype k_dtype = KvDtype::kF32;
  KvDtype v_dtype = KvDtype::kF32;
  int sliding_window = 0;
  int rotary_dim = 0;
  RopeStyle style = RopeStyle::kInterleaved;
  int num_blocks = 128;
  int num_layers = 1;

  AttentionShape shape() const;
  KvGeometry geometry() const;
  int width() const { return (num_heads + 2 * num_kv_heads) * head_dim; }  // Of a row of qkv.
};

// The tokens of a sequence: what the QKV projection gives for each, and where they are stored.
struct PagedSequence {
  std::vector<std::vector<float>> rows;  // [length][width], before rotation
  std::vector<std::int32_t> blocks;
  std::int32_t first_position = 0;
  std::vector<std::vector<float>> outputs;  // [computed][heads * head_dim]

  int length() const { return static_cast<int>(rows.size()); }
  int computed() const { return static_cast<int>(outputs.size()); }
};

// Normally distributed rows (mean 0, standard deviation 1), a function of `seed` only.
std::vector<std::vector<float>> RandomRows(const PagedSpec& spec, int length, std::uint64_t seed);

// A sequence of random rows in blocks first_block, first_block + block_step, ...
PagedSequence MakeSequence(const PagedSpec& spec, int length, std::uint64_t seed, int first_block,
                           int block_step = 1);

class PagedRunner {
 public:
  PagedRunner(std::unique_ptr<Backend> backend, const PagedSpec& spec);

  // The next `tokens` tokens of a sequence.
  struct Chunk {
    PagedSequence* sequence;
    int tokens;
  };
  // One step: writes K and V of all chunks, then appends each token's output to its sequence.
  void Step(const std::vector<Chunk>& chunks, int layer = 0);
  // Everything not yet computed, `chunk` tokens a step.
  void Finish(PagedSequence& sequence, int chunk);
  // Writes NaN to K and V of every slot of every block.
  void Poison();

  Backend& backend() { return *backend_; }
  KvCache& cache() { return *cache_; }
  const RopeTable& rope() const { return rope_; }

 private:
  PagedSpec spec_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<KvCache> cache_;
  RopeTable rope_;
};

// What `sequence.outputs` should be, from the same rows with K and V rounded to the cache's types.
std::vector<std::vector<double>> ExpectedOutputs(const PagedSpec& spec, const RopeTable& rope,
                                                 const PagedSequence& sequence);

// ||actual - expected|| / ||expected|| over all rows.
double RelativeError(const std::vector<std::vector<float>>& actual,
                     const std::vector<std::vector<double>>& expected);

}  // namespace quire::kernels
