// make bench: the time of every operation of kernels.h at a model's shapes (224 pixels), beside what
// copying memory and multiplying matrices reach on the same device.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <stdexcept>

#include "bench/bench.h"

namespace bv::bench {
namespace {

// Of what was asked and isn't there.
struct Unavailable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::unique_ptr<BenchDevice> make_device(const std::string& name) {
  if (name == "cpu") return make_cpu_bench_device();
#ifdef BAREVISION_CUDA
  try {
    return cuda_gpu::make_bench_device();
  } catch (const std::exception& e) {
    throw Unavailable(e.what());
  }
#else
  throw Unavailable("this program is built without CUDA");
#endif
}

DType dtype_named(const std::string& name) {
  return name == "fp32" ? DType::fp32 : name == "fp16" ? DType::fp16 : DType::bf16;
}

void bench_all(const Options& options) {
  const std::unique_ptr<BenchDevice> device = make_device(options.device);
  if (options.describe) {
    std::puts(device->describe().c_str());
    return;
  }
  const DType dtype = dtype_named(options.dtype);
  if (!device->supports(dtype))
    throw Unavailable("no " + options.dtype + " on " + device->describe());
  const int batch = options.batch ? options.batch : device->usual_batch();
  double load = 0;  // other work on the machine spoils every figure
  if (getloadavg(&load, 1) != 1) load = 0;
  const Ceilings ceilings = device->ceilings(dtype);
  std::printf("device: %s; load average at start %.1f\n", device->describe().c_str(), load);
  std::printf("ceilings: copy %.1f GB/s, matrix product %.0f GFLOP/s (%s)\n",
              ceilings.copy_bytes_per_second / 1e9, ceilings.product_flops_per_second / 1e9,
              ceilings.product.c_str());
  const bool resnet = options.model.starts_with("resnet");
  std::printf("model: %s, 224 pixels, %sbatch %d, %s\n\n", options.model.c_str(),
              resnet ? "" : "patches of 16, ", batch, options.dtype.c_str());
  Bench bench(*device, ceilings, options, dtype);
  bench.print_head();
  (resnet ? bench_resnet : bench_vit)(bench, options.model, batch);
  if (options.filter.empty()) bench.print_totals();
  if (options.json.empty()) return;
  std::ofstream file(options.json);
  file << bench.json();
  if (!file.flush()) throw std::runtime_error("can't write " + options.json);
}

constexpr const char* usage =
    "usage: bench [--device cpu|cuda] [--dtype fp32|fp16|bf16]\n"
    "             [--model vit_tiny|vit_large|resnet34|resnet50] [--batch N]\n"
    "             [--filter WORD] [--seconds S] [--json FILE] [--describe]\n"
    "  --batch     images in a batch (cpu 16, cuda 256)\n"
    "  --filter    only operations with WORD in their name\n"
    "  --seconds   of measurement for each operation (0.15)\n"
    "  --json      write the table to FILE as well\n"
    "  --describe  say what the device is, and no more\n";

bool one_of(const std::string& value, std::initializer_list<const char*> known) {
  for (const char* k : known)
    if (value == k) return true;
  return false;
}

// False: not understood.
bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--describe") {
      options.describe = true;
      continue;
    }
    if (++i == argc) return false;
    char* end = argv[i] + std::strlen(argv[i]);
    if (name == "--device") {
      options.device = argv[i];
    } else if (name == "--dtype") {
      options.dtype = argv[i];
    } else if (name == "--model") {
      options.model = argv[i];
    } else if (name == "--filter") {
      options.filter = argv[i];
    } else if (name == "--json") {
      options.json = argv[i];
    } else if (name == "--batch") {
      options.batch = int(std::strtol(argv[i], &end, 10));
      if (options.batch < 1 || options.batch > 4096) return false;
    } else if (name == "--seconds") {
      options.seconds = std::strtod(argv[i], &end);
    } else {
      return false;
    }
    if (*end) return false;
  }
  return options.seconds > 0 && one_of(options.device, {"cpu", "cuda"}) &&
         one_of(options.dtype, {"fp32", "fp16", "bf16"}) &&
         one_of(options.model, {"vit_tiny", "vit_large", "resnet34", "resnet50"});
}

}  // namespace
}  // namespace bv::bench

int main(int argc, char** argv) {
  bv::bench::Options options;
  if (!bv::bench::parse(argc, argv, options)) {
    std::fputs(bv::bench::usage, stderr);
    return 2;
  }
  try {
    bv::bench::bench_all(options);
  } catch (const bv::bench::Unavailable& e) {
    std::fprintf(stderr, "bench: %s\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench: %s\n", e.what());
    return 1;
  }
  return 0;
}
