// Memory for weights, activations and caches: aligned, zeroed, backed by huge pages where the
// system gives them, committed when first touched.
#pragma once

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"

namespace quire::kernels::cpu {

// Owns one mapping; movable, not copyable. Any thread.
class AlignedBuffer {
 public:
  // At least `bytes` zero bytes, aligned to 64 (2 MiB when larger than that). RESOURCE_EXHAUSTED
  // with the size when the system refuses.
  static absl::StatusOr<AlignedBuffer> Allocate(std::size_t bytes);

  AlignedBuffer() = default;
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        mapping_(std::exchange(other.mapping_, nullptr)),
        mapping_size_(std::exchange(other.mapping_size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(mapping_, other.mapping_);
    std::swap(mapping_size_, other.mapping_size_);
    return *this;
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer();

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  void* mapping_ = nullptr;
  std::size_t mapping_size_ = 0;
};

}  // namespace quire::kernels::cpu
