// Conversions between integers and floating-point numbers, saturating as the GPU's do; a NaN becomes 0.
#pragma once
#include <limits>
#include <math.h>
#include <stdint.h>

namespace baracuda_host {

template <class Integer, class Float>
static inline Integer saturate(Float integral) {
  using Limits = std::numeric_limits<Integer>;
  // Both bounds are powers of two or zero, so they are exact in every floating type.
  const Float low = static_cast<Float>(Limits::min());
  const Float beyond = static_cast<Float>(Limits::max() / 2 + 1) * 2;
  if (integral != integral) return 0;
  return integral < low ? Limits::min() : integral >= beyond ? Limits::max() : static_cast<Integer>(integral);
}

static inline float half_bits_to_float(uint16_t half) {
  float magnitude = __uint_as_float((half & 0x7fffu) << 13) * 0x1p112f;  // rebias; subnormals come out right
  if ((half & 0x7c00u) == 0x7c00u) magnitude = __uint_as_float((half & 0x7fffu) << 13 | 0x7f800000u);
  return __uint_as_float(__float_as_uint(magnitude) | (half & 0x8000u) << 16);
}
// To the nearest, ties to even; a NaN becomes 0x7fff, as on a GPU.
static inline uint16_t float_to_half_bits(float x) {
  const uint32_t sign = __float_as_uint(x) >> 16 & 0x8000u;
  const uint32_t magnitude = __float_as_uint(x) & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fff;
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and more
  // Below the smallest normal, adding 0.5 leaves exactly the bits of a subnormal half in the significand.
  if (magnitude < 0x38800000u)
    return static_cast<uint16_t>(sign | (__float_as_uint(__uint_as_float(magnitude) + 0.5f) & 0x7ffu));
  const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
  return static_cast<uint16_t>(sign | (rounded - 0x38000000u) >> 13);
}
static inline float bfloat16_bits_to_float(uint16_t bits) { return __uint_as_float(static_cast<uint32_t>(bits) << 16); }

}  // namespace baracuda_host

#define BARACUDA_HOST_TO_INTEGER(from, From, to, To)                                              \
  static inline To __##from##2##to##_rn(From x) { return baracuda_host::saturate<To>(rint(x)); }  \
  static inline To __##from##2##to##_rz(From x) { return baracuda_host::saturate<To>(trunc(x)); } \
  static inline To __##from##2##to##_rd(From x) { return baracuda_host::saturate<To>(floor(x)); } \
  static inline To __##from##2##to##_ru(From x) { return baracuda_host::saturate<To>(ceil(x)); }
#define BARACUDA_HOST_TO_INTEGERS(from, From)          \
  BARACUDA_HOST_TO_INTEGER(from, From, int, int)       \
  BARACUDA_HOST_TO_INTEGER(from, From, uint, unsigned) \
  BARACUDA_HOST_TO_INTEGER(from, From, ll, long long)  \
  BARACUDA_HOST_TO_INTEGER(from, From, ull, unsigned long long)
BARACUDA_HOST_TO_INTEGERS(float, float)
BARACUDA_HOST_TO_INTEGERS(double, double)
#undef BARACUDA_HOST_TO_INTEGERS
#undef BARACUDA_HOST_TO_INTEGER

#define BARACUDA_HOST_TO_FLOAT(name, To, From) \
  static inline To name(From x) { return static_cast<To>(x); }
BARACUDA_HOST_TO_FLOAT(__int2float_rn, float, int)
BARACUDA_HOST_TO_FLOAT(__uint2float_rn, float, unsigned)
BARACUDA_HOST_TO_FLOAT(__ll2float_rn, float, long long)
BARACUDA_HOST_TO_FLOAT(__ull2float_rn, float, unsigned long long)
BARACUDA_HOST_TO_FLOAT(__int2double_rn, double, int)
BARACUDA_HOST_TO_FLOAT(__uint2double_rn, double, unsigned)
BARACUDA_HOST_TO_FLOAT(__ll2double_rn, double, long long)
BARACUDA_HOST_TO_FLOAT(__ull2double_rn, double, unsigned long long)
BARACUDA_HOST_TO_FLOAT(__double2float_rn, float, double)
#undef BARACUDA_HOST_TO_FLOAT
