// Memory for arenas: zeroed pages, huge ones if the system has them.
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
  void* allocate(size_t bytes);  // aligned to 4096; throws std::runtime_error
  void release(void*);           // ignores null; throws std::invalid_argument on a foreign pointer

 private:
  std::mutex mutex_;
  std::map<void*, size_t> sizes_;
};

}  // namespace bv
