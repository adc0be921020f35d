// Which overload of CUDA's functions a call takes, for each pair of types. Compiled with the
// stand-in's headers and, where it is installed, with CUDA's own: both give the same text.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace overloads {

template <class... T>
struct List {};
using Numbers = List<bool, char, signed char, unsigned char, short, unsigned short, int, unsigned,
                     long, unsigned long, long long, unsigned long long, float, double>;
using Types =
    List<bool, char, signed char, unsigned char, short, unsigned short, int, unsigned, long,
         unsigned long, long long, unsigned long long, float, double, __half, __nv_bfloat16>;

// The letters of these types, as in mangled names; H: __half, B: __nv_bfloat16.
constexpr char letters[] = "bcahstijlmxyfdHB";
// The letter of any type: v is void, ? another one.
template <class T>
constexpr char letter() {
  constexpr bool is[] = {
      std::is_same_v<T, bool>,        std::is_same_v<T, char>,
      std::is_same_v<T, signed char>, std::is_same_v<T, unsigned char>,
      std::is_same_v<T, short>,       std::is_same_v<T, unsigned short>,
      std::is_same_v<T, int>,         std::is_same_v<T, unsigned>,
      std::is_same_v<T, long>,        std::is_same_v<T, unsigned long>,
      std::is_same_v<T, long long>,   std::is_same_v<T, unsigned long long>,
      std::is_same_v<T, float>,       std::is_same_v<T, double>,
      std::is_same_v<T, __half>,      std::is_same_v<T, __nv_bfloat16>,
  };
  for (unsigned i = 0; i < sizeof is; ++i)
    if (is[i]) return letters[i];
  return std::is_void_v<T> ? 'v' : '?';
}
// The type of a call; a point if it is refused: no overload, or several, fit.
template <class Call, class... Args>
constexpr char type_of() {
  if constexpr (requires { std::declval<Call>()(std::declval<Args>()...); })
    return letter<std::remove_cvref_t<decltype(std::declval<Call>()(std::declval<Args>()...))>>();
  else
    return '.';
}

// ---- Tables ------------------------------------------------------------------------------------
struct Table {
  const char* name;
  bool has_rows;      // one for each type of the first argument
  char types[257]{};  // of the result, by that of the last argument
};
template <class Call, class... A>
constexpr Table one(const char* name, Call, List<A...>) {
  return {name, false, {type_of<Call, A>()...}};
}
template <class Call, class... A>
constexpr Table one_pointer(const char* name, Call, List<A...>) {
  return {name, false, {type_of<Call, A*>()...}};
}
template <class Call, class A, class... B>
constexpr void add_row(char*& to, List<B...>) {
  ((*to++ = type_of<Call, A, B>()), ...);
}
template <class Call, class... A>
constexpr Table two(const char* name, Call, List<A...> all) {
  Table table{name, true};
  char* to = table.types;
  (add_row<Call, A>(to, all), ...);
  return table;
}
template <class Call, class... A>
constexpr Table pointer_and(const char* name, Call, List<A...> all) {
  Table table{name, true};
  char* to = table.types;
  (add_row<Call, A*>(to, all), ...);
  return table;
}

// A function as an object; further arguments are always the same.
#define CALL(...) [](auto x) -> decltype(__VA_ARGS__) { return __VA_ARGS__; }
#define CALL2(...) [](auto x, auto y) -> decltype(__VA_ARGS__) { return __VA_ARGS__; }
#define OF_ONE(ADD, name) ADD(one(#name, CALL(name(x)), Types{}))
#define OF_TWO(ADD, name) ADD(two(#name, CALL2(name(x, y)), Types{}))
#define OF_POINTER(ADD, name) ADD(one_pointer(#name, CALL(name(x)), Types{}))
#define OF_POINTER_AND(ADD, name) ADD(pointer_and(#name, CALL2(name(x, y)), Types{}))

// clang-format off
#define OVERLOADS(ADD) \
  OF_ONE(ADD, abs) OF_ONE(ADD, fabs) OF_ONE(ADD, sqrt) OF_ONE(ADD, cbrt) OF_ONE(ADD, exp) \
  OF_ONE(ADD, exp2) OF_ONE(ADD, exp10) OF_ONE(ADD, expm1) OF_ONE(ADD, log) OF_ONE(ADD, log2) \
  OF_ONE(ADD, log10) OF_ONE(ADD, log1p) OF_ONE(ADD, logb) OF_ONE(ADD, ilogb) OF_ONE(ADD, sin) \
  OF_ONE(ADD, cos) OF_ONE(ADD, tan) OF_ONE(ADD, asin) OF_ONE(ADD, acos) OF_ONE(ADD, atan) \
  OF_ONE(ADD, sinh) OF_ONE(ADD, cosh) OF_ONE(ADD, tanh) OF_ONE(ADD, asinh) OF_ONE(ADD, acosh) \
  OF_ONE(ADD, atanh) OF_ONE(ADD, erf) OF_ONE(ADD, erfc) OF_ONE(ADD, lgamma) OF_ONE(ADD, tgamma) \
  OF_ONE(ADD, j0) OF_ONE(ADD, j1) OF_ONE(ADD, y0) OF_ONE(ADD, y1) OF_ONE(ADD, ceil) \
  OF_ONE(ADD, floor) OF_ONE(ADD, trunc) OF_ONE(ADD, round) OF_ONE(ADD, rint) \
  OF_ONE(ADD, nearbyint) OF_ONE(ADD, lround) OF_ONE(ADD, llround) OF_ONE(ADD, lrint) \
  OF_ONE(ADD, llrint) OF_ONE(ADD, isnan) OF_ONE(ADD, isinf) OF_ONE(ADD, isfinite) \
  OF_ONE(ADD, signbit) OF_ONE(ADD, sqrtf) OF_ONE(ADD, expf) OF_ONE(ADD, fabsf) \
  OF_ONE(ADD, rsqrtf) OF_ONE(ADD, __expf) OF_ONE(ADD, __logf) OF_ONE(ADD, __saturatef) \
  OF_ONE(ADD, __float_as_int) OF_ONE(ADD, __float_as_uint) OF_ONE(ADD, __int_as_float) \
  OF_ONE(ADD, __uint_as_float) OF_ONE(ADD, __float2int_rn) OF_ONE(ADD, __popc) \
  OF_ONE(ADD, __clz) OF_ONE(ADD, __ffs) OF_ONE(ADD, __brev) OF_ONE(ADD, __half2float) \
  OF_ONE(ADD, __float2half) OF_ONE(ADD, __bfloat162float) OF_ONE(ADD, __float2bfloat16) \
  ADD(one("frexp", CALL(frexp(x, (int*)nullptr)), Types{})) \
  ADD(one("modf(, float*)", CALL(modf(x, (float*)nullptr)), Types{})) \
  ADD(one("modf(, double*)", CALL(modf(x, (double*)nullptr)), Types{})) \
  ADD(one("sincos(, float*, float*)", CALL(sincos(x, (float*)nullptr, (float*)nullptr)), Types{})) \
  ADD(one("sincos(, double*, double*)", CALL(sincos(x, (double*)nullptr, (double*)nullptr)), Types{})) \
  OF_TWO(ADD, min) OF_TWO(ADD, max) OF_TWO(ADD, fmin) OF_TWO(ADD, fmax) OF_TWO(ADD, fdim) \
  OF_TWO(ADD, fmod) OF_TWO(ADD, remainder) OF_TWO(ADD, pow) OF_TWO(ADD, atan2) \
  OF_TWO(ADD, hypot) OF_TWO(ADD, copysign) OF_TWO(ADD, nextafter) OF_TWO(ADD, ldexp) \
  OF_TWO(ADD, scalbn) OF_TWO(ADD, scalbln) OF_TWO(ADD, jn) OF_TWO(ADD, yn) OF_TWO(ADD, powf) \
  OF_TWO(ADD, fmaxf) OF_TWO(ADD, __fdividef) OF_TWO(ADD, __umulhi) OF_TWO(ADD, __hadd) \
  OF_TWO(ADD, __hmul) \
  ADD(two("fma(, , float)", CALL2(fma(x, y, 1.f)), Types{})) \
  ADD(two("fma(, , double)", CALL2(fma(x, y, 1.)), Types{})) \
  ADD(two("fma(, , int)", CALL2(fma(x, y, 1)), Types{})) \
  ADD(two("fmaf(, , float)", CALL2(fmaf(x, y, 1.f)), Types{})) \
  ADD(two("make_float2", CALL2(make_float2(x, y).x), Types{})) \
  ADD(two("make_int4(, , 0, 0)", CALL2(make_int4(x, y, 0, 0).x), Types{})) \
  ADD(one("__shfl_sync", CALL(__shfl_sync(~0u, x, 0)), Types{})) \
  ADD(one("__shfl_up_sync", CALL(__shfl_up_sync(~0u, x, 1)), Types{})) \
  ADD(one("__shfl_down_sync", CALL(__shfl_down_sync(~0u, x, 1)), Types{})) \
  ADD(one("__shfl_xor_sync", CALL(__shfl_xor_sync(~0u, x, 1)), Types{})) \
  OF_POINTER(ADD, __ldg) OF_POINTER(ADD, __ldcs) OF_POINTER(ADD, __ldcg) \
  OF_POINTER_AND(ADD, __stcs) OF_POINTER_AND(ADD, __stcg) OF_POINTER_AND(ADD, atomicAdd) \
  OF_POINTER_AND(ADD, atomicSub) OF_POINTER_AND(ADD, atomicExch) OF_POINTER_AND(ADD, atomicMin) \
  OF_POINTER_AND(ADD, atomicMax) OF_POINTER_AND(ADD, atomicAnd) OF_POINTER_AND(ADD, atomicOr) \
  OF_POINTER_AND(ADD, atomicXor) OF_POINTER_AND(ADD, atomicInc) \
  ADD(pointer_and("atomicCAS", CALL2(atomicCAS(x, y, y)), Types{}))
// clang-format on

// ---- Values ------------------------------------------------------------------------------------
template <class T>
std::vector<T> samples() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> all{T(0), T(1), T(2), T(-1), T(100), Limits::max(), Limits::lowest()};
  if (sizeof(T) >= 4) all.insert(all.end(), {T((1 << 24) + 1), T(1 << 30)});
  if (Limits::has_quiet_NaN)
    all.insert(all.end(), {T(1. / 3), Limits::quiet_NaN(), Limits::infinity()});
  return all;
}
template <class T>
std::string word(T x) {
  char text[40];
  if (std::is_floating_point_v<T>)
    std::snprintf(text, sizeof text, "%.17g", double(x));
  else if (std::is_signed_v<T>)
    std::snprintf(text, sizeof text, "%lld", (long long)x);
  else
    std::snprintf(text, sizeof text, "%llu", (unsigned long long)x);
  // Which NaN it is isn't specified.
  return x != x ? "nan" : text;
}
// "min(i, j): 0 0 ...": for each two of the samples.
template <class A, class B, class Call>
void add_values(std::string& text, const char* name, Call call) {
  if constexpr (std::is_invocable_v<Call, A, B>) {
    text += std::string(name) + "(" + letter<A>() + ", " + letter<B>() + "):";
    for (const A a : samples<A>())
      for (const B b : samples<B>()) text += " " + word(call(a, b));
    text += "\n";
  }
}
template <class Call, class A, class... B>
void add_values_of(std::string& text, const char* name, Call call, List<B...>) {
  (add_values<A, B>(text, name, call), ...);
}
template <class Call, class... A>
void add_all(std::string& text, const char* name, Call call, List<A...> all) {
  (add_values_of<Call, A>(text, name, call, all), ...);
}
inline std::string values() {
  std::string text;
  add_all(text, "min", CALL2(min(x, y)), Numbers{});
  add_all(text, "max", CALL2(max(x, y)), Numbers{});
  return text;
}

}  // namespace overloads
