#include "tests/kernels/behind_a_kernel.h"

#include <cuda_runtime.h>

#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/kernel_table.h"
#include "kernels/table/fields.h"
#include "simt/device/control.h"
#include "tests/kernels/kernel_problem.h"

namespace bv::test {
namespace {

using Memory = std::map<char*, size_t>;  // allocations, in bytes

// Runs each operation by `kernels`, behind a kernel that writes all memory.
class BehindAKernel final : public KernelRows<BehindAKernel> {
 public:
  BehindAKernel(std::shared_ptr<Kernels> kernels, const Device& device, const Memory& memory)
      : KernelRows<BehindAKernel>({.alignment = 16, .workspace_alignment = 256}),
        kernels_(std::move(kernels)),
        device_(device),
        memory_(memory) {}

  template <class Op>
  void dispatch(const Op& op, Stream stream) {
    if (!behind_a_kernel) return kernels_->run(op, stream);
    write_all();
    const size_t before = simt::early_kernels();
    kernels_->run(op, stream);
    simt::run_all();
    run_behind.all.insert(Fields(op).operation);
    if (simt::early_kernels() > before) run_behind.early.insert(Fields(op).operation);
  }
  template <class Op>
  size_t workspace(const Op& op) {
    return kernels_->workspace_bytes(op);
  }
  template <class Op>
  bool takes(const Op&) const {
    return true;  // both gradients in one operation, too: kernels_ divides it
  }

 private:
  void write_all() {
    std::vector<std::pair<char*, Bytes>> contents;
    for (const auto& [at, bytes] : memory_) {
      contents.push_back({at, Bytes(bytes)});
      device_.download(contents.back().second.data(), at, bytes);
      device_.upload(at, Bytes(bytes, std::byte{0xFF}).data(), bytes);
    }
    const auto write = [contents] {
      for (const auto& [at, bytes] : contents) std::memcpy(at, bytes.data(), bytes.size());
    };
    simt::launch("writes_all", write, nullptr);
  }

  std::shared_ptr<Kernels> kernels_;
  const Device device_;
  const Memory& memory_;
};

}  // namespace

Device with_a_kernel_ahead(Device device) {
  const auto memory = std::make_shared<Memory>();
  const Device plain = device;
  device.make_kernels = [=] {
    return std::make_shared<BehindAKernel>(plain.make_kernels(), plain, *memory);
  };
  device.allocate = [=](size_t bytes) {
    void* const p = plain.allocate(bytes);
    (*memory)[static_cast<char*>(p)] = bytes;
    return p;
  };
  device.release = [=](void* p) {
    memory->erase(static_cast<char*>(p));
    plain.release(p);
  };
  return device;
}

}  // namespace bv::test
