// A cpu backend that counts the memory it allocates.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "kernels/cpu/backend.h"

namespace bv::test {

// Counts the bytes that are allocated; forwards every call to the cpu backend.
class CountingBackend : public Backend {
 public:
  std::unique_ptr<Backend> real = make_cpu_backend(2, false);
  size_t allocated = 0;

  void* allocate(size_t bytes) override { return allocated += bytes, real->allocate(bytes); }
  void release(void* p) override { real->release(p); }
  std::string describe() const override { return real->describe(); }
  bool supports(DType t) const override { return real->supports(t); }
  Kernels& kernels() override { return real->kernels(); }
  void* allocate_host(size_t n) override { return real->allocate_host(n); }
  void release_host(void* p) override { real->release_host(p); }
  size_t memory_limit() const override { return real->memory_limit(); }
  void to_device(void* d, const void* h, size_t n, Stream s) override {
    real->to_device(d, h, n, s);
  }
  void to_host(void* h, const void* d, size_t n, Stream s) override { real->to_host(h, d, n, s); }
  void copy(void* to, const void* from, size_t n, Stream s) override { real->copy(to, from, n, s); }
  void zero(void* d, size_t n, Stream s) override { real->zero(d, n, s); }
  Stream communication_stream(int channel) override { return real->communication_stream(channel); }
  void call_on_host(Stream s, std::function<void()> work) override {
    real->call_on_host(s, std::move(work));
  }
  Event create_event() override { return real->create_event(); }
  void record(Event e, Stream s) override { real->record(e, s); }
  void wait(Stream s, Event e) override { real->wait(s, e); }
  void synchronize(Stream s) override { real->synchronize(s); }
  void host_wait(Event e) override { real->host_wait(e); }
};

}  // namespace bv::test
