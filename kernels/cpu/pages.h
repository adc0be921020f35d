// Memory for arenas: zero pages of the system, huge ones where it has them. Touched pages alone
// count.
#pragma once
#include <cstddef>
#include <map>
#include <mutex>

namespace bv {

class PageAllocator {
 public:
  PageAllocator() = default;
  PageAllocator(const PageAllocator&) = delete;
  ~PageAllocator();
  void* allocate(size_t bytes);  // at a multiple of 4096; throws std::runtime_error
  void release(void*);  // null is nothing; throws std::invalid_argument on a foreign pointer

 private:
  std::mutex mutex_;
  std::map<void*, size_t> sizes_;
};

}  // namespace bv
