// make bench: the time of every operation that a training step of a model runs, next to what
// copying memory and multiplying matrices reach on the same device.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <stdexcept>

#include "base/error.h"
#include "base/stop_signals.h"
#include "bench/bench.h"
#include "bench/recorded_model.h"
#include "comm/processes/affinity.h"
#include "engine/options/model_config.h"

namespace bv::bench {
namespace {

std::unique_ptr<BenchDevice> make_device(const std::string& name) {
  if (name == "cpu") return make_cpu_bench_device();
#ifdef BAREVISION_CUDA
  try {
    return cuda_gpu::make_bench_device();
  } catch (const std::exception& e) {
    throw UserError(e.what());
  }
#else
  throw UserError("this program is built without CUDA");
#endif
}

DType dtype_named(const std::string& name) {
  return name == "fp32" ? DType::fp32 : name == "fp16" ? DType::fp16 : DType::bf16;
}

void bench_model(BenchDevice& device, const Ceilings& ceilings, const Options& options) {
  const int batch = options.batch ? options.batch : device.usual_batch();
  const int size =
      options.image_size ? options.image_size : load_model_config(options.model).image_size;
  std::printf("model: %s, %d pixels, batch %d, %s\n\n", options.model.c_str(), size, batch,
              options.dtype.c_str());
  Bench bench(device, ceilings, options);
  bench.print_head();
  for (const RecordedOperation& operation :
       record_model({options.model, "--batch", std::to_string(batch), "--image-size",
                     std::to_string(size), "--precision", options.dtype}))
    bench.measure(operation);
  if (options.filter.empty()) bench.print_totals();
  if (options.json.empty()) return;
  std::ofstream file(options.json);
  file << bench.json();
  if (!file.flush()) throw std::runtime_error("can't write " + options.json);
}

void bench_all(Options options) {
  const std::unique_ptr<BenchDevice> device = make_device(options.device);
  if (options.describe) {
    std::puts(device->describe().c_str());
    return;
  }
  const DType dtype = dtype_named(options.dtype);
  if (!device->supports(dtype))
    throw UserError("no " + options.dtype + " on " + device->describe());
  double load = 0;  // other work on the machine spoils every figure
  if (getloadavg(&load, 1) != 1) load = 0;
  const Ceilings ceilings = device->ceilings(dtype);
  std::printf("device: %s; load average at start %.1f\n", device->describe().c_str(), load);
  constexpr double busy = .5;  // per core
  if (load > busy * usable_cores()) std::printf("this machine is busy: timings will be too high\n");
  std::printf("ceilings: copy %.1f GB/s, matrix product %.0f GFLOP/s (%s)\n",
              ceilings.copy_bytes_per_second / 1e9, ceilings.product_flops_per_second / 1e9,
              ceilings.product.c_str());
  std::fputs(device->choices().c_str(), stdout);
  for (const std::string& model :
       options.model.empty() ? known_models() : std::vector{options.model}) {
    options.model = model;
    bench_model(*device, ceilings, options);
  }
}

constexpr const char* usage =
    "usage: bench [--device cpu|cuda] [--dtype fp32|fp16|bf16]\n"
    "             [--model NAME] [--batch N] [--image-size N] [--filter WORD]\n"
    "             [--seconds S] [--json FILE] [--describe]\n"
    "  --model     one of models/ (all of them)\n"
    "  --batch     images in a batch (cpu 16, cuda 256)\n"
    "  --image-size  pixels along a side (the model's)\n"
    "  --filter    only operations with WORD in their name\n"
    "  --seconds   of measurement for each operation (0.15)\n"
    "  --json      write the table to FILE as well; needs --model\n"
    "  --describe  say what the device is, and no more\n"
    "  --version, --help\n"
    "%copy, %prod: of the time that copying the operation's bytes, or a matrix product of its\n"
    "operations, would take; %bound: the larger; 'cache': faster than memory, so it is in the "
    "cache\n";

// The text that --help or --version asks for; else empty.
std::string text_asked_for(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--help") || !std::strcmp(argv[i], "-h")) return usage;
    if (!std::strcmp(argv[i], "--version")) return "barevision bench " BAREVISION_VERSION "\n";
  }
  return "";
}

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
    } else if (name == "--batch" || name == "--image-size") {
      int& value = name == "--batch" ? options.batch : options.image_size;
      value = int(std::strtol(argv[i], &end, 10));
      if (value < 1 || value > 4096) return false;
    } else if (name == "--seconds") {
      options.seconds = std::strtod(argv[i], &end);
    } else {
      return false;
    }
    if (*end) return false;
  }
  if (options.model.empty() && !options.json.empty()) return false;
  return options.seconds > 0 && one_of(options.device, {"cpu", "cuda"}) &&
         one_of(options.dtype, {"fp32", "fp16", "bf16"});
}

}  // namespace
}  // namespace bv::bench

int main(int argc, char** argv) {
  // Threads wait asleep, as the launcher's do: beside busy neighbours, spinning ones take many
  // times as long. OpenMP reads this before main.
  if (!std::getenv("OMP_WAIT_POLICY") && setenv("OMP_WAIT_POLICY", "passive", 1) == 0)
    execv("/proc/self/exe", argv);
  bv::hold_stop_signals();
  bv::end_on_stop_signals();
  if (const std::string text = bv::bench::text_asked_for(argc, argv); !text.empty()) {
    std::fputs(text.c_str(), stdout);
    return 0;
  }
  bv::bench::Options options;
  if (!bv::bench::parse(argc, argv, options)) {
    std::fputs(bv::bench::usage, stderr);
    return 2;
  }
  try {
    bv::bench::bench_all(options);
  } catch (const bv::UserError& e) {
    std::fprintf(stderr, "bench: %s\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench: %s\n", e.what());
    return 1;
  }
  return 0;
}
