// Elements of matrices, as registers of 32 bits hold them.
#pragma once
#include <stdint.h>

#include "bits.h"
#include "conversions.h"

namespace baracuda_host {

// What a register of a fragment holds, and how many of them; `least_exponent` is that of subnormals.
struct F16 {
  using Word = uint32_t;
  static constexpr int per_word = 2;
  static constexpr int least_exponent = -14;
  static float decode(Word word, int i) { return half_bits_to_float(static_cast<uint16_t>(word >> 16 * i)); }
};
struct BF16 {
  using Word = uint32_t;
  static constexpr int per_word = 2;
  static constexpr int least_exponent = -126;
  static float decode(Word word, int i) { return bfloat16_bits_to_float(static_cast<uint16_t>(word >> 16 * i)); }
};
struct TF32 {
  using Word = uint32_t;
  static constexpr int per_word = 1;
  static constexpr int least_exponent = -126;
  static float decode(Word word, int) { return __uint_as_float(word & ~0x1fffu); }
};
struct E4M3 {
  using Word = uint32_t;
  static constexpr int per_word = 4;
  static constexpr int least_exponent = -6;
  static float decode(Word word, int i) {
    const uint32_t sign = (word >> 8 * i & 0x80u) << 24, magnitude = word >> 8 * i & 0x7fu;
    if (magnitude == 0x7fu) return __uint_as_float(sign | 0x7fffffffu);
    return __uint_as_float(sign | magnitude << 20) * 0x1p120f;  // rebias; subnormals come out right
  }
};
struct E5M2 {
  using Word = uint32_t;
  static constexpr int per_word = 4;
  static constexpr int least_exponent = -14;
  static float decode(Word word, int i) {
    return half_bits_to_float(static_cast<uint16_t>((word >> 8 * i & 0xffu) << 8));
  }
};
struct S8 {
  using Word = uint32_t;
  static constexpr int per_word = 4;
  static int decode(Word word, int i) { return static_cast<int8_t>(word >> 8 * i); }
};
struct U8 {
  using Word = uint32_t;
  static constexpr int per_word = 4;
  static int decode(Word word, int i) { return static_cast<uint8_t>(word >> 8 * i); }
};
struct F64 {
  using Word = double;
  static constexpr int per_word = 1;
  static double decode(Word word, int) { return word; }
};

}  // namespace baracuda_host
