// A block's shared memory: between two redzones, and NaN until written.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace simt {

class SharedMemory {
 public:
  ~SharedMemory();

  // Fresh for a block: all bytes 0xFF, which is a NaN in every type of floating-point number. The
  // redzones hold the same, so that reading beyond the end shows too; under AddressSanitizer they
  // may not be touched at all.
  void prepare(size_t bytes);

  // What was written beyond either end, for a message; empty if nothing was.
  std::string overrun() const;

  unsigned char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  bool holds(const void* p, size_t n) const {
    const auto* begin = static_cast<const unsigned char*>(p);
    return begin >= data_ && begin <= data_ + bytes_ && n <= size_t(data_ + bytes_ - begin);
  }

 private:
  struct alignas(1024) Chunk {  // the strictest alignment that a GPU asks for, TMA's
    unsigned char at[1024];
  };
  void unpoison();

  std::vector<Chunk> memory_;
  unsigned char* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace simt
