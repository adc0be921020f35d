// make bench: the time of every operation in a model's training step, next to the rates that
// copying memory and multiplying matrices reach on the same device.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <stdexcept>

#include "base/error.h"
#include "base/stop_signals.h"
#include "base/text.h"
#include "bench/bench.h"
#include "bench/recorded_model.h"
#include "comm/processes/affinity.h"
#include "engine/options/model_config.h"
#include "engine/setup/kernels.h"
#include "kernels/devices/devices.h"

namespace bv::bench {
namespace {

std::unique_ptr<BenchDevice> make_device(const std::string& name,
                                         [[maybe_unused]] KernelSet kernels) {
  if (name == "cpu") return make_cpu_bench_device();
#ifdef BAREVISION_CUDA
  if (kernels == KernelSet::hopper && gpu_count(nullptr) > 0)
    if (const std::string why = why_no_hopper(DeviceKind::cuda, 0); !why.empty())
      throw UserError("--kernels hopper: " + why);
  try {
    return cuda_gpu::make_bench_device(kernels);
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

bool has_word(const std::string& name, const std::string& word) {
  const auto same_letter = [](char a, char b) { return std::tolower(a) == std::tolower(b); };
  return word.empty() || !std::ranges::search(name, word, same_letter).empty();
}

// A model and the operations to measure.
struct ModelRun {
  std::string model;
  int size, batch;
  std::vector<RecordedOperation> operations;
};

ModelRun operations_of(const std::string& model, const BenchDevice& device, const Options& o) {
  ModelRun run{model,
               o.image_size ? o.image_size : load_model_config(model).image_size,
               o.batch ? o.batch : device.usual_batch(),
               {}};
  for (RecordedOperation& operation :
       record_model({model, "--batch", std::to_string(run.batch), "--image-size",
                     std::to_string(run.size), "--precision", o.dtype}))
    if (has_word(operation.name, o.filter)) run.operations.push_back(std::move(operation));
  return run;
}

void bench_model(BenchDevice& device, const Ceilings& ceilings, const Options& options,
                 const ModelRun& run) {
  std::printf("model: %s, %d pixels, batch %d, %s\n\n", run.model.c_str(), run.size, run.batch,
              options.dtype.c_str());
  if (options.kernels == KernelSet::hopper)
    std::printf("%s\n\n", hopper_line(run.operations, device.kernels()).c_str());
  Bench bench(device, ceilings, options.seconds);
  bench.print_head();
  for (const RecordedOperation& operation : run.operations) bench.measure(operation);
  if (options.filter.empty()) bench.print_totals();
  if (options.json.empty()) return;
  std::ofstream file(options.json);
  file << bench.json();
  if (!file.flush()) throw std::runtime_error("can't write " + options.json);
}

void bench_all(const Options& options) {
  const std::unique_ptr<BenchDevice> device = make_device(options.device, options.kernels);
  if (options.describe) {
    std::puts(device->describe().c_str());
    return;
  }
  const DType dtype = dtype_named(options.dtype);
  if (!device->supports(dtype))
    throw UserError("no " + options.dtype + " on " + device->describe());
  std::vector<ModelRun> runs;
  for (const std::string& model :
       options.model.empty() ? known_models() : std::vector{options.model})
    if (ModelRun run = operations_of(model, *device, options); !run.operations.empty())
      runs.push_back(std::move(run));
  if (runs.empty())
    throw UserError("--filter " + printable(options.filter) + ": no operation of " +
                    (options.model.empty() ? "the models" : options.model) + " has " +
                    printable(options.filter) + " in its name");
  double load = 0;  // other work on the machine spoils the figures
  if (getloadavg(&load, 1) != 1) load = 0;
  const Ceilings ceilings = device->ceilings(dtype);
  std::printf("device: %s; load average at start %.1f\n", device->describe().c_str(), load);
  constexpr double busy = .5;  // per core
  if (load > busy * usable_cores()) std::printf("this machine is busy: timings will be too high\n");
  std::printf("ceilings: copy %.1f GB/s, matrix product %.0f GFLOP/s (%s)\n",
              ceilings.copy_bytes_per_second / 1e9, ceilings.product_flops_per_second / 1e9,
              ceilings.product.c_str());
  std::fputs(device->choices().c_str(), stdout);
  for (const ModelRun& run : runs) bench_model(*device, ceilings, options, run);
}

constexpr const char* usage =
    "usage: bench [--device cpu|cuda] [--dtype fp32|fp16|bf16] [--kernels auto|plain|hopper]\n"
    "             [--model NAME] [--batch N] [--image-size N] [--filter WORD]\n"
    "             [--seconds S] [--json FILE] [--describe]\n"
    "  --kernels   plain: a GPU's kernels that compute one output per thread; hopper: those made "
    "for\n"
    "              sm_90 where there are any; rows that they run end with 'hopper'\n"
    "  --model     one of models/ (all of them)\n"
    "  --batch     images in a batch (cpu 16, cuda 256)\n"
    "  --image-size  pixels along a side (the model's)\n"
    "  --filter    only operations with WORD in their name\n"
    "  --seconds   measured per operation (0.15)\n"
    "  --json      write the table to FILE as well; needs --model\n"
    "  --describe  only print the device\n"
    "  --version, --help\n"
    "%copy, %prod: of the time that copying the operation's bytes, or a matrix product of its\n"
    "operations, would take; %bound: the larger; 'cache': faster than memory, so it is in the "
    "cache\n";

// The text for --help or --version; else empty.
std::string text_asked_for(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--help") || !std::strcmp(argv[i], "-h")) return usage;
    if (!std::strcmp(argv[i], "--version")) return "barevision bench " BAREVISION_VERSION "\n";
  }
  return "";
}

constexpr const char* flags[] = {"--device", "--dtype",    "--kernels",    "--model",
                                 "--batch",  "--filter",   "--image-size", "--seconds",
                                 "--json",   "--describe", "--version",    "--help"};

void require_one_of(const std::string& option, const std::string& value,
                    const std::vector<std::string>& known) {
  if (std::ranges::count(known, value) == 0)
    throw UserError(option + " " + printable(value) + ": must be one of " + join(known, ", ") +
                    suggestion(value, known));
}

int whole_number(const std::string& option, const std::string& value) {
  constexpr int most = 4096;
  const std::optional<int64_t> number = parse_integer(value);
  if (!number || *number < 1 || *number > most)
    throw UserError(option + " " + printable(value) + ": must be a whole number from 1 to " +
                    std::to_string(most));
  return int(*number);
}

// Throws UserError.
Options parse(const std::vector<std::string>& words) {
  Options options;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& name = words[i];
    if (!name.starts_with('-'))
      throw UserError("unexpected argument '" + printable(name) +
                      "'; bench --help lists the options");
    if (std::ranges::count(flags, name) == 0)
      throw UserError(
          "unknown option " + printable(name) +
          suggestion(name, std::vector<std::string>(std::begin(flags), std::end(flags))) +
          "; bench --help lists all");
    if (name == "--describe") {
      options.describe = true;
      continue;
    }
    if (++i == words.size() || words[i].empty()) throw UserError(name + " needs a value");
    const std::string& value = words[i];
    if (name == "--device") {
      require_one_of(name, value, {"cpu", "cuda"});
      options.device = value;
    } else if (name == "--dtype") {
      require_one_of(name, value, {"fp32", "fp16", "bf16"});
      options.dtype = value;
    } else if (name == "--kernels") {
      require_one_of(name, value, {"auto", "plain", "hopper"});
      options.kernels = value == "plain"    ? KernelSet::plain
                        : value == "hopper" ? KernelSet::hopper
                                            : KernelSet::fast;
    } else if (name == "--model") {
      load_model_config(value);  // throws if the model is unknown
      options.model = value;
    } else if (name == "--filter") {
      options.filter = value;
    } else if (name == "--json") {
      options.json = value;
    } else if (name == "--batch") {
      options.batch = whole_number(name, value);
    } else if (name == "--image-size") {
      options.image_size = whole_number(name, value);
    } else {
      options.seconds = parse_number(value).value_or(0);
      if (options.seconds <= 0)
        throw UserError(name + " " + printable(value) + ": must be a number of more than 0");
    }
  }
  if (options.model.empty() && !options.json.empty())
    throw UserError("--json needs --model: the file has one model's table");
  if (options.kernels != KernelSet::fast && options.device == "cpu")
    throw UserError(std::string("--kernels ") +
                    (options.kernels == KernelSet::plain ? "plain" : "hopper") +
                    ": these are GPU kernels; --device cuda");
  return options;
}

}  // namespace
}  // namespace bv::bench

int main(int argc, char** argv) {
  // Threads sleep while they wait, as the launcher's do: next to a busy process, spinning threads
  // take many times as long. OpenMP reads this before main.
  if (!std::getenv("OMP_WAIT_POLICY") && setenv("OMP_WAIT_POLICY", "passive", 1) == 0)
    execv("/proc/self/exe", argv);
  bv::hold_stop_signals();
  bv::end_on_stop_signals();
  if (const std::string text = bv::bench::text_asked_for(argc, argv); !text.empty()) {
    std::fputs(text.c_str(), stdout);
    return 0;
  }
  try {
    bv::bench::bench_all(bv::bench::parse({argv + 1, argv + argc}));
  } catch (const bv::UserError& e) {
    std::fprintf(stderr, "bench: %s\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench: %s\n", e.what());
    return 1;
  }
  return 0;
}
