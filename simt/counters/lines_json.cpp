#include "simt/counters/lines_json.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <tuple>

namespace simt {
namespace {

std::string quoted(const std::string& text) {
  std::string all = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') all += '\\';
    if (static_cast<unsigned char>(c) >= ' ') all += c;
  }
  return all + '"';
}

// [a,b,c] of what write(x) returns for each.
template <class List, class Write>
std::string list(const List& items, Write write) {
  std::string all = "[";
  for (const auto& item : items) {
    if (all.size() > 1) all += ',';
    all += write(item);
  }
  return all + ']';
}
std::string numbers(std::initializer_list<uint64_t> items) {
  return list(items, [](uint64_t n) { return std::to_string(n); });
}
std::string str(const Extent& e) { return numbers({e[0], e[1], e[2]}); }

std::string addresses(const LineSample& s) {
  std::vector<uint64_t> at;
  for (unsigned lane = 0; lane < 32; ++lane)
    if (s.mask >> lane & 1) at.push_back(s.at[lane]);
  const auto step = [&](size_t i) { return int64_t(at[i] - at[i - 1]); };
  bool even = true;
  for (size_t i = 2; i < at.size(); ++i) even &= step(i) == step(1);
  if (even)
    return "[" + std::to_string(at[0]) + "," + std::to_string(at.size() > 1 ? step(1) : 0) + "]";
  const auto distance = [&](uint64_t a) { return std::to_string(int64_t(a - at[0])); };
  return "[" + std::to_string(at[0]) + "," + list(at, distance) + "]";
}

std::string sample(const LineSample& s) {
  return "[" + std::to_string(s.block) + "," + std::to_string(s.warp) + "," +
         std::to_string(s.number) + "," + std::to_string(s.mask) + "," + std::to_string(s.space) +
         "," + quoted(s.name) + "," + addresses(s) + "]";
}

std::string shared_name(const SharedName& n) {
  return "[" + quoted(n.name) + "," + std::to_string(n.bytes) + "," +
         std::to_string(n.element_bytes) + "," +
         list(n.extents, [](size_t e) { return std::to_string(e); }) + "]";
}

std::string of_kernel(const std::string& name, const LaunchLines& k) {
  const auto place = [](uint64_t instruction) {
    return (instruction & address_mask) - program_begin();
  };
  const auto line = [&](const auto& entry) {
    const auto& [instruction, counted] = entry;
    std::string site = "\"\"";
    if (const auto found = k.sites.find(instruction & address_mask);
        found != k.sites.end() && found->second.line())
      site = quoted(std::string(found->second.file_name()) + ":" +
                    std::to_string(found->second.line()));
    auto samples = counted.samples;
    std::ranges::sort(samples, {},
                      [](const LineSample& s) { return std::tuple(s.block, s.warp, s.number); });
    const LineCounts& c = counted.counts;
    std::string all = "[" + std::to_string(place(instruction)) + "," +
                      std::to_string(int(Access::kind_of(instruction))) + "," +
                      std::to_string(instruction >> 56) + "," + site;
    for (const uint64_t n :
         {c.executions, c.lanes, c.partial, c.global.requests, c.global.sectors, c.global.bytes,
          c.needed, c.used, c.shared.requests, c.shared.wavefronts, c.shared.conflicts})
      all += "," + std::to_string(n);
    return all + "," + list(samples, sample) + "]\n";
  };
  const auto piece = [](const auto& entry) {
    return numbers({entry.first, entry.second.warps, entry.second.lanes});
  };
  const auto segment = [&](const LineSegment& s) {
    return numbers({s.block, s.warp, s.instruction ? place(s.instruction) : 0,
                    uint64_t(Access::kind_of(s.instruction)), s.requests, s.sectors, s.turns, s.mma,
                    s.exchanges});
  };
  const auto argument = [](const KernelArgument& a) {
    return numbers({a.begin, a.end, a.element_bytes});
  };
  auto timeline = k.timeline;  // stable: a warp's segments stay in order
  std::ranges::stable_sort(timeline, {},
                           [](const LineSegment& s) { return std::pair(s.block, s.warp); });
  std::string counters = "{";
  for (const auto& [word, n] : named_numbers(k.counters))
    counters += (counters.size() > 1 ? "," : "") + quoted(word) + ":" + std::to_string(n);
  return "{\"name\":" + quoted(name) + ",\"grid\":" + str(k.grid) + ",\"block\":" + str(k.block) +
         ",\"shared_bytes\":" + std::to_string(k.shared_bytes) + ",\"counters\":" + counters +
         "},\"arguments\":" + list(k.arguments, argument) +
         ",\"kept\":" + list(k.kept, [](uint64_t n) { return std::to_string(n); }) +
         ",\"names\":" + list(k.names, shared_name) + ",\n\"lines\":" + list(k.lines, line) +
         ",\n\"pieces\":" + list(k.pieces, piece) + ",\n\"timeline\":" + list(timeline, segment) +
         "}";
}

// For programs that know nothing of it.
void write_lines() {
  const char* const name = std::getenv("SIMT_LINES");
  std::FILE* const file = std::fopen(name, "w");
  if (!file || std::fputs(to_json(Lines::take()).c_str(), file) < 0 || std::fclose(file) != 0) {
    std::perror(name);
    std::_Exit(1);
  }
}

[[maybe_unused]] const bool registered = [] {
  const char* const name = std::getenv("SIMT_LINES");
  Lines::on = name && *name;
  return Lines::on && std::atexit(write_lines) == 0;
}();

}  // namespace

std::string to_json(const std::map<std::string, LaunchLines>& kernels) {
  std::vector<std::string> in_order(kernels.size());
  for (const auto& [name, k] : kernels) in_order[k.number] = of_kernel(name, k) + "\n";
  return "{\"kernels\":" + list(in_order, [](const std::string& text) { return text; }) + "}\n";
}

}  // namespace simt
