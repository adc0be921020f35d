// Counts by instruction, and the addresses of a few executions of each, for a kernel's page
// (learn/view/). Recording is on if the environment variable SIMT_LINES names the file to which the
// counts are written at exit, or if `on` is set. Counts cover all blocks. Addresses and a timeline
// are kept for some blocks of a kernel's first launch: for all if there are few, otherwise for the
// first two, the middle one and the last.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <source_location>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "simt/counters/access.h"
#include "simt/counters/counters.h"
#include "simt/counters/program_begin.h"

namespace simt {

// An instruction, summed over all warps that executed it.
struct LineCounts {
  uint64_t executions = 0, lanes = 0;  // by warps; lanes that took part in them
  uint64_t partial = 0;                // executions in which some lanes took no part
  GlobalAccesses global;
  uint64_t needed = 0;  // sectors that the distinct requested bytes would fill
  uint64_t used = 0;    // distinct requested bytes, summed over requests
  SharedAccesses shared;

  LineCounts& operator+=(const LineCounts&);
};

// One execution by a warp, in a block whose addresses are kept.
struct LineSample {
  uint64_t block;
  unsigned warp, number;        // the warp's n-th execution of the instruction in this block
  uint32_t mask;                // lanes that took part
  int space;                    // -1: global memory, else the index of a shared variable
  std::array<uint64_t, 32> at;  // device addresses, or offsets in the variable
  std::string name;             // of the first lane's element: "a[32]"
};

// A warp's work since its last wait, and the instruction that ends it: a barrier, a wait for
// asynchronous copies, or 0 for the block's end.
struct LineSegment {
  uint64_t block;
  unsigned warp;
  uint64_t instruction;
  uint64_t requests = 0, sectors = 0, turns = 0, mma = 0, exchanges = 0;  // shuffles and votes
};

// Executions of a piece of code without a branch (a basic block).
struct PieceCounts {
  uint64_t warps = 0, lanes = 0;
};

struct SharedName {
  std::string name;
  size_t bytes, element_bytes;
  std::vector<size_t> extents;  // of an array, in elements

  template <class Extents>  // simt/device's
  static SharedName of(const char* name, const Extents& e) {
    return {name ? name : "", 0, e.element_bytes, {e.of, e.of + e.rank}};
  }
};

// A pointer that a launch passes to its kernel, and the end of the allocation into which it points.
// For any other argument, all fields are 0.
struct KernelArgument {
  uint64_t begin = 0, end = 0;
  size_t element_bytes = 0;  // 1 for a void*
};

using Extent = std::array<unsigned, 3>;  // of a grid or a block; an index in it
struct LaunchLines;
// Counts of the block that a host thread runs.
class Lines {
 public:
  static inline bool on = false;
  // Set by simt/host, a layer above; returns the element at an address: "x[5]".
  static inline std::string (*name_device)(uintptr_t) = nullptr;
  // The counts since the last call, by kernel (lines_json.h).
  static std::map<std::string, LaunchLines> take();

  // Records the arguments of the kernel's first launch. Only programs of `make try` call it.
  static void pass(const std::string& kernel, std::vector<KernelArgument>);
  static void begin_launch(const std::string& kernel, const Extent& grid, const Extent& block,
                           size_t shared_bytes);
  static void end_launch(const Counters&);

  void begin(unsigned threads, const Extent& block);
  void shared_memory(SharedName name) { names_.push_back(std::move(name)); }
  // Names the launch's dynamic shared memory, of which only the size was known.
  void name_launch_memory(const SharedName&);
  // A request and its cost. An address in shared memory is an offset in bytes into its variable.
  struct Request {
    uint64_t instruction;
    uint32_t mask;  // lanes that took part
    bool partial;
    int space;
    const std::array<uint64_t, 32>& at;
    GlobalAccesses global;
    SharedAccesses shared;
  };
  void request(unsigned warp, const Request&);
  // Counts an instruction that isn't an access; `lanes` of the warp's `of` lanes took part.
  void event(unsigned warp, uint64_t instruction, unsigned lanes, unsigned of);
  void at_site(const void* place, std::source_location site) {
    sites_.try_emplace(address_of(place), site);
  }
  void enter_piece(unsigned thread, const void* place) {
    auto& list = pieces_of_[thread];
    if (list.size() == most_listed) fold(thread);
    list.push_back(Place(address_of(place) - program_begin()));
  }
  void count_pieces(unsigned begin, unsigned lanes);
  void end(unsigned warps);  // ends the block: adds its counts to the launch's

 private:
  using Place = uint32_t;  // from the program's load address
  static uint64_t address_of(const void* place) {
    return reinterpret_cast<uint64_t>(place) & address_mask;
  }
  static constexpr size_t most_listed = 1 << 14;
  void fold(unsigned thread);
  void end_segment(unsigned warp, uint64_t instruction);
  struct Line {
    LineCounts counts;
    std::array<uint32_t, 32> seen{};  // executions by each warp of the block
    std::vector<LineSample> samples;
  };

  bool kept_ = false;  // whether this block's addresses are kept
  uint64_t block_ = 0;
  unsigned most_ = 0;  // executions kept per warp and instruction
  std::unordered_map<uint64_t, Line> lines_;
  std::unordered_map<uint64_t, std::source_location> sites_;
  std::vector<SharedName> names_;
  std::array<LineSegment, 32> segments_{};
  std::vector<LineSegment> timeline_;
  std::vector<std::vector<Place>> pieces_of_;      // since the last wait, of each thread
  std::vector<std::map<Place, uint64_t>> folded_;  // counts of pieces from lists that were full
  std::unordered_map<Place, PieceCounts> pieces_;
};

}  // namespace simt
