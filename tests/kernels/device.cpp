#include "tests/kernels/device.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

#include "base/machine.h"
#include "kernels/cpu/make_cpu_kernels.h"
#include "simt/device/control.h"
#include "tests/kernels/gpu_device.h"
#ifdef BAREVISION_SIMT
#include "tests/kernels/behind_a_kernel.h"
#endif

namespace bv::test {
namespace {

constexpr std::align_val_t alignment{256};

Device cpu(const char* name, std::vector<DType> dtypes,
           std::function<std::shared_ptr<Kernels>()> make_kernels) {
  const auto copy = [](void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); };
  return {.name = name,
          .unavailable = {},
          .dtypes = std::move(dtypes),
          .make_kernels = std::move(make_kernels),
          .allocate = [](size_t bytes) { return ::operator new(bytes, alignment); },
          .release = [](void* p) { ::operator delete(p, alignment); },
          .upload = copy,
          .download = copy,
          .host_threads = true};
}

#ifdef BAREVISION_SIMT
// The stand-in's orders of threads. For Hopper's kernels, copies complete as the order implies and
// also the other way round, and the last variant runs behind another kernel, which every kernel
// must wait for. Two orders are run for every case, the others where they can matter. The random
// order is last, because everything that runs between tests then uses it.
std::vector<Device::Variant> variants_of_stand_in(bool hopper) {
  using simt::Delivery, simt::Order;
  const auto variant = [hopper](const std::string& name, Order order, Delivery delivery) {
    const auto set = [=] {
      simt::order = order, simt::delivery = delivery;
      behind_a_kernel = hopper && order == Order::random;
      if (order == Order::forward && delivery == Delivery::as_order) simt::forget_meetings();
    };
    std::function<bool()> matters;
    if (delivery != Delivery::as_order)
      matters = [] { return simt::meetings().copies; };
    else if (order == Order::reverse)
      matters = [] { return simt::meetings().threads; };
    return Device::Variant{name + ": ", set, matters};
  };
  std::vector<Device::Variant> list{
      variant("threads forwards", Order::forward, Delivery::as_order),
      variant("threads backwards", Order::reverse, Delivery::as_order)};
  if (hopper) {
    list.push_back(variant("threads forwards, early copies", Order::forward, Delivery::early));
    list.push_back(variant("threads backwards, late copies", Order::reverse, Delivery::late));
  }
  list.push_back(
      variant(std::string("threads in random order") + (hopper ? ", behind a kernel" : ""),
              Order::random, Delivery::as_order));
  return list;
}
#endif

// BAREVISION_SIMT and BAREVISION_CUDA: the devices in this build.
std::vector<Device> gpu_devices() {
  std::vector<Device> devices;
#ifdef BAREVISION_SIMT
  for (const KernelSet set : {KernelSet::fast, KernelSet::plain, KernelSet::hopper}) {
    const bool hopper = set == KernelSet::hopper;
    Device simt = simt_gpu::gpu_device(set);
    if (hopper) simt = with_a_kernel_ahead(std::move(simt));
    simt.variants = variants_of_stand_in(hopper);
    devices.push_back(std::move(simt));
  }
#endif
#ifdef BAREVISION_CUDA
  for (const KernelSet set : {KernelSet::fast, KernelSet::plain, KernelSet::hopper})
    devices.push_back(cuda_gpu::gpu_device(set));
#endif
  return devices;
}

std::vector<Device> cpu_devices() {
  const char* isa = std::getenv("BAREVISION_ISA");
  const Device avx2 = cpu("cpu_avx2", {DType::fp32}, [] { return avx2::make_cpu_kernels(false); });
  if (isa && std::string_view(isa) == "avx2") return {avx2};
  // CPUs without bf16 instructions emulate them.
  Device avx512 = cpu("cpu_avx512", {DType::fp32, DType::bf16}, [] {
    return avx512::make_cpu_kernels(has_bf16() && !std::getenv("BAREVISION_BF16"));
  });
  if (has_avx512()) return {avx512};
  avx512.unavailable = "this CPU has no AVX-512";
  return {avx2, avx512};
}

}  // namespace

StandInChip::StandInChip(const std::string& name) : changed_(!name.empty()) {
  if (!changed_) return;
  if (const char* set = std::getenv("SIMT_ARCH")) before_ = set;
  setenv("SIMT_ARCH", name.c_str(), 1);
}

StandInChip::~StandInChip() {
  if (!changed_) return;
  if (before_)
    setenv("SIMT_ARCH", before_->c_str(), 1);
  else
    unsetenv("SIMT_ARCH");
}

std::vector<Device> devices_to_test() {
  std::vector<Device> devices = cpu_devices();
  if (std::getenv("BAREVISION_ISA")) return devices;
  for (Device& device : gpu_devices()) devices.push_back(std::move(device));
  return devices;
}

}  // namespace bv::test
