// Vectors of floats for the CPU kernels: the only header with vector intrinsics. It is compiled
// once per instruction set, each time into its own namespace (why: kernels/cpu/cpu_kernels.h).
// + - * / and comparisons are those of GCC's vector types. Sums are taken in a fixed order.
#pragma once
#pragma GCC diagnostic push  // GCC 12's own header warns of its _mm512_undefined_ps
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstdint>

namespace bv::BAREVISION_ISA::simd {

#ifdef __AVX512F__
constexpr int width = 16;
#else
constexpr int width = 8;
#endif
using vf = float __attribute__((vector_size(4 * width)));
using vi = int32_t __attribute__((vector_size(4 * width)));
using vu = uint32_t __attribute__((vector_size(4 * width)));
using vq = uint64_t __attribute__((vector_size(4 * width)));
using vd = double __attribute__((vector_size(4 * width)));  // half as many lanes

// 16-bit elements; loads convert them to vectors of floats, stores round these to nearest.
struct bf16 {
  uint16_t bits;
};
struct fp16 {
  uint16_t bits;
};
// bf16 on a CPU with AVX512_BF16. Its two instructions are inline assembly, since the compiler may
// only use plain AVX-512.
struct native_bf16 : bf16 {};

static inline vf set(float x) {
  return x - vf{};  // compiles to nothing; 0 + x would turn -0 into 0
}
static inline vi seti(int32_t x) { return vi{} + x; }
static inline vi count_up() {
  vi v;
  for (int i = 0; i < width; ++i) v[i] = i;
  return v;
}

// The upper halves of the floats, rounded to nearest, ties to even; NaN stays NaN.
static inline vu bf16_bits(vf v) {
  const vu x = reinterpret_cast<vu>(v);
  return v == v ? (x + 0x7fff + (x >> 16 & 1)) >> 16 : x >> 16 | 0x40;
}

#ifdef __AVX512F__
static inline vf load(const float* p) { return _mm512_loadu_ps(p); }
static inline void store(float* p, vf v) { _mm512_storeu_ps(p, v); }
static inline __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1); }
// The first n elements (0 <= n <= width); memory past them is not accessed; the other lanes are 0.
static inline vf load_partial(const float* p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
static inline void store_partial(float* p, vf v, int n) { _mm512_mask_storeu_ps(p, first(n), v); }
static inline vf fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }  // a b + c
// max and min return b if either operand is NaN.
static inline vf max(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf min(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline vf sqrt(vf a) { return _mm512_sqrt_ps(a); }
static inline vf round(vf a) {  // to the nearest integer
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vf to_float(vi a) { return _mm512_cvtepi32_ps(__m512i(a)); }
// x 2^n for an integer n
static inline vf scale(vf x, vf n) { return _mm512_scalef_ps(x, n); }
// `width` bytes, as integers of 0-255
static inline vi load_integers(const uint8_t* p) {
  return vi(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
static inline vi load_integers_partial(const uint8_t* p, int n) {
  return vi(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(first(n), p)));
}
static inline void store_integers(uint8_t* p, vi v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(__m512i(v)));
}
static inline void store_integers_partial(uint8_t* p, vi v, int n) {
  _mm512_mask_cvtepi32_storeu_epi8(p, first(n), __m512i(v));
}
static inline vf from_bf16(__m256i x) {
  return vf(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
static inline __m256i to_bf16(vf v) { return _mm512_cvtepi32_epi16(__m512i(bf16_bits(v))); }
static inline vf load(const bf16* p) {
  return from_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
static inline void store(bf16* p, vf v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_bf16(v));
}
static inline vf load_partial(const bf16* p, int n) {
  return from_bf16(_mm256_maskz_loadu_epi16(first(n), p));
}
static inline void store_partial(bf16* p, vf v, int n) {
  _mm256_mask_storeu_epi16(p, first(n), to_bf16(v));
}
static inline vf load(const fp16* p) {
  return vf(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
}
static inline __m256i to_fp16(vf v) {
  return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline void store(fp16* p, vf v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_fp16(v));
}
static inline vf load_partial(const fp16* p, int n) {
  return vf(_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p)));
}
static inline void store_partial(fp16* p, vf v, int n) {
  _mm256_mask_storeu_epi16(p, first(n), to_fp16(v));
}
static inline __m256i to_native_bf16(vf v) {
  __m256i x;
  asm("vcvtneps2bf16 %1, %0" : "=v"(x) : "v"(v));
  return x;
}
static inline void store(native_bf16* p, vf v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_native_bf16(v));
}
static inline void store_partial(native_bf16* p, vf v, int n) {
  _mm256_mask_storeu_epi16(p, first(n), to_native_bf16(v));
}
static inline vf rounded(native_bf16, vf v) { return from_bf16(to_native_bf16(v)); }
static inline vf multiply_add(native_bf16, vf a, vf b, vf sum) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
}
using bits = uint16_t;  // one per lane, the first lane's is the lowest
static inline bits to_bits(vi mask) { return _mm512_movepi32_mask(__m512i(mask)); }
static inline __m256 lower(vf v) { return _mm512_castps512_ps256(v); }
static inline __m256 upper(vf v) { return _mm512_extractf32x8_ps(v, 1); }
static inline vd to_double(__m256 v) { return _mm512_cvtps_pd(v); }
// Products of the lower halves of 64-bit lanes.
static inline vq multiply(vq a, vq b) { return vq(_mm512_mul_epu32(__m512i(a), __m512i(b))); }
// Per 128 bits: the lower half of a and the lower half of b; or both upper halves.
static inline vq low_halves(vq a, vq b) {
  return vq(_mm512_unpacklo_epi64(__m512i(a), __m512i(b)));
}
static inline vq high_halves(vq a, vq b) {
  return vq(_mm512_unpackhi_epi64(__m512i(a), __m512i(b)));
}
#else
static inline vf load(const float* p) { return _mm256_loadu_ps(p); }
static inline void store(float* p, vf v) { _mm256_storeu_ps(p, v); }
static inline __m256i first(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vf load_partial(const float* p, int n) { return _mm256_maskload_ps(p, first(n)); }
static inline void store_partial(float* p, vf v, int n) { _mm256_maskstore_ps(p, first(n), v); }
static inline vf fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf max(vf a, vf b) { return _mm256_max_ps(a, b); }
static inline vf min(vf a, vf b) { return _mm256_min_ps(a, b); }
static inline vf sqrt(vf a) { return _mm256_sqrt_ps(a); }
static inline vf round(vf a) {
  return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vf to_float(vi a) { return _mm256_cvtepi32_ps(__m256i(a)); }
// In two steps, so that results below and above the normal range are correct (|n| < 253).
static inline vf scale(vf x, vf n) {
  const vi k = vi(_mm256_cvtps_epi32(n)), half = k >> 1;
  return x * reinterpret_cast<vf>((half + 127) << 23) *
         reinterpret_cast<vf>((k - half + 127) << 23);
}
static inline vi load_integers(const uint8_t* p) {
  return vi(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
static inline vi load_integers_partial(const uint8_t* p, int n) {
  uint8_t bytes[width] = {};
  for (int i = 0; i < n; ++i) bytes[i] = p[i];
  return load_integers(bytes);
}
static inline void store_integers(uint8_t* p, vi v) {
  const __m256i x = __m256i(v);
  const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(words, words));
}
static inline void store_integers_partial(uint8_t* p, vi v, int n) {
  uint8_t bytes[width];
  store_integers(bytes, v);
  for (int i = 0; i < n; ++i) p[i] = bytes[i];
}
static inline vf load(const bf16* p) {
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return vf(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
static inline void store(bf16* p, vf v) {
  const __m256i x = __m256i(bf16_bits(v));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
}
static inline vf load(const fp16* p) {
  return vf(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
static inline void store(fp16* p, vf v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
template <class T>  // a 16-bit type
static inline vf load_partial(const T* p, int n) {
  T elements[width] = {};
  for (int i = 0; i < n; ++i) elements[i] = p[i];
  return load(elements);
}
template <class T>
static inline void store_partial(T* p, vf v, int n) {
  T elements[width];
  store(elements, v);
  for (int i = 0; i < n; ++i) p[i] = elements[i];
}
using bits = uint8_t;
static inline bits to_bits(vi mask) {
  return static_cast<bits>(_mm256_movemask_ps(reinterpret_cast<__m256>(mask)));
}
static inline __m128 lower(vf v) { return _mm256_castps256_ps128(v); }
static inline __m128 upper(vf v) { return _mm256_extractf128_ps(v, 1); }
static inline vd to_double(__m128 v) { return _mm256_cvtps_pd(v); }
static inline vq multiply(vq a, vq b) { return vq(_mm256_mul_epu32(__m256i(a), __m256i(b))); }
static inline vq low_halves(vq a, vq b) {
  return vq(_mm256_unpacklo_epi64(__m256i(a), __m256i(b)));
}
static inline vq high_halves(vq a, vq b) {
  return vq(_mm256_unpackhi_epi64(__m256i(a), __m256i(b)));
}
#endif

static inline vi to_mask(bits b) { return (seti(b) >> count_up() & 1) != 0; }

// Rounded to the precision of a T.
static inline vf rounded(float, vf v) { return v; }
static inline vf rounded(bf16, vf v) { return reinterpret_cast<vf>(bf16_bits(v) << 16); }
// Packs two bf16 into each lane, given as floats that bf16 represents exactly.
static inline vf pairs(vf low, vf high) {
  return reinterpret_cast<vf>(reinterpret_cast<vu>(low) >> 16 | reinterpret_cast<vu>(high));
}
// a b + sum; for pairs of bf16, the sum of both products is added.
static inline vf multiply_add(float, vf a, vf b, vf sum) { return fma(a, b, sum); }
static inline vf multiply_add(bf16, vf a, vf b, vf sum) {
  const vu x = reinterpret_cast<vu>(a), y = reinterpret_cast<vu>(b);
  const auto low = [](vu pairs) { return reinterpret_cast<vf>(pairs << 16); };
  const auto high = [](vu pairs) { return reinterpret_cast<vf>(pairs & 0xffff0000u); };
  return fma(high(x), high(y), fma(low(x), low(y), sum));
}

// Byte j of plane c of 16 pixels is byte 3 j + c of the pixels' 48, in vector (3 j + c) / 16.
struct PixelShuffles {
  alignas(16) uint8_t take[3][3][16] = {};  // by plane and vector; 0x80: no byte
  constexpr explicit PixelShuffles(bool reversed) {
    for (int i = 0; i < 9 * 16; ++i) {
      const int c = i / 48, v = i / 16 % 3, j = i % 16;
      const int byte = 3 * (reversed ? 15 - j : j) + c - 16 * v;
      take[c][v][j] = static_cast<uint8_t>(byte >= 0 && byte < 16 ? byte : 0x80);
    }
  }
};
constexpr PixelShuffles forward_pixels(false), reversed_pixels(true);

// Splits 16 pixels of 3 bytes into 16 bytes of each channel's plane.
static inline void split_pixels(const uint8_t* pixels, const PixelShuffles& shuffles, uint8_t* red,
                                uint8_t* green, uint8_t* blue) {
  __m128i in[3], out[3];
  for (int v = 0; v < 3; ++v)
    in[v] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(pixels + 16 * v));
  for (int c = 0; c < 3; ++c) {
    out[c] = _mm_setzero_si128();
    for (int v = 0; v < 3; ++v) {
      const __m128i take = _mm_load_si128(reinterpret_cast<const __m128i*>(shuffles.take[c][v]));
      out[c] = _mm_or_si128(out[c], _mm_shuffle_epi8(in[v], take));
    }
  }
  _mm_storeu_si128(reinterpret_cast<__m128i*>(red), out[0]);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(green), out[1]);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(blue), out[2]);
}

// Stores pixels_at_once pixels of 3 bytes in reversed order; reads one byte before the pixels,
// writes one after them.
constexpr int pixels_at_once = 5;
static inline void reverse_pixels(const uint8_t* pixels, uint8_t* out) {
  const __m128i take = _mm_setr_epi8(13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, 0);
  const __m128i in = _mm_loadu_si128(reinterpret_cast<const __m128i*>(pixels - 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_shuffle_epi8(in, take));
}

static inline float to_float(float x) { return x; }
static inline float to_float(bf16 x) { return __builtin_bit_cast(float, uint32_t{x.bits} << 16); }

// `width` bytes as floats
static inline vf load_bytes(const uint8_t* p) { return to_float(load_integers(p)); }

static inline vf select(vi mask, vf a, vf b) { return mask ? a : b; }
// best = x and which = i in lanes where x is larger than best, or the first NaN.
static inline void take_larger(vf& best, vi& which, vf x, int i) {
  const vi take = (best == best) & ~(x <= best);
  best = select(take, x, best);
  which = take ? seti(i) : which;
}
static inline vf abs(vf x) { return reinterpret_cast<vf>(reinterpret_cast<vi>(x) & 0x7fffffff); }

// Reduces the lanes with `combine`, in the same order each time.
template <class Combine>
float reduce(vf v, Combine combine) {
#ifdef __AVX512F__
  const __m256 w = combine(lower(v), upper(v));
#else
  const __m256 w = v;
#endif
  __m128 x = combine(_mm256_castps256_ps128(w), _mm256_extractf128_ps(w, 1));
  x = combine(x, _mm_movehl_ps(x, x));
  return combine(x, _mm_movehdup_ps(x))[0];
}
static inline float reduce_sum(vf v) {
  return reduce(v, [](auto a, auto b) { return a + b; });
}
// A NaN among the elements may or may not be returned.
static inline float reduce_max(vf v) {
  return reduce(v, [](auto a, auto b) { return a > b ? a : b; });
}

// e^x to about 1 ulp for -150 < x < 150:
//   x = n ln 2 + r, |r| <= ln 2 / 2;  e^x = 2^n e^r, e^r by a polynomial
static inline vf exp_bounded(vf x) {
  const vf n = round(x * 1.44269504f);
  // ln 2 in two parts, of which the first has few enough bits that n times it is exact
  const vf r = fma(n, set(-1.42860677e-6f), fma(n, set(-0.693145752f), x));
  vf p = fma(r, set(1.98412698e-4f), set(1.38888889e-3f));
  p = fma(p, r, set(8.33333333e-3f));
  p = fma(p, r, set(4.16666667e-2f));
  p = fma(p, r, set(0.166666667f));
  p = fma(p, r, set(0.5f));
  p = fma(p * r, r, r) + 1.0f;
  return scale(p, n);
}

// The same for every x: 0 at -inf, inf above the range, NaN stays NaN.
static inline vf exp(vf x) { return exp_bounded(min(set(89.0f), max(set(-105.0f), x))); }

// The standard normal distribution at x: Phi(x) = (1 + erf(x / sqrt 2)) / 2 and
// phi(x) = e^(-x^2/2) / sqrt(2 pi).
struct Normal {
  vf cdf, density;
};

// Computed from Phi's tail, so that the relative error stays small (a few ulp) also far to the
// left, where x Phi(x) is small:
//   Phi(-t) = e^(-t^2/2) R(t),   (t + a) R(t) a polynomial in (t - a) / (t + a), fitted at the
//   Chebyshev points of 0 <= t <= 15, relative error 3e-8
static inline Normal normal(vf x) {
  const vf t = min(set(15.0f), abs(x));                // Phi(-15) is 0 in fp32
  const vf square = t * t, rest = fma(t, t, -square);  // rounding error of the square
  const vf e = exp_bounded(square * -0.5f), gauss = fma(e * rest, set(-0.5f), e);
  constexpr float a = 3.75f;
  const vf u = 1.0f / (t + a), s = (t - a) * u;
  vf p = fma(s, set(0.000450047972f), set(0.000521082354f));
  p = fma(p, s, set(-0.00416877866f));
  p = fma(p, s, set(0.00119273531f));
  p = fma(p, s, set(0.0374908488f));
  p = fma(p, s, set(-0.151519418f));
  p = fma(p, s, set(0.352939893f));
  p = fma(p, s, set(-0.588188352f));
  p = fma(p, s, set(0.750294068f));
  const vf tail = gauss * u * p;
  return {select(x < 0.0f, tail, 1.0f - tail), gauss * 0.398942280f};
}

// A loop over n neighbouring elements, written once for whole vectors and for the rest:
//   for_each(n, [&](int i, auto lanes) { lanes.store(out + i, lanes.load(inp + i) * 2.0f); });
struct Whole {
  template <class T>
  static vf load(const T* p) {
    return simd::load(p);
  }
  template <class T>
  static void store(T* p, vf v) {
    simd::store(p, v);
  }
  static vi load_integers(const uint8_t* p) { return simd::load_integers(p); }
  static void store_integers(uint8_t* p, vi v) { simd::store_integers(p, v); }
  static vf keep(vf v, vf = vf{}) { return v; }  // lanes past the end: the second argument
};
struct Part {
  int n;
  template <class T>
  vf load(const T* p) const {
    return load_partial(p, n);
  }
  template <class T>
  void store(T* p, vf v) const {
    store_partial(p, v, n);
  }
  vi load_integers(const uint8_t* p) const { return load_integers_partial(p, n); }
  void store_integers(uint8_t* p, vi v) const { store_integers_partial(p, v, n); }
  vf keep(vf v, vf rest = vf{}) const { return select(count_up() < n, v, rest); }
};
template <class Body>
__attribute__((always_inline)) static inline void for_each(int n, Body body) {
  int i = 0;
  for (; i + width <= n; i += width) body(i, Whole{});
  if (i < n) body(i, Part{n - i});
}

}  // namespace bv::BAREVISION_ISA::simd
