// wgmma.mma_async as inline assembly, for every N, which is twice the number of accumulators.
// Included only by ptx_wgmma.cuh. Inline assembly takes neither arrays nor a number of operands
// that depends on a template, hence macros: BV_TEXT_n and BV_D_n list 4n registers of D as text and
// as operands; the operands that follow are numbered from N / 2 on.
#pragma once
#include <cstdint>
#include <type_traits>

namespace bv::BAREVISION_GPU::wgmma_asm {

#define BV_D(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define BV_TEXT_1 "%0,%1,%2,%3"
#define BV_D_1 BV_D(0)
#define BV_TEXT_2 BV_TEXT_1 ",%4,%5,%6,%7"
#define BV_D_2 BV_D_1, BV_D(4)
#define BV_TEXT_3 BV_TEXT_2 ",%8,%9,%10,%11"
#define BV_D_3 BV_D_2, BV_D(8)
#define BV_TEXT_4 BV_TEXT_3 ",%12,%13,%14,%15"
#define BV_D_4 BV_D_3, BV_D(12)
#define BV_TEXT_5 BV_TEXT_4 ",%16,%17,%18,%19"
#define BV_D_5 BV_D_4, BV_D(16)
#define BV_TEXT_6 BV_TEXT_5 ",%20,%21,%22,%23"
#define BV_D_6 BV_D_5, BV_D(20)
#define BV_TEXT_7 BV_TEXT_6 ",%24,%25,%26,%27"
#define BV_D_7 BV_D_6, BV_D(24)
#define BV_TEXT_8 BV_TEXT_7 ",%28,%29,%30,%31"
#define BV_D_8 BV_D_7, BV_D(28)
#define BV_TEXT_9 BV_TEXT_8 ",%32,%33,%34,%35"
#define BV_D_9 BV_D_8, BV_D(32)
#define BV_TEXT_10 BV_TEXT_9 ",%36,%37,%38,%39"
#define BV_D_10 BV_D_9, BV_D(36)
#define BV_TEXT_11 BV_TEXT_10 ",%40,%41,%42,%43"
#define BV_D_11 BV_D_10, BV_D(40)
#define BV_TEXT_12 BV_TEXT_11 ",%44,%45,%46,%47"
#define BV_D_12 BV_D_11, BV_D(44)
#define BV_TEXT_13 BV_TEXT_12 ",%48,%49,%50,%51"
#define BV_D_13 BV_D_12, BV_D(48)
#define BV_TEXT_14 BV_TEXT_13 ",%52,%53,%54,%55"
#define BV_D_14 BV_D_13, BV_D(52)
#define BV_TEXT_15 BV_TEXT_14 ",%56,%57,%58,%59"
#define BV_D_15 BV_D_14, BV_D(56)
#define BV_TEXT_16 BV_TEXT_15 ",%60,%61,%62,%63"
#define BV_D_16 BV_D_15, BV_D(60)
#define BV_TEXT_17 BV_TEXT_16 ",%64,%65,%66,%67"
#define BV_D_17 BV_D_16, BV_D(64)
#define BV_TEXT_18 BV_TEXT_17 ",%68,%69,%70,%71"
#define BV_D_18 BV_D_17, BV_D(68)
#define BV_TEXT_19 BV_TEXT_18 ",%72,%73,%74,%75"
#define BV_D_19 BV_D_18, BV_D(72)
#define BV_TEXT_20 BV_TEXT_19 ",%76,%77,%78,%79"
#define BV_D_20 BV_D_19, BV_D(76)
#define BV_TEXT_21 BV_TEXT_20 ",%80,%81,%82,%83"
#define BV_D_21 BV_D_20, BV_D(80)
#define BV_TEXT_22 BV_TEXT_21 ",%84,%85,%86,%87"
#define BV_D_22 BV_D_21, BV_D(84)
#define BV_TEXT_23 BV_TEXT_22 ",%88,%89,%90,%91"
#define BV_D_23 BV_D_22, BV_D(88)
#define BV_TEXT_24 BV_TEXT_23 ",%92,%93,%94,%95"
#define BV_D_24 BV_D_23, BV_D(92)
#define BV_TEXT_25 BV_TEXT_24 ",%96,%97,%98,%99"
#define BV_D_25 BV_D_24, BV_D(96)
#define BV_TEXT_26 BV_TEXT_25 ",%100,%101,%102,%103"
#define BV_D_26 BV_D_25, BV_D(100)
#define BV_TEXT_27 BV_TEXT_26 ",%104,%105,%106,%107"
#define BV_D_27 BV_D_26, BV_D(104)
#define BV_TEXT_28 BV_TEXT_27 ",%108,%109,%110,%111"
#define BV_D_28 BV_D_27, BV_D(108)
#define BV_TEXT_29 BV_TEXT_28 ",%112,%113,%114,%115"
#define BV_D_29 BV_D_28, BV_D(112)
#define BV_TEXT_30 BV_TEXT_29 ",%116,%117,%118,%119"
#define BV_D_30 BV_D_29, BV_D(116)
#define BV_TEXT_31 BV_TEXT_30 ",%120,%121,%122,%123"
#define BV_D_31 BV_D_30, BV_D(120)
#define BV_TEXT_32 BV_TEXT_31 ",%124,%125,%126,%127"
#define BV_D_32 BV_D_31, BV_D(124)

// d, A's and B's descriptors, p (scale-d), scales of A and B, majors of A and B
#define BV_SHARED(N, TYPE, LIST, p0, p1, p2, p3, p4)                                             \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %" #p2 ", 0; wgmma.mma_async.sync.aligned.m64n" #N \
               "k16.f32." TYPE "." TYPE " {" BV_TEXT_##LIST "}, %" #p0 ", %" #p1                 \
                                                            ", p, 1, 1, %" #p3 ", %" #p4 ";}"    \
               : BV_D_##LIST                                                                     \
               : "l"(a), "l"(b), "r"(adds), "n"(a_is_mn_major), "n"(b_is_mn_major))
// d, A's four registers, B's descriptor, p, scales, major of B
#define BV_REGISTERS(N, TYPE, LIST, p0, p1, p2, p3, p4, p5, p6)                                    \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %" #p5 ", 0; wgmma.mma_async.sync.aligned.m64n" #N   \
               "k16.f32." TYPE "." TYPE " {" BV_TEXT_##LIST "}, {%" #p0 ",%" #p1 ",%" #p2 ",%" #p3 \
                                                            "}, %" #p4 ", p, 1, 1, %" #p6 ";}"     \
               : BV_D_##LIST                                                                       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds),                    \
                 "n"(b_is_mn_major))

#define BV_SHAPE(N, LIST, p0, p1, p2, p3, p4, p5, p6)                                    \
  template <class T, int a_is_mn_major, int b_is_mn_major>                               \
  __device__ inline void mma_async(float(&d)[N / 2], uint64_t a, uint64_t b, int adds) { \
    if constexpr (std::is_same_v<T, __half>)                                             \
      BV_SHARED(N, "f16", LIST, p0, p1, p2, p3, p4);                                     \
    else                                                                                 \
      BV_SHARED(N, "bf16", LIST, p0, p1, p2, p3, p4);                                    \
  }                                                                                      \
  template <class T, int b_is_mn_major>                                                  \
  __device__ inline void mma_async(float(&d)[N / 2], const uint32_t(&a)[4], uint64_t b,  \
                                   int adds) {                                           \
    if constexpr (std::is_same_v<T, __half>)                                             \
      BV_REGISTERS(N, "f16", LIST, p0, p1, p2, p3, p4, p5, p6);                          \
    else                                                                                 \
      BV_REGISTERS(N, "bf16", LIST, p0, p1, p2, p3, p4, p5, p6);                         \
  }
// N, N / 8, the numbers of the operands after D
BV_SHAPE(8, 1, 4, 5, 6, 7, 8, 9, 10)
BV_SHAPE(16, 2, 8, 9, 10, 11, 12, 13, 14)
BV_SHAPE(24, 3, 12, 13, 14, 15, 16, 17, 18)
BV_SHAPE(32, 4, 16, 17, 18, 19, 20, 21, 22)
BV_SHAPE(40, 5, 20, 21, 22, 23, 24, 25, 26)
BV_SHAPE(48, 6, 24, 25, 26, 27, 28, 29, 30)
BV_SHAPE(56, 7, 28, 29, 30, 31, 32, 33, 34)
BV_SHAPE(64, 8, 32, 33, 34, 35, 36, 37, 38)
BV_SHAPE(72, 9, 36, 37, 38, 39, 40, 41, 42)
BV_SHAPE(80, 10, 40, 41, 42, 43, 44, 45, 46)
BV_SHAPE(88, 11, 44, 45, 46, 47, 48, 49, 50)
BV_SHAPE(96, 12, 48, 49, 50, 51, 52, 53, 54)
BV_SHAPE(104, 13, 52, 53, 54, 55, 56, 57, 58)
BV_SHAPE(112, 14, 56, 57, 58, 59, 60, 61, 62)
BV_SHAPE(120, 15, 60, 61, 62, 63, 64, 65, 66)
BV_SHAPE(128, 16, 64, 65, 66, 67, 68, 69, 70)
BV_SHAPE(136, 17, 68, 69, 70, 71, 72, 73, 74)
BV_SHAPE(144, 18, 72, 73, 74, 75, 76, 77, 78)
BV_SHAPE(152, 19, 76, 77, 78, 79, 80, 81, 82)
BV_SHAPE(160, 20, 80, 81, 82, 83, 84, 85, 86)
BV_SHAPE(168, 21, 84, 85, 86, 87, 88, 89, 90)
BV_SHAPE(176, 22, 88, 89, 90, 91, 92, 93, 94)
BV_SHAPE(184, 23, 92, 93, 94, 95, 96, 97, 98)
BV_SHAPE(192, 24, 96, 97, 98, 99, 100, 101, 102)
BV_SHAPE(200, 25, 100, 101, 102, 103, 104, 105, 106)
BV_SHAPE(208, 26, 104, 105, 106, 107, 108, 109, 110)
BV_SHAPE(216, 27, 108, 109, 110, 111, 112, 113, 114)
BV_SHAPE(224, 28, 112, 113, 114, 115, 116, 117, 118)
BV_SHAPE(232, 29, 116, 117, 118, 119, 120, 121, 122)
BV_SHAPE(240, 30, 120, 121, 122, 123, 124, 125, 126)
BV_SHAPE(248, 31, 124, 125, 126, 127, 128, 129, 130)
BV_SHAPE(256, 32, 128, 129, 130, 131, 132, 133, 134)

#undef BV_SHAPE
#undef BV_REGISTERS
#undef BV_SHARED

}  // namespace bv::BAREVISION_GPU::wgmma_asm
