// A block's shared memory, which lies between two redzones and is NaN until it is written.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace simt {

class SharedMemory {
 public:
  ~SharedMemory();

  // Resets it for a block: all bytes become 0xFF, NaN in every floating-point type. So do the
  // redzones, so that reads past the end show, too; under AddressSanitizer any access to them is an
  // error.
  void prepare(size_t bytes);

  // Describes a write beyond either end; empty if there was none.
  std::string overrun() const;

  unsigned char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  bool holds(const void* p, size_t n) const {
    const auto* begin = static_cast<const unsigned char*>(p);
    return begin >= data_ && begin <= data_ + bytes_ && n <= size_t(data_ + bytes_ - begin);
  }

 private:
  struct alignas(1024) Chunk {  // TMA's, the strictest alignment on a GPU
    unsigned char at[1024];
  };
  void unpoison();

  std::vector<Chunk> memory_;
  unsigned char* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace simt
