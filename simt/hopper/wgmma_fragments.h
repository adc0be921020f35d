// Registers of a warp that wgmma uses: their values at the last fence or delivery, and the sums
// that hardware holds for them in flight.
#pragma once
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

namespace simt {

struct WgmmaShape {
  unsigned columns;  // N
  bool is_half, a_is_mn_major, b_is_mn_major;
  bool operator==(const WgmmaShape&) const = default;
};

// Registers of a lane.
struct Registers {
  void* at;
  unsigned count;
};
// The registers that each lane has passed.
struct WarpRegisters {
  const Registers* of[32];
  unsigned count;
};

class Fragment {
 public:
  Fragment(const WarpRegisters&, unsigned index);

  bool is(const void* first_lanes, unsigned count) const {
    return lanes_[0] == first_lanes && count_ == count;
  }
  bool overlaps(const void* begin, size_t bytes) const;
  bool holds(const void* begin, unsigned count) const;
  unsigned count() const { return count_; }

  // Remembers the registers' values, which a fence has ordered.
  void remember();
  // Whether the registers have the values of the last remember(): all of them, or `count` per lane,
  // of which first_lanes is lane 0's first.
  bool is_unchanged() const { return is_unchanged(lanes_[0], count_); }
  bool is_unchanged(const void* first_lanes, unsigned count) const;

  // An accumulator in flight: sums() is [16][2 * count], in the rows and columns of the warp's part
  // of D. begin_flight() initialises it from the registers, which it poisons unless `early`.
  void begin_flight(bool early);
  bool is_early() const { return early_; }
  bool flies() const { return flies_; }
  float* sums() { return sums_.data(); }
  void clear_sums() { sums_.assign(sums_.size(), 0); }
  void deliver();  // to the registers
  // Ends the flight: the registers get the sums.
  void land() { deliver(), flies_ = false; }
  size_t last = 0;  // the number of the last operation on it

 private:
  std::vector<unsigned char*> lanes_;
  unsigned count_;
  std::vector<uint32_t> values_;  // [32][count]
  std::vector<float> sums_;
  bool flies_ = false, early_ = false;
};

// A warp's fragments. A fragment that a fence names replaces those that it overlaps.
class Fragments {
 public:
  Fragment* find(const void* first_lanes, unsigned count);
  // The fragment that includes these registers, or null.
  Fragment* holding(const void* first_lanes, unsigned count);
  // A fragment in flight that overlaps these bytes, or null.
  Fragment* flying(const void* begin, size_t bytes);
  Fragment& add(const WarpRegisters&, unsigned index);

 private:
  std::list<Fragment> all_;
};

}  // namespace simt
