#include "engine/setup/kernels.h"

#include <cstdio>

#include "base/error.h"

namespace bv {
namespace {

// Why the device lacks what these options ask for, and what to do; empty: it lacks nothing.
std::string why_not(const Options& o, const DeviceChoice& device) {
  const bool cpu = device.kind == DeviceKind::cpu;
  if (o.kernels == KernelChoice::hopper) return why_no_hopper(device.kind, device.index);
  if (cpu && o.kernels == KernelChoice::plain)
    return "these are GPU kernels, and this run is on the cpu; --device simt runs them without a "
           "GPU";
  if (cpu && o.conv == ConvKernels::cudnn) return "cuDNN computes on GPUs, this run is on the cpu";
  return "";
}

// Families of operations, by a part of their names.
constexpr struct {
  const char *part, *name;
} families[] = {{"Linear", "linear"}, {"Attention", "attention"}, {"Conv", "convolution"}};

bool is_of(const RecordedOperation& o, const char* part) {
  return o.name.find(part) != o.name.npos;
}

bool by_hopper(const RecordedOperation& o, const Kernels& kernels) {
  return std::visit([&](const auto& op) { return kernels.by_hopper(op); }, o.operation);
}

}  // namespace

KernelSet resolve_kernels(const Options& o, DeviceChoice& device) {
  const bool cudnn = o.conv == ConvKernels::cudnn;
  const std::string kernels = "--kernels " + word_of(o.kernels);
  if (o.kernels != KernelChoice::automatic && cudnn)
    throw UserError(kernels + ": --conv cudnn asks for other convolutions; give only one");
  if (const std::string why = why_not(o, device); !why.empty()) {
    const std::string asked = cudnn ? "--conv cudnn" : kernels;
    if (o.source(cudnn ? "conv" : "kernels") > Source::run) throw UserError(asked + ": " + why);
    // Kernels that an earlier run's config.json asks for are replaced with a note.
    device.notes.push_back(device.kind == DeviceKind::cpu
                               ? "kernels: the cpu's, not the run's " + asked
                               : "kernels: auto, not the run's " + asked + ": " + why);
    return KernelSet::fast;
  }
  if (o.kernels == KernelChoice::plain) device.notes.push_back("kernels: plain");
  return o.kernels == KernelChoice::plain    ? KernelSet::plain
         : o.kernels == KernelChoice::hopper ? KernelSet::hopper
         : cudnn                             ? KernelSet::cudnn
                                             : KernelSet::fast;
}

std::string hopper_line(const std::vector<RecordedOperation>& operations, const Kernels& kernels) {
  std::string line = "kernels: hopper";
  for (const auto& [part, name] : families) {
    int taken = 0, all = 0;
    for (const RecordedOperation& o : operations)
      if (is_of(o, part)) all += o.count, taken += by_hopper(o, kernels) ? o.count : 0;
    line += std::string(", ") + name + " " + std::to_string(taken) + " of " + std::to_string(all);
  }
  return line + "; the rest as auto";
}

std::string hopper_table(const std::vector<RecordedOperation>& operations, const Kernels& kernels) {
  std::string table;
  const auto add = [&](const char* name, const char* shape, const char* runs, const char* by) {
    char line[200];
    std::snprintf(line, sizeof line, "%-31s %-45s %5s  %s\n", name, shape, runs, by);
    table += line;
  };
  add("operation", "shape", "calls", "kernels");
  for (const RecordedOperation& o : operations)
    for (const auto& [part, name] : families)
      if (o.count && is_of(o, part))
        add(o.name.c_str(), o.shape.c_str(), std::to_string(o.count).c_str(),
            by_hopper(o, kernels) ? "hopper" : "auto");
  return table;
}

}  // namespace bv
