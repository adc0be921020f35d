// The devices on which the table of operations is tested. To add one, add a row to
// devices_to_test().
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace bv::test {

struct Device {
  std::string name;
  std::string unavailable;  // why it can't run here; empty if it can
  std::vector<DType> dtypes;
  std::function<std::shared_ptr<Kernels>()> make_kernels;
  std::function<void*(size_t)> allocate;  // aligned to at least 64 bytes
  std::function<void(void*)> release;
  // Both return when the copy is done; download waits for kernels that are still running.
  std::function<void(void* device, const void* host, size_t bytes)> upload;
  std::function<void(void* host, const void* device, size_t bytes)> download;
  bool host_threads = false;  // whether its kernels run on OpenMP's threads
  bool plain = false;         // its kernels have none of the fast kernels' limits
  std::string chip = {};      // that the stand-in imitates during a run; empty: its default
  // If set, only cases of these operations run: another device tests this device's other kernels.
  std::optional<std::vector<std::string>> operations = {};
  // A setting that may change between runs without changing a bit of any result; set() applies it.
  struct Variant {
    std::string name;
    std::function<void()> set;
    std::function<bool()> matters = {};  // asked after earlier variants' runs; if not set, it does
  };
  std::vector<Variant> variants = {};

  bool is_a_gpu() const { return !host_threads && variants.empty(); }
};

// Sets SIMT_ARCH during its lifetime, unless the name is empty. The stand-in reads the variable
// whenever its chip matters.
class StandInChip {
 public:
  explicit StandInChip(const std::string& name);
  ~StandInChip();
  StandInChip(const StandInChip&) = delete;
  StandInChip& operator=(const StandInChip&) = delete;

 private:
  bool changed_;
  std::optional<std::string> before_;
};

// GoogleTest prints a device by its name.
inline void PrintTo(const Device& device, std::ostream* stream) { *stream << device.name; }

// The CPU with this machine's best instruction set; without AVX-512, also an unavailable AVX-512;
// the GPU's kernels on CUDA and on the stand-in, if built. BAREVISION_ISA=avx2 selects only AVX2:
// oneDNN's limit, ONEDNN_MAX_CPU_ISA, applies to a whole process, so tests/run starts a second one.
std::vector<Device> devices_to_test();

}  // namespace bv::test
