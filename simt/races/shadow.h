// For each word of memory that a kernel's threads share: the last write, and the reads since. A
// word that has been accessed in part is recorded by bytes.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "simt/races/clocks.h"

namespace simt {

// A place in the program, of code or of a source_location: its offset from the load address.
using Place = uint32_t;

// Reads by lanes of a warp, at one time and place.
struct Reads {
  Stamp stamp = 0;
  Place place = 0;
  uint32_t lanes = 0;
  uint16_t warp = 0;
  bool is_strong = false;  // atomic or volatile
};
struct Cell {
  Stamp written = 0;  // 0: never; of a word recorded by bytes: its last access
  Place place = 0;    // of that write
  uint16_t writer = 0;
  bool is_strong = false, is_atomic = false;
  bool in_flight = false;  // by an asynchronous copy that no thread has waited for
  bool by_bytes = false;
  Reads reads{};
  uint32_t more = 0;  // further reads, or the bytes
};

class Shadow {
 public:
  static constexpr size_t word = 4;
  // Null: there is no room for more.
  Cell* at(uintptr_t address);
  // Forgets all cells. Their memory is reused without clearing it: cells with old stamps are void.
  void clear();

  // Further reads and bytes: kept until the next block for shared memory, else the next launch.
  struct More {
    Reads reads;
    uint32_t next;
  };
  struct Pool {
    std::vector<More> more{1};
    uint32_t free = 0;
    std::deque<std::array<Cell, word>> bytes{};

    uint32_t add(const Reads& reads, uint32_t next);
    void drop(uint32_t first);  // and those after it
    void clear();
  };
  Pool pools[2];  // of global and of shared memory

 private:
  static constexpr uintptr_t page = 4096;
  static constexpr size_t max_pages = (size_t{2} << 30) / (page / word * sizeof(Cell));
  using Page = std::array<Cell, page / word>;
  struct Recent {
    uintptr_t number = ~uintptr_t{0};
    Page* page = nullptr;
  };
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  std::vector<std::unique_ptr<Page>> spare_;
  std::array<Recent, 256> recent_;
};

}  // namespace simt
