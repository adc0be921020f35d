#include "bench/counters/table.h"

#include <cstdarg>
#include <cstdio>

namespace bv::counting {
namespace {

[[gnu::format(printf, 1, 2)]] std::string text(const char* format, ...) {
  char line[400];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  return line;
}

double part(uint64_t a, uint64_t of) { return of ? double(a) / double(of) : 0; }

std::string kernel_line(const std::string& name, const simt::Counters& c) {
  if (c.requests() == 0)  // a library's product: only what it moves is known
    return text("%-58s %5lu %9s %5s %5s %5s %9s %9.2f %9s %5s %8s %9s %6s %9s %7s %8s %6s\n",
                name.c_str(), c.launches, "-", "-", "-", "-", "-", double(c.moved()) / 1e6, "-",
                "-", "-", "-", "-", "-", "-", "-", "-");
  return text(
      "%-58s %5lu %9lu %5.2f %5.0f %5.0f %9.2f %9.2f %9lu %5.2f %8lu %9lu %6lu %9lu %7lu %8lu "
      "%6lu\n",
      name.c_str(), c.launches, c.requests(), part(c.sectors(), c.requests()),
      100 * part(c.bytes(), 32 * c.sectors()),
      100 * part(c.partial, c.requests() + c.shared.requests + c.ldmatrix.requests),
      32e-6 * double(c.sectors()), double(c.moved()) / 1e6, c.shared.requests,
      part(c.shared.wavefronts, c.shared.requests), c.shared.conflicts, c.ldmatrix.requests,
      c.ldmatrix.conflicts, c.mma_m16n8k16, c.barriers, c.shuffles, c.atomics);
}

bool uses_tma(const simt::Counters& c) {
  return c.tma_load_bytes + c.tma_store_bytes + c.mbarrier_waits != 0;
}

// TMA has no lanes: it copies rows, which touch sectors.
std::string tma_table(const std::map<std::string, simt::Counters>& kernels) {
  std::string all;
  for (const auto& [name, c] : kernels) {
    if (!uses_tma(c)) continue;
    if (all.empty())
      all = text("\n%-58s %9s %5s %9s %5s %9s %9s\n", "kernel with TMA", "MB loaded", "%used",
                 "MB stored", "%used", "waits", "stalled");
    all += text(
        "%-58s %9.2f %5.0f %9.2f %5.0f %9lu %9lu\n", name.c_str(), double(c.tma_load_bytes) / 1e6,
        100 * part(c.tma_load_bytes, 32 * c.tma_load_sectors), double(c.tma_store_bytes) / 1e6,
        100 * part(c.tma_store_bytes, 32 * c.tma_store_sectors), c.mbarrier_waits,
        c.mbarrier_stalls);
  }
  return all;
}

// Multiply-adds of warpgroups by shape, and their reads of shared memory.
std::string wgmma_table(const std::map<std::string, simt::Counters>& kernels) {
  std::string all;
  for (const auto& [name, c] : kernels) {
    std::string shapes;
    for (size_t i = 0; i < c.wgmma.size(); ++i)
      if (c.wgmma[i]) shapes += text(" %zu:%lu", 8 * (i + 1), c.wgmma[i]);
    if (shapes.empty()) continue;
    if (all.empty())
      all = text("\n%-58s %9s %9s %8s  %s\n", "kernel with wgmma", "GFLOP", "turns", "conflict",
                 "N of m64nNk16: runs");
    all += text("%-58s %9.3f %9lu %8lu %s\n", name.c_str(), double(c.wgmma_flops()) / 1e9,
                c.wgmma_reads.wavefronts, c.wgmma_reads.conflicts, shapes.c_str());
  }
  return all;
}

std::string operation_line(const OperationCounts& o) {
  const simt::Counters c = o.all();
  return text("%-31s %-52s %5d %8lu %9.3f %9.3f %9.3f %6.3f\n", o.name.c_str(), o.shape.c_str(),
              o.count, c.launches, o.cost.flops / 1e9, double(c.moved()) / 1e6, o.cost.bytes / 1e6,
              double(c.moved()) / o.cost.bytes);
}

}  // namespace

std::string title(const Step& s) {
  return s.model + ", " + s.precision + ", " + std::to_string(s.image_size) + " pixels, batch " +
         std::to_string(s.batch) + ", " + std::to_string(s.multiprocessors) +
         (s.multiprocessors == 1 ? " multiprocessor" : " multiprocessors");
}

std::string kernel_table(const std::map<std::string, simt::Counters>& kernels) {
  std::string all;
  all += text("%-58s %5s %9s %5s %5s %5s %9s %9s %9s %5s %8s %9s %6s %9s %7s %8s %6s\n", "kernel",
              "runs", "requests", "/req", "%used", "%part", "MB by L2", "MB moved", "shared",
              "turns", "conflict", "ldmatrix", "confl.", "mma", "barrier", "shuffles", "atomic");
  for (const auto& [name, counters] : kernels) all += kernel_line(name, counters);
  return all + tma_table(kernels) + wgmma_table(kernels);
}

std::string table(const Step& step, const StepCounts& counts) {
  std::string all = "\nstep: " + title(step) + "\n\n" + kernel_table(counts.kernels());
  all += text("\n%-31s %-52s %5s %8s %9s %9s %9s %6s\n", "operation", "shape", "runs", "launches",
              "GFLOP", "MB moved", "needed", "ratio");
  for (const OperationCounts& o : counts.operations) all += operation_line(o);
  all += text("%-31s %-52s %5s %8lu %9.3f %9.1f %9.1f %6.3f\n", "all runs of the step", "", "",
              counts.launches(), counts.flops() / 1e9, counts.moved() / 1e6, counts.needed() / 1e6,
              counts.moved() / counts.needed());
  return all;
}

}  // namespace bv::counting
