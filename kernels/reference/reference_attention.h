// The paged half of the reference backend: rotary embedding + KV write, attention.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/reference/reference_kv_cache.h"

namespace quire::kernels::reference {

// As Backend::RopeAndWriteKv.
void RopeAndWriteKv(const RopeTable& rope, const AttentionShape& shape, const BatchView& batch,
                    std::int32_t layer, MatrixView qkv, ReferenceKvCache& cache);

// As Backend::Attention; walks the plan's tiles and merges their parts left to right.
void Attention(const AttentionShape& shape, const BatchView& batch, const AttentionPlan& plan,
               std::int32_t layer, MatrixView qkv, const ReferenceKvCache& cache, MatrixView out);

}  // namespace quire::kernels::reference
