// cp.reduce.async.bulk: each number by itself, rounded to nearest even.
#include "updates.h"

#include <math.h>
#include <string.h>
#include <algorithm>
#include <type_traits>

#include "../../include/baracuda_host/bits.h"
#include "../../include/baracuda_host/conversions.h"

namespace baracuda_host {

// A sum of two halves as a float that rounds as the sum does: inexact ones are odd.
static float sum_of_halves(float a, float b) {
  const double sum = static_cast<double>(a) + b;
  const auto nearest = static_cast<float>(sum);
  if (nearest == sum || !std::isfinite(nearest)) return nearest;
  const float toward_zero = fabs(static_cast<double>(nearest)) > fabs(sum) ? nextafterf(nearest, 0) : nearest;
  return __uint_as_float(__float_as_uint(toward_zero) | 1);
}

static uint16_t float_to_bfloat16_bits(float value) {
  const uint32_t bits = __float_as_uint(value);
  if (value != value) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <class T>
static T of_integers(Update how, T a, T b) {
  switch (how) {
    case Update::Add:
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
    case Update::Min: return std::min(a, b);
    case Update::Max: return std::max(a, b);
    case Update::Inc: return a >= b ? 0 : a + 1;
    case Update::Dec: return a == 0 || a > b ? b : a - 1;
    case Update::And: return a & b;
    case Update::Or: return a | b;
    case Update::Xor: return a ^ b;
    case Update::Store: break;
  }
  return b;
}

template <class T>
static T of_floats(Update how, T a, T b) {
  if (how == Update::Min) return fmin(a, b);
  if (how == Update::Max) return fmax(a, b);
  if constexpr (sizeof(T) == 8) return a + b;
  else return static_cast<float>(a + b);
}

template <class Word, class Body>
static void each_number(char* to, const char* from, uint32_t bytes, Body body) {
  for (uint32_t i = 0; i < bytes; i += sizeof(Word)) {
    Word a, b;
    memcpy(&a, to + i, sizeof a);
    memcpy(&b, from + i, sizeof b);
    a = body(a, b);
    memcpy(to + i, &a, sizeof a);
  }
}

template <class Decode, class Encode>
static void each_half(Update how, char* to, const char* from, uint32_t bytes, Decode decode, Encode encode) {
  each_number<uint16_t>(to, from, bytes, [&](uint16_t a, uint16_t b) {
    const float x = decode(a), y = decode(b);
    return encode(how == Update::Add ? sum_of_halves(x, y) : of_floats(how, x, y));
  });
}

void update(Update how, Number of, char* to, const char* from, uint32_t bytes) {
  if (how == Update::Store) {
    memcpy(to, from, bytes);
    return;
  }
  const auto integers = [how](auto a, auto b) { return of_integers(how, a, b); };
  const auto floats = [how](auto a, auto b) { return of_floats(how, a, b); };
  switch (of) {
    case Number::U32: return each_number<uint32_t>(to, from, bytes, integers);
    case Number::S32: return each_number<int32_t>(to, from, bytes, integers);
    case Number::U64: return each_number<uint64_t>(to, from, bytes, integers);
    case Number::S64: return each_number<int64_t>(to, from, bytes, integers);
    case Number::F32: return each_number<float>(to, from, bytes, floats);
    case Number::F64: return each_number<double>(to, from, bytes, floats);
    case Number::F16: return each_half(how, to, from, bytes, half_bits_to_float, float_to_half_bits);
    case Number::BF16: return each_half(how, to, from, bytes, bfloat16_bits_to_float, float_to_bfloat16_bits);
  }
}

}  // namespace baracuda_host
