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
  std::function<void*(size_t)> allocate;  // at a multiple of 64 bytes
  std::function<void(void*)> release;
  // Both return when the copy is done; download waits for kernels that still run.
  std::function<void(void* device, const void* host, size_t bytes)> upload;
  std::function<void(void* host, const void* device, size_t bytes)> download;
  bool host_threads = false;  // whether its kernels run on OpenMP's threads
  bool plain = false;         // its kernels have none of the fast ones' limits
  std::string chip = {};      // that the stand-in imitates while it runs; empty: its own
  // It runs the cases of these alone: its other operations are another device's.
  std::optional<std::vector<std::string>> operations = {};
  // A setting that may change between runs without changing a bit of any result; set() applies it.
  struct Variant {
    std::string name;
    std::function<void()> set;
  };
  std::vector<Variant> variants = {};

  bool is_a_gpu() const { return !host_threads && variants.empty(); }
};

// SIMT_ARCH while this lives; empty: as it was. The stand-in reads it whenever its chip matters.
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

// As GoogleTest prints it.
inline void PrintTo(const Device& device, std::ostream* stream) { *stream << device.name; }

// The CPU with this machine's best instruction set and, if it lacks one, that one as unavailable;
// the GPU's kernels on CUDA and on the stand-in, if built. BAREVISION_ISA=avx2 selects only AVX2:
// oneDNN's limit, ONEDNN_MAX_CPU_ISA, applies to a whole process, so tests/run starts a second one.
std::vector<Device> devices_to_test();

}  // namespace bv::test
