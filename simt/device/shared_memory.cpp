#include "simt/device/shared_memory.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "simt/device/fiber.h"

namespace simt {
namespace {

constexpr size_t redzone = 4096;
constexpr unsigned char poison = 0xFF;

}  // namespace

SharedMemory::~SharedMemory() { unpoison(); }

void SharedMemory::unpoison() {
  if constexpr (asan) __asan_unpoison_memory_region(memory_.data(), memory_.size() * sizeof(Chunk));
}

void SharedMemory::prepare(size_t bytes) {
  bytes_ = bytes;
  if (bytes == 0) return;
  unpoison();
  const size_t chunks = (2 * redzone + bytes + sizeof(Chunk) - 1) / sizeof(Chunk);
  if (chunks > memory_.size()) memory_.resize(chunks);
  data_ = memory_[0].at + redzone;
  std::memset(data_ - redzone, poison, 2 * redzone + bytes);
  if constexpr (asan) {
    __asan_poison_memory_region(data_ - redzone, redzone);
    __asan_poison_memory_region(data_ + bytes, redzone);
  }
}

std::string SharedMemory::overrun() const {
  if (asan || bytes_ == 0) return {};
  const auto untouched = [](const unsigned char* zone) {
    return *zone == poison && !std::memcmp(zone, zone + 1, redzone - 1);
  };
  const auto written = [](unsigned char byte) { return byte != poison; };
  if (const unsigned char* end = data_ + bytes_; !untouched(end))
    return "a write to byte " + std::to_string(std::find_if(end, end + redzone, written) - data_) +
           " of " + std::to_string(bytes_) + " bytes of shared memory";
  if (!untouched(data_ - redzone)) {
    const std::reverse_iterator last(data_);
    return "a write " + std::to_string(std::find_if(last, last + redzone, written) - last + 1) +
           " bytes before shared memory";
  }
  return {};
}

}  // namespace simt
