// A race in words: the kernel, the variable, both places, what is missing between them.
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <map>
#include <source_location>

#include "simt/counters/program_begin.h"
#include "simt/races/races.h"

extern "C" char _end;  // of the program in memory

namespace simt {
namespace {

constexpr size_t most_printed = 4, most_kept = 64;
constexpr Place of_site = 1u << 31;  // the place is a source_location

// The lines that a command writes.
std::vector<std::string> output_of(const std::string& command) {
  std::vector<std::string> lines;
  FILE* const pipe = popen(command.c_str(), "r");
  if (!pipe) return lines;
  std::string line;
  for (int c; (c = std::fgetc(pipe)) != EOF;)
    if (c == '\n')
      lines.push_back(std::exchange(line, ""));
    else
      line += char(c);
  pclose(pipe);
  return lines;
}

bool is_of_the_program(const void* address) {
  const auto a = reinterpret_cast<uintptr_t>(address);
  return a > program_begin() && a < reinterpret_cast<uintptr_t>(&_end);
}
std::string own_program() { return std::filesystem::read_symlink("/proc/self/exe"); }

// "/folder/./my.cu:12 (discriminator 3)" is my.cu:12 in that folder.
std::string shortened(std::string line) {
  line = line.substr(0, line.find(" (discriminator"));
  const std::filesystem::path path = std::filesystem::path(line).lexically_normal();
  std::error_code none;
  const std::string folder = std::filesystem::current_path(none).string() + "/";
  line = path.string();
  return line.starts_with(folder) ? line.substr(folder.size()) : line;
}

bool is_of_the_stand_in(const std::string& line) {
  for (const char* folder :
       {"simt/device/", "simt/include/", "/./simt/host/", "/./simt/races/", "simt/try."})
    if (line.find(folder) != line.npos) return true;
  return line.starts_with("/usr/") || line.starts_with("??");
}

// The source line of each place. If calls are inlined there: the line of the innermost one outside
// the stand-in, and the line that calls it if that is in another file.
std::map<Place, std::string> lines_of(const std::set<Place>& places) {
  std::map<Place, std::string> lines;
  std::vector<Place> asked;
  std::string command = "addr2line -i -a -e '" + own_program() + "'";
  for (const Place p : places)
    if (p & of_site) {
      const uintptr_t at = program_begin() + (p & ~of_site);
      const auto site = std::bit_cast<std::source_location>(at);
      lines[p] = shortened(std::string(site.file_name()) + ":" + std::to_string(site.line()));
    } else {
      char text[20];
      std::snprintf(text, sizeof text, " 0x%" PRIx32, p - 1);  // within the call
      command += text;
      asked.push_back(p);
    }
  if (asked.empty()) return lines;
  size_t which = 0;
  std::string file;
  for (const std::string& line : output_of(command + " 2>/dev/null")) {
    if (line.starts_with("0x")) {
      ++which, file.clear();
      continue;
    }
    if (!which || is_of_the_stand_in(line)) continue;
    const std::string at = shortened(line);
    std::string& words = lines[asked[which - 1]];
    if (words.empty())
      words = at, file = at.substr(0, at.rfind(':'));
    else if (!file.empty() && !at.starts_with(file))
      words += " from " + at, file.clear();
  }
  for (const Place p : asked)
    if (lines[p].empty()) {
      char text[40];
      std::snprintf(text, sizeof text, "address 0x%" PRIx32, p);
      lines[p] = text;
    }
  return lines;
}

// "cudaError simt_cuda::cudaFree<int>(int*)" is cudaFree; empty for other functions.
std::string name_of_call(const std::string& function) {
  const auto is_of_name = [](char c) { return std::isalnum(c) || c == '_'; };
  for (size_t at = function.find("cuda"); at != function.npos; at = function.find("cuda", at + 1)) {
    if (at && is_of_name(function[at - 1])) continue;
    const auto end = std::find_if_not(function.begin() + at, function.end(), is_of_name);
    if (end != function.end() && (*end == '(' || *end == '<')) return {function.begin() + at, end};
  }
  return "";
}

// A variable of the program: "counter", "counters + 8 bytes".
std::string name_of_global(uintptr_t address) {
  const uintptr_t offset = address - program_begin();
  for (const std::string& line : output_of("nm -CS '" + own_program() + "' 2>/dev/null")) {
    uintptr_t begin = 0, bytes = 0;
    int words = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR " %" SCNxPTR " %*c %n", &begin, &bytes, &words) < 2 ||
        !words || offset < begin || offset - begin >= bytes)
      continue;
    const std::string name = line.substr(size_t(words));
    return offset == begin ? name : name + " + " + std::to_string(offset - begin) + " bytes";
  }
  return "a variable of the program";
}

std::string str(const std::array<unsigned, 3>& i) {
  return "(" + std::to_string(i[0]) + "," + std::to_string(i[1]) + "," + std::to_string(i[2]) + ")";
}

}  // namespace

Place Races::place_of(const void* code) {
  return Place(reinterpret_cast<uintptr_t>(code) - program_begin());
}
Place Races::place_of_site(const void* site) { return place_of(site) | of_site; }

std::string Races::name(uintptr_t address, Where where) const {
  if (where == Where::shared && name_shared) return name_shared(address);
  if (where == Where::device && name_device) return name_device(address);
  return name_of_global(address);
}

std::string Races::missing(const Party& first, bool in_flight) const {
  if (in_flight)
    return first.thread == me_ ? "no wait for the copy between them"
                               : "no wait for the copy and no barrier between them";
  if (first.block != blocks_.size() - 1) return "no fence and atomic between these blocks";
  return first.thread / 32 == me_ / 32 ? "no __syncwarp() or barrier between them"
                                       : "no barrier between them";
}

std::string Races::caller(const std::vector<void*>& stack) {
  std::string command = "addr2line -f -C -i -e '" + own_program() + "'", call;
  for (void* const at : stack)
    if (is_of_the_program(at)) {
      char text[20];
      std::snprintf(text, sizeof text, " 0x%" PRIxPTR,
                    reinterpret_cast<uintptr_t>(at) - 1 - program_begin());
      command += text;
    }
  const std::vector<std::string> lines = output_of(command + " 2>/dev/null");
  for (size_t i = 1; i < lines.size(); i += 2) {
    if (!is_of_the_stand_in(lines[i]))
      return shortened(lines[i]) + ": " + (call.empty() ? "" : call + ": ");
    call = name_of_call(lines[i - 1]);
  }
  return "";
}

void Races::add(Race race, Where where) {
  places_.insert(uint64_t{race.has_first ? race.first.place : 0} << 32 | race.second.place);
  racing_.insert(race.second.place);
  if (race.has_first) racing_.insert(race.first.place);
  if (races_.size() == most_kept) {
    ++unnamed_;
    return;
  }
  race.variable = name(race.address, where);
  races_.push_back(std::move(race));
}

std::string Races::words(const Party& p, const std::string& line) const {
  constexpr const char* touches[] = {"read", "write", "atomic", "cp.async"};
  if (p.thread == host) return std::string(touches[int(p.touch)]) + " at " + line + " by the host";
  const auto [x, y, z] = block_shape_;
  (void)z;
  return std::string(touches[int(p.touch)]) + " at " + line + " by thread " +
         str({p.thread % x, p.thread / x % y, p.thread / x / y}) + " of block " +
         str(blocks_[p.block]);
}

void Races::end_launch() {
  number_ = 0;
  if (!queued_) host_.clear();
  if (races_.empty()) return;
  std::set<Place> places;
  for (const Race& r : races_) {
    if (r.has_first) places.insert(r.first.place);
    places.insert(r.second.place);
  }
  const auto lines = lines_of(places);
  std::fflush(stdout);
  for (const Race& r : races_) {
    std::string a = r.has_first ? lines.at(r.first.place) : "", b = lines.at(r.second.place);
    const auto [low, high] = std::minmax(a, b);
    const std::string variable = r.variable.substr(0, r.variable.find_first_of("[0123456789"));
    if (!reported_.insert(kernel_ + " " + variable + " " + low + " " + high).second) continue;
    never_written_ += !r.has_first;
    if (reported_.size() > most_printed) continue;
    if (r.has_first)
      std::fprintf(stderr, "simt: %s: a race for %s: %s\n  %s and\n  %s\n", kernel_.c_str(),
                   r.variable.c_str(), r.missing.c_str(), words(r.first, a).c_str(),
                   words(r.second, b).c_str());
    else
      std::fprintf(stderr, "simt: %s: %s is read but was never written\n  %s\n", kernel_.c_str(),
                   r.variable.c_str(), words(r.second, b).c_str());
  }
  races_.clear();
}

std::string Races::last_words() const {
  const size_t all = found();
  const auto count = [](size_t n, const std::string& one, const std::string& many) {
    return std::to_string(n) + " " + (n == 1 ? one : many);
  };
  if (all > most_printed && !never_written_)
    return "and " + std::to_string(all - most_printed) + " more pairs of places that race";
  const size_t races = all - never_written_;
  std::string words = races ? count(races, "race", "races") : "";
  if (never_written_)
    words += (races ? ", " : "") + count(never_written_, "place that reads", "places that read") +
             " memory that was never written";
  if (all) return words;
  if (stopped_ && accesses_)
    return "no race found, but only the first " + std::to_string(accesses_ / 1'000'000) +
           " million accesses were watched (SIMT_RACES)";
  return "";
}

}  // namespace simt
