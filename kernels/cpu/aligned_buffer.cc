#include "kernels/cpu/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <limits>

#include "base/status.h"

namespace quire::kernels::cpu {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

absl::StatusOr<AlignedBuffer> AlignedBuffer::Allocate(std::size_t bytes) {
  const bool huge = bytes >= kHugePage;
  const std::size_t slack = huge ? kHugePage : 0;
  const auto refused = [bytes] { return ResourceExhausted("cannot reserve {} bytes", bytes); };
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) return refused();
  const std::size_t mapped = (bytes == 0 ? 1 : bytes) + slack;
  void* mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return refused();
  AlignedBuffer buffer;
  buffer.mapping_ = mapping;
  buffer.mapping_size_ = mapped;
  buffer.size_ = bytes;
  const auto address = reinterpret_cast<std::uintptr_t>(mapping);
  buffer.data_ =
      static_cast<std::byte*>(mapping) + (huge ? (kHugePage - address % kHugePage) % kHugePage : 0);
  if (huge) madvise(buffer.data_, bytes, MADV_HUGEPAGE);  // A hint: failing is fine.
  return buffer;
}

AlignedBuffer::~AlignedBuffer() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_size_);
}

}  // namespace quire::kernels::cpu
