#include "simt/device/fiber.h"

#include <sys/mman.h>

#include <cerrno>
#include <system_error>

namespace simt {
namespace {

constexpr size_t at_once = 32, pitch = guard_bytes + stack_bytes;

}  // namespace

void Stacks::make_some() {
  void* mapping = mmap(nullptr, at_once * pitch, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "stacks");
  mappings_.push_back(static_cast<char*>(mapping));
  for (size_t i = 0; i < at_once; ++i) {
    char* const guard = mappings_.back() + i * pitch;
    if (mprotect(guard, guard_bytes, PROT_NONE))
      throw std::system_error(errno, std::generic_category(), "a stack's guard page");
    // Without this offset, the live parts of all stacks would lie at the same place in a page and
    // so compete for the same few lines of the L1 cache.
    const size_t colour = i % 16 * 256;
    all_.push_back({guard + guard_bytes, stack_bytes - colour});
    free_.push_back(all_.back());
  }
}

Stacks::~Stacks() {
  for (char* mapping : mappings_) munmap(mapping, at_once * pitch);
}

}  // namespace simt
