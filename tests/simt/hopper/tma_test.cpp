// Compares TMA and stmatrix with plain loops: tiles of 1 to 5 dimensions, inside, partly inside and
// outside the tensor, with element strides and each swizzle; pixels of convolutions; reductions;
// bulk copies.
#include <gtest/gtest.h>

#include <random>

#include "kernels/cuda/round.cuh"
#include "simt/hopper/box.h"
#include "tests/simt/hopper/hopper_test.h"

namespace bv::simt_gpu {
namespace {

constexpr int most_bytes = 16 * 1024;
struct Shared {
  alignas(1024) unsigned char box[most_bytes];
  uint64_t full;
};
struct At {
  int of[5];
};

// Copies a box to `out` as it lies in shared memory, and stores it from there through the map `to`.
template <int rank>
void through_shared_memory(const CUtensorMap from, const CUtensorMap to, At at, int bytes,
                           unsigned char* out, bool adds) {
  auto& s = shared<Shared>();
  int c[rank];
  for (int i = 0; i < rank; ++i) c[i] = at.of[i];
  if (threadIdx.x == 0) {
    mbarrier_init(&s.full, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(&s.full, unsigned(bytes));
    cp_async_bulk_tensor(s.box, from, &s.full, c);
  }
  __syncthreads();
  mbarrier_wait_parity(&s.full, 0);
  for (int i = int(threadIdx.x); i < bytes; i += 32) out[i] = s.box[i];
  if (threadIdx.x != 0) return;
  if (adds)
    cp_reduce_async_bulk_tensor_add(to, s.box, c);
  else
    cp_async_bulk_tensor_store(to, s.box, c);
  cp_async_bulk_commit_group();
  cp_async_bulk_wait_group<0>();
}

class SimtTma : public SimtHopper {
 protected:
  std::mt19937 random_{1};
  int draw(int least, int most) { return least + int(random_() % unsigned(most - least + 1)); }

  template <class T, int rank>
  void check_tile(ElementType type, Swizzle swizzle);
};

// The place of a row's element, by the pattern in NVIDIA's figures: in row r of the pattern (a row
// is 128 bytes), 16-byte piece p of a span is stored at piece p xor r.
size_t place(size_t row, size_t element, size_t row_bytes, size_t size, Swizzle swizzle) {
  const size_t byte = row * row_bytes + element * size;
  const size_t span = swizzle == Swizzle::none ? 0 : size_t{16} << int(swizzle);
  if (!span) return byte;
  const size_t line = byte / 128 % 8, piece = byte % span / 16;
  return byte - byte % span + (piece ^ (line % (span / 16))) * 16 + byte % 16;
}

template <class T, int rank>
void SimtTma::check_tile(ElementType type, Swizzle swizzle) {
  static Aligned<T> data, stored;
  std::vector<unsigned> size, box, step;
  int bytes = sizeof(T);
  for (int i = 0; i < rank; ++i) {
    const int n = i ? draw(1, rank == 5 ? 3 : 5) : 16 / int(sizeof(T)) * draw(1, 6);
    const int s = i ? draw(1, 3) : 1;
    int b = i ? draw(1, 6) : 16 / int(sizeof(T)) * draw(1, 4);
    if (!i && swizzle != Swizzle::none) b = (16 << int(swizzle)) / int(sizeof(T));
    size.push_back(unsigned(n)), box.push_back(unsigned(b)), step.push_back(unsigned(s));
    bytes *= i ? (b + s - 1) / s : b;
  }
  if (bytes > most_bytes) return;
  const CUtensorMap from = map_of(data.at, type, size, box, swizzle, step);
  const CUtensorMap to = map_of(stored.at, type, size, box, swizzle, step);
  At at{};
  for (int i = 0; i < rank; ++i) at.of[i] = draw(-int(box[i]) - 1, int(size[i]) + 1);
  std::fill(std::begin(stored.at), std::end(stored.at), T(0));
  std::vector<unsigned char> out(size_t(bytes), 0xFF);
  run<through_shared_memory<rank>>(1, 32, sizeof(Shared), from, to, at, bytes, out.data(), false);

  std::vector<T> expected_store(8192, T(0));
  const size_t rows = size_t(bytes) / sizeof(T) / box[0];
  for (size_t row = 0; row < rows; ++row)
    for (size_t x = 0; x < box[0]; ++x) {
      size_t rest = row, index = 0, pitch = 1;
      bool is_inside = true;
      for (size_t i = 0; i < rank; ++i) {
        const size_t n = i ? (box[i] + step[i] - 1) / step[i] : 1;
        const int64_t c = at.of[i] + int64_t(i ? rest % n * step[i] : x);
        rest /= n;
        is_inside &= c >= 0 && c < int64_t(size[i]);
        index += size_t(c) * pitch;
        pitch *= size[i];
      }
      const T expected = is_inside ? data.at[index] : T(0);
      T got;
      std::memcpy(&got, &out[place(row, x, box[0] * sizeof(T), sizeof(T), swizzle)], sizeof got);
      ASSERT_EQ(got, expected) << "row " << row << ", element " << x;
      if (is_inside) expected_store[index] = expected;
    }
  for (size_t i = 0; i < 8192; ++i) ASSERT_EQ(stored.at[i], expected_store[i]) << i;
}

TEST_F(SimtTma, TilesAreTheTensorsElementsAndZerosOutside) {
  for (int i = 0; i < 40; ++i)
    for (const Swizzle swizzle : {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128}) {
      check_tile<float, 1>(ElementType::f32, swizzle);
      check_tile<float, 2>(ElementType::f32, swizzle);
      check_tile<uint16_t, 2>(ElementType::bf16, swizzle);
      check_tile<uint16_t, 3>(ElementType::f16, swizzle);
      check_tile<uint16_t, 4>(ElementType::f16, swizzle);
      check_tile<float, 5>(ElementType::f32, swizzle);
      if (HasFatalFailure()) return;
    }
}

TEST_F(SimtTma, ReductionsAddInTheElementsType) {
  std::vector<unsigned char> out(64 * 4);
  alignas(64) static uint16_t a[64], b[64];
  const auto bf16 = [](float x) { return __bfloat16_as_ushort(__float2bfloat16(x)); };
  for (int i = 0; i < 64; ++i) a[i] = bf16(float(i) + 1), b[i] = bf16(256);
  const CUtensorMap from16 = map_of(a, ElementType::bf16, {64}, {64}),
                    to16 = map_of(b, ElementType::bf16, {56}, {64});
  run<through_shared_memory<1>>(1, 32, sizeof(Shared), from16, to16, At{}, 128, out.data(), true);
  for (int i = 0; i < 56; ++i) EXPECT_EQ(b[i], bf16(256 + float(i) + 1)) << i;
  for (int i = 56; i < 64; ++i) EXPECT_EQ(b[i], bf16(256)) << i;
  alignas(64) static float ones[64], sums[64];
  for (int i = 0; i < 64; ++i) ones[i] = float(i) + 0.25f, sums[i] = 1;
  const CUtensorMap from = map_of(ones, ElementType::f32, {32, 2}, {32, 2}),
                    to = map_of(sums, ElementType::f32, {32, 2}, {32, 2});
  for (int n = 1; n <= 3; ++n) {
    run<through_shared_memory<2>>(1, 32, sizeof(Shared), from, to, At{}, 256, out.data(), true);
    for (int i = 0; i < 64; ++i) EXPECT_EQ(sums[i], 1 + float(n) * ones[i]);
  }
}

// ---- Pixels ------------------------------------------------------------------------------------
template <int rank>
void pixels(const CUtensorMap from, At at, At offsets, int bytes, unsigned char* out) {
  auto& s = shared<Shared>();
  int c[rank];
  uint16_t offset[rank - 2];
  for (int i = 0; i < rank; ++i) c[i] = at.of[i];
  for (int i = 0; i < rank - 2; ++i) offset[i] = uint16_t(offsets.of[i]);
  if (threadIdx.x == 0) {
    mbarrier_init(&s.full, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(&s.full, unsigned(bytes));
    cp_async_bulk_tensor_im2col(s.box, from, &s.full, c, offset);
  }
  __syncthreads();
  mbarrier_wait_parity(&s.full, 0);
  for (int i = int(threadIdx.x); i < bytes; i += 32) out[i] = s.box[i];
}

// A forward convolution's operand: row m of a tile is output pixel (n, p, q) of the flattened list,
// and holds the input under filter tap (r, s), by the convolution's own formula.
TEST_F(SimtTma, PixelsAreAConvolutionsOperand) {
  static Aligned<uint16_t> data;
  for (int trial = 0; trial < 300; ++trial) {
    const int N = draw(1, 3), H = draw(3, 7), W = draw(3, 7), C = 8 * draw(1, 3), R = draw(1, 3),
              S = draw(1, 3), pad = draw(0, 1), stride = draw(1, 2), dilation = draw(1, 2);
    const int P = (H + 2 * pad - dilation * (R - 1) - 1) / stride + 1,
              Q = (W + 2 * pad - dilation * (S - 1) - 1) / stride + 1;
    if (P < 1 || Q < 1 || H + 2 * pad < dilation * (R - 1) + 1 ||
        W + 2 * pad < dilation * (S - 1) + 1)
      continue;
    const unsigned channels = 8, tile = unsigned(draw(1, 40));
    const Im2colTensor t{.address = data.at,
                         .type = ElementType::bf16,
                         .rank = 4,
                         .size = {uint64_t(C), uint64_t(W), uint64_t(H), uint64_t(N)},
                         .stride = {uint64_t(2 * C), uint64_t(2 * C * W), uint64_t(2 * C * W * H)},
                         .lower = {-pad, -pad},
                         .upper = {pad - (S - 1) * dilation, pad - (R - 1) * dilation},
                         .channels = channels,
                         .pixels = tile,
                         .step = {unsigned(stride), unsigned(stride), 1}};
    const MadeMap made = make_map(t);
    ASSERT_EQ(made.why, NoMap::fits) << str(made.why);
    const int first = draw(0, N * P * Q - 1), r = draw(0, R - 1), s = draw(0, S - 1),
              c0 = 8 * draw(0, C / 8 - 1);
    const int n0 = first / (P * Q), p0 = first / Q % P, q0 = first % Q;
    std::vector<unsigned char> out(box_bytes(t), 0xFF);
    run<pixels<4>>(1, 32, sizeof(Shared), made.map,
                   At{{c0, q0 * stride - pad, p0 * stride - pad, n0}},
                   At{{s * dilation, r * dilation}}, int(out.size()), out.data());
    for (unsigned m = 0; m < tile; ++m)
      for (unsigned c = 0; c < channels; ++c) {
        const int pixel = first + int(m), n = pixel / (P * Q), p = pixel / Q % P, q = pixel % Q,
                  h = p * stride - pad + r * dilation, w = q * stride - pad + s * dilation;
        const bool is_inside = n < N && h >= 0 && h < H && w >= 0 && w < W;
        const uint16_t expected =
            is_inside ? data.at[((n * H + h) * W + w) * C + c0 + int(c)] : uint16_t(0);
        uint16_t got;
        std::memcpy(&got, &out[(m * channels + c) * 2], 2);
        ASSERT_EQ(got, expected) << "trial " << trial << ", pixel " << m << ", channel " << c;
      }
  }
}

// ---- Bytes and matrices ------------------------------------------------------------------------
void copies_bytes(const float* in, float* out) {
  auto& s = shared<Shared>();
  if (threadIdx.x == 0) {
    mbarrier_init(&s.full, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(&s.full, 48);
    cp_async_bulk(s.box + 16, in + 4, 48, &s.full);
    mbarrier_wait_parity(&s.full, 0);
    cp_async_bulk_store(out, s.box + 32, 32);
    cp_async_bulk_commit_group();
    cp_async_bulk_wait_group_read<0>();
  }
}
TEST_F(SimtTma, BulkCopiesMoveTheirBytes) {
  alignas(16) float in[16], out[12];
  std::iota(in, in + 16, 0.0f);
  in_each_order([&] {
    std::fill(out, out + 12, -1.0f);
    run<copies_bytes>(1, 32, sizeof(Shared), &in[0], &out[0]);
    for (int i = 0; i < 12; ++i) EXPECT_EQ(out[i], i < 8 ? float(i + 8) : -1);
  });
}

template <bool transposed>
void stores_matrices(const uint16_t* in, uint16_t* out) {
  auto& s = *reinterpret_cast<uint16_t(*)[4][8][8]>(shared<Shared>().box);
  const unsigned lane = threadIdx.x, g = lane / 4, p = lane % 4 * 2;
  uint32_t r[4];
  for (int m = 0; m < 4; ++m) {
    const uint16_t* const x = in + 64 * m;
    r[m] = transposed ? x[p * 8 + g] | uint32_t{x[(p + 1) * 8 + g]} << 16
                      : x[g * 8 + p] | uint32_t{x[g * 8 + p + 1]} << 16;
  }
  if (transposed)
    stmatrix_x4_trans(s[lane / 8][lane % 8], r);
  else
    stmatrix_x4(s[lane / 8][lane % 8], r);
  __syncwarp();
  uint32_t back[4];  // ldmatrix reads what stmatrix has written
  if (transposed)
    ldmatrix_x4_trans(back, s[lane / 8][lane % 8]);
  else
    ldmatrix_x4(back, s[lane / 8][lane % 8]);
  for (int m = 0; m < 4; ++m)
    if (back[m] != r[m]) __trap();
  for (int i = 0; i < 8; ++i) out[lane * 8 + unsigned(i)] = (&s[0][0][0])[lane * 8 + unsigned(i)];
}
TEST_F(SimtTma, StmatrixIsTheReverseOfLdmatrix) {
  uint16_t in[256], out[256];
  std::iota(in, in + 256, uint16_t{1});
  run<stores_matrices<false>>(1, 32, sizeof(Shared), &in[0], &out[0]);
  EXPECT_TRUE(std::equal(in, in + 256, out));
  std::fill(out, out + 256, uint16_t{0});
  run<stores_matrices<true>>(1, 32, sizeof(Shared), &in[0], &out[0]);
  EXPECT_TRUE(std::equal(in, in + 256, out));
}

}  // namespace
}  // namespace bv::simt_gpu
