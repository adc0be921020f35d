// Each PTX instruction wrapped once, named as the instruction. Its twin for g++ stands beside it;
// where the instruction is a warp's, the last lane to arrive does it for all (::simt::collective).
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>

#include "kernels/launch.cuh"

namespace bv::BAREVISION_GPU {

// Four 8x8 matrices of 16-bit elements: lane i brings the address of row i%8 of matrix i/8, and
// gets of matrix m the pair (row lane/4, columns lane%4*2 and the next) in r[m].
#ifdef __CUDACC__
__device__ inline void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
#else
inline void ldmatrix_x4(uint32_t (&r)[4], const void* row,
                        ::simt::Site site = ::simt::Site::current()) {
  struct Hand {
    uint32_t* r;
    const void* row;
  } mine{r, row};
  ::simt::collective(mine, site, [](auto lanes) {
    for (int i = 0; i < 32; ++i) {
      uint32_t pairs[4];
      std::memcpy(pairs, std::assume_aligned<16>(lanes(i).row), 16);
      for (int j = 0; j < 4; ++j) lanes(i % 8 * 4 + j).r[i / 8] = pairs[j];
    }
  });
}
#endif

// D (16x8, fp32) += A (16x16, fp16) * B (16x8, fp16). With g = lane/4, p = lane%4*2 a lane holds of
// D: (g, p) (g, p+1) (g+8, p) (g+8, p+1)            one element each
// A: (g, p) (g+8, p) (g, p+8) (g+8, p+8)            pairs along the row
// B: (p, g) (p+8, g)                                pairs along the column
#ifdef __CUDACC__
__device__ inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#else
inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                         ::simt::Site site = ::simt::Site::current()) {
  struct Hand {
    float* d;
    const uint32_t *a, *b;
  } mine{d, a, b};
  ::simt::collective(mine, site, [](auto lanes) {
    alignas(16) uint16_t A[16][16], B[16][8];
    ::simt::float8 D[16];
    for (int i = 0; i < 32; ++i) {
      const auto& [ld, la, lb] = lanes(i);
      const int g = i / 4, p = i % 4 * 2;
      for (int j = 0; j < 4; ++j) D[g + j / 2 * 8][p + j % 2] = ld[j];
      for (int j = 0; j < 4; ++j) std::memcpy(&A[g + j % 2 * 8][p + j / 2 * 8], &la[j], 4);
      for (int j = 0; j < 2; ++j)
        B[p + j * 8][g] = uint16_t(lb[j]), B[p + j * 8 + 1][g] = uint16_t(lb[j] >> 16);
    }
    for (int row = 0; row < 16; ++row)
      for (int k = 0; k < 16; k += 8) {
        const ::simt::float8 row_a = ::simt::half8_to_float8(&A[row][k]);
        for (int i = 0; i < 8; ++i) D[row] += row_a[i] * ::simt::half8_to_float8(B[k + i]);
      }
    for (int i = 0; i < 32; ++i)
      for (int j = 0; j < 4; ++j) lanes(i).d[j] = D[i / 4 + j / 2 * 8][i % 4 * 2 + j % 2];
  });
}
#endif

// 16 bytes from global to shared memory, under way until a cp_async_wait.
__device__ inline void cp_async_16(void* shared, const void* global) {
#ifdef __CUDACC__
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global) : "memory");
#else
  ::simt::copy_async(shared, global, 16);
#endif
}
__device__ inline void cp_async_commit() {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  ++::simt::self->groups;
#endif
}
template <int pending>  // waits until at most this many committed groups are under way
__device__ void cp_async_wait() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
#else
  ::simt::copy_wait(pending);
#endif
}

}  // namespace bv::BAREVISION_GPU
