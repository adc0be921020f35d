// A file's bytes, read on demand, so that checking a header reads only its blocks.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/files/file.h"

namespace bv {

class FileView {
 public:
  explicit FileView(std::span<const uint8_t> whole) : size_(whole.size()), held_(whole) {}
  explicit FileView(const RegularFile& file) : file_(&file), size_(file.size()) {}

  uint64_t size() const { return size_; }
  // The `count` bytes at `offset`, fewer at the file's end; valid until the next call.
  std::span<const uint8_t> at(uint64_t offset, size_t count);

 private:
  const RegularFile* file_ = nullptr;
  uint64_t size_, held_at_ = 0;
  std::span<const uint8_t> held_;
  std::vector<uint8_t> buffer_;
};

}  // namespace bv
