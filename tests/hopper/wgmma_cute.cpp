// Compares the stand-in with CuTe: matrix descriptors bit by bit, and products by wgmma, with tiles
// stored by CuTe's layouts of shared memory and sums read by CuTe's layouts of registers; for all
// shapes, both majors, all swizzles, both orders of a tile's atoms, fp16 and bf16.
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/hopper/wgmma_sides.h"

// CuTe gets shared addresses from this function.
#define CUTE_CVTA_GENERIC_TO_SHARED_ACTIVATED 1
size_t __cvta_generic_to_shared(const void*);
#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED 1
#include <cute/atom/mma_traits_sm90_gmma.hpp>
#include <cute/tensor.hpp>

namespace {

using namespace cute;
using SM90::GMMA::Major;
namespace compare = bv::compare;

alignas(1024) unsigned char memory[128 * 1024];

constexpr int depth = 64, steps = depth / 16;

struct Counts {
  const char* what;
  long compared = 0, different = 0;
  void add(bool same, const std::string& where) {
    ++compared;
    if (same) return;
    if (++different <= 5) std::printf("different %s: %s\n", what, where.c_str());
  }
};
Counts descriptors{"descriptors"}, sums{"sums"}, one_hot{"one-hot sums"};

// ---- Tiles in shared memory --------------------------------------------------------------------

// A tile [size, depth] at the beginning of shared memory, by CuTe: where each element is stored,
// and the descriptor of every 16 of K.
struct StoredTile {
  int size;
  bool is_mn_major, k_first;
  int swizzle;
  std::vector<uint32_t> offset;  // [size][depth], bytes
  uint64_t descriptor[steps];
  uint32_t bytes() const { return uint32_t(size * depth * 2 + 1023) / 1024 * 1024; }
  std::string name() const {
    return std::to_string(size) + (is_mn_major ? " MN-major" : " K-major") + " swizzle " +
           std::to_string(swizzle) + (k_first ? ", atoms along K first" : "");
  }
};

template <int size, Major major, int swizzle, bool k_first>
StoredTile make_tile() {
  using Atom =
      std::tuple_element_t<swizzle, std::tuple<SM90::GMMA::Layout_INTER_Atom<uint16_t, major>,
                                               SM90::GMMA::Layout_SW32_Atom<uint16_t, major>,
                                               SM90::GMMA::Layout_SW64_Atom<uint16_t, major>,
                                               SM90::GMMA::Layout_SW128_Atom<uint16_t, major>>>;
  using Order = std::conditional_t<k_first, Step<_2, _1>, Step<_1, _2>>;
  const auto layout = tile_to_shape(Atom{}, Shape<Int<size>, Int<depth>>{}, Order{});
  auto* const at = reinterpret_cast<uint16_t*>(memory);
  const Tensor tile = make_tensor(make_smem_ptr(at), layout);
  StoredTile t{size, major == Major::MN, k_first, swizzle};
  for (int mn = 0; mn < size; ++mn)
    for (int k = 0; k < depth; ++k)
      t.offset.push_back(uint32_t((&tile(mn, k) - at) * sizeof(uint16_t)));
  for_each(make_int_sequence<steps>{}, [&](auto step) {
    const Tensor part = local_tile(tile, Shape<Int<size>, _16>{}, make_coord(_0{}, step));
    t.descriptor[step] = SM90::GMMA::make_gmma_desc<major>(part);
  });
  return t;
}

// Our descriptor, computed from the tile's dimensions.
uint64_t our_descriptor(const StoredTile& t, int step) {
  const uint32_t row = 16u << t.swizzle, atom = 8 * row, size = uint32_t(t.size);
  const uint32_t atoms_mn = t.is_mn_major ? size * 2 / row : size / 8;
  const uint32_t atoms_k = t.is_mn_major ? depth / 8 : depth * 2 / row;
  // From one atom to the next, along MN and along K.
  const uint32_t along_mn = t.k_first ? atoms_k * atom : atom;
  const uint32_t along_k = t.k_first ? atom : atoms_mn * atom;
  uint32_t stride = along_mn, leading = 16, next = 2 * along_k;
  if (t.swizzle == 0)
    leading = along_k;
  else if (t.is_mn_major)
    stride = along_k, leading = along_mn;
  else
    next = 32;
  uint32_t offset = uint32_t(step) * next;
  if (!t.is_mn_major && t.swizzle)
    offset = uint32_t(step) * 32 / row * along_k + uint32_t(step) * 32 % row;
  return compare::advance(compare::descriptor(compare::first_address, t.swizzle, stride, leading),
                          offset);
}

void compare_descriptors(const StoredTile& t) {
  // If there is only one atom, the distance to the next has no meaning; CuTe's is 0.
  const uint32_t row = 16u << t.swizzle;
  const bool has_one = t.is_mn_major ? uint32_t(t.size) * 2 == row : t.size == 8;
  const int unused = t.is_mn_major && t.swizzle ? 16 : 32;
  const uint64_t mask = has_one ? ~(uint64_t{0x3FFF} << unused) : ~uint64_t{0};
  for (int step = 0; step < steps; ++step)
    descriptors.add((t.descriptor[step] & mask) == (our_descriptor(t, step) & mask),
                    t.name() + " step " + std::to_string(step));
}

template <int size, Major major, int swizzle>
void add_tiles(std::vector<StoredTile>& to) {
  if constexpr (major == Major::K || size % (8 << swizzle) == 0) {
    to.push_back(make_tile<size, major, swizzle, false>());
    if constexpr (size % 64 == 0) to.push_back(make_tile<size, major, swizzle, true>());
  }
}

template <int size>
std::vector<StoredTile> all_tiles() {
  std::vector<StoredTile> tiles;
  for_each(make_int_sequence<4>{}, [&](auto swizzle) {
    add_tiles<size, Major::K, swizzle>(tiles);
    add_tiles<size, Major::MN, swizzle>(tiles);
  });
  for (const StoredTile& t : tiles) compare_descriptors(t);
  return tiles;
}

// ---- Products ----------------------------------------------------------------------------------

struct Shape16 {
  int columns;
  std::vector<int> d;  // [128][columns / 2]: m + 64 n of each register
  std::vector<int> a;  // [128][8]: m + 64 k
};

template <class Traits>
std::vector<int> positions(int values) {
  std::vector<int> at;
  for (int t = 0; t < 128; ++t)
    for (int v = 0; v < values; ++v) at.push_back(int(Traits{}(t, v)));
  return at;
}
template <int columns, template <Major, Major, SM90::GMMA::ScaleIn, SM90::GMMA::ScaleIn> class SS,
          template <Major, Major, SM90::GMMA::ScaleIn, SM90::GMMA::ScaleIn> class RS>
Shape16 shape() {
  constexpr auto one = SM90::GMMA::ScaleIn::One;
  using Shared = MMA_Traits<SS<Major::K, Major::K, one, one>>;
  using FromRegisters = MMA_Traits<RS<Major::K, Major::K, one, one>>;
  static_assert(std::is_same_v<typename Shared::CLayout, typename FromRegisters::CLayout>);
  return {columns, positions<typename Shared::CLayout>(columns / 2),
          positions<typename FromRegisters::ALayout>(8)};
}

uint16_t bits(float x, bool is_half) {
  if (is_half) return half_t(x).raw();
  uint32_t word;
  std::memcpy(&word, &x, 4);
  return uint16_t(word >> 16);  // exact for what this file stores
}

void place(const StoredTile& t, uint32_t at, const std::vector<float>& values, bool is_half) {
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t x = bits(values[i], is_half);
    std::memcpy(memory + at + t.offset[i], &x, 2);
  }
}

std::vector<float> integers(size_t count) {
  static std::mt19937 random;
  std::vector<float> x(count);
  for (float& value : x) value = float(int(random() % 9) - 4);
  return x;
}

// a[64][depth], b[columns][depth]
void compare_sums(Counts& counts, const std::vector<float>& d, const Shape16& shape,
                  const std::vector<float>& a, const std::vector<float>& b,
                  const std::string& name) {
  std::vector<float> expected(size_t(64 * shape.columns));
  for (int m = 0; m < 64; ++m)
    for (int n = 0; n < shape.columns; ++n) {
      float& sum = expected[size_t(m + 64 * n)];
      for (int k = 0; k < depth; ++k) sum += a[size_t(m * depth + k)] * b[size_t(n * depth + k)];
    }
  for (size_t i = 0; i < d.size(); ++i)
    counts.add(d[i] == expected[size_t(shape.d[i])], name + " register " + std::to_string(i));
}

void compare_product(const Shape16& shape, const StoredTile& a, const StoredTile& b, bool is_half) {
  const auto x = integers(64 * depth), y = integers(size_t(shape.columns * depth));
  place(a, 0, x, is_half);
  place(b, a.bytes(), y, is_half);
  uint64_t b_descriptor[steps];
  for (int i = 0; i < steps; ++i) b_descriptor[i] = compare::advance(b.descriptor[i], a.bytes());
  std::vector<float> d(shape.d.size());
  compare::multiply({.columns = shape.columns,
                     .is_half = is_half,
                     .a_is_mn_major = a.is_mn_major,
                     .b_is_mn_major = b.is_mn_major,
                     .shared = memory,
                     .bytes = a.bytes() + b.bytes(),
                     .steps = steps,
                     .a = a.descriptor,
                     .b = b_descriptor},
                    d.data());
  compare_sums(sums, d, shape, x, y,
               "n " + std::to_string(shape.columns) + ", A " + a.name() + ", B " + b.name());
}

// The product with A in registers, whose elements are placed by CuTe's layout.
void compare_registers(Counts& counts, const Shape16& shape, const StoredTile& b,
                       const std::vector<float>& x, const std::vector<float>& y, bool is_half) {
  place(b, 0, y, is_half);
  std::vector<uint32_t> registers(steps * 128 * 4);
  for (int step = 0; step < steps; ++step)
    for (int i = 0; i < 128 * 8; ++i) {
      const int m = shape.a[size_t(i)] % 64, k = shape.a[size_t(i)] / 64 + 16 * step;
      const uint16_t value = bits(x[size_t(m * depth + k)], is_half);
      std::memcpy(reinterpret_cast<uint16_t*>(registers.data()) + step * 128 * 8 + i, &value, 2);
    }
  std::vector<float> d(shape.d.size());
  compare::multiply({.columns = shape.columns,
                     .is_half = is_half,
                     .a_is_mn_major = false,
                     .b_is_mn_major = b.is_mn_major,
                     .shared = memory,
                     .bytes = b.bytes(),
                     .steps = steps,
                     .a = nullptr,
                     .a_registers = reinterpret_cast<const uint32_t(*)[4]>(registers.data()),
                     .b = b.descriptor},
                    d.data());
  compare_sums(counts, d, shape, x, y,
               "n " + std::to_string(shape.columns) + ", A in registers, B " + b.name());
}

// Sets one element of A at a time, with a B whose elements all differ.
void compare_one_hot(const Shape16& shape, const StoredTile& b) {
  std::vector<float> y(size_t(shape.columns * depth));
  for (size_t i = 0; i < y.size(); ++i) y[i] = float(i);
  for (int m = 0; m < 64; ++m)
    for (int k = 0; k < 16; ++k) {
      std::vector<float> x(64 * depth);
      x[size_t(m * depth + k)] = 1;
      compare_registers(one_hot, shape, b, x, y, true);
    }
}

template <int columns>
void compare_shape(const Shape16& shape, const std::vector<StoredTile>& a_tiles) {
  const std::vector<StoredTile> b_tiles = all_tiles<columns>();
  for (const bool is_half : {true, false})
    for (const StoredTile& b : b_tiles) {
      for (const StoredTile& a : a_tiles) compare_product(shape, a, b, is_half);
      compare_registers(sums, shape, b, integers(64 * depth), integers(size_t(columns * depth)),
                        is_half);
    }
  if (columns == 8) compare_one_hot(shape, b_tiles[0]);
}

}  // namespace

size_t __cvta_generic_to_shared(const void* p) {
  return compare::first_address + size_t(static_cast<const unsigned char*>(p) - memory);
}

int main() {
  const std::vector<StoredTile> a_tiles = all_tiles<64>();
#define SHAPE(n)                                                                             \
  compare_shape<n>(shape<n, SM90_64x##n##x16_F32F16F16_SS, SM90_64x##n##x16_F32F16F16_RS>(), \
                   a_tiles)
  SHAPE(8), SHAPE(16), SHAPE(24), SHAPE(32), SHAPE(40), SHAPE(48), SHAPE(56), SHAPE(64);
  SHAPE(72), SHAPE(80), SHAPE(88), SHAPE(96), SHAPE(104), SHAPE(112), SHAPE(120), SHAPE(128);
  SHAPE(136), SHAPE(144), SHAPE(152), SHAPE(160), SHAPE(168), SHAPE(176), SHAPE(184), SHAPE(192);
  SHAPE(200), SHAPE(208), SHAPE(216), SHAPE(224), SHAPE(232), SHAPE(240), SHAPE(248), SHAPE(256);
  long different = 0;
  for (const Counts& c : {descriptors, sums, one_hot}) {
    std::printf("wgmma: %ld %s compared with CuTe, %ld different\n", c.compared, c.what,
                c.different);
    different += c.different;
  }
  return different ? 1 : 0;
}
