// 8-bit floating types: a sign, an exponent, and three bits (e4m3, no infinities) or two (e5m2) behind it.
#pragma once

#include <baracuda/element.cuh>

namespace baracuda {

// Rounds to the nearest, halves to even. What is too large becomes infinity, where there is none NaN, as in torch and
// ml_dtypes; instructions would store the largest number instead.
template <int MANTISSA> struct Float8 {
    static constexpr int SHIFT = 23 - MANTISSA, BIAS = MANTISSA == 3 ? 7 : 15;
    static constexpr unsigned EXPONENT = unsigned(127 - BIAS) << 23;  // of a float less that of the same number here
    static constexpr unsigned OVERFLOW = MANTISSA == 3 ? 0x7f : 0x7c, NOT_A_NUMBER = MANTISSA == 3 ? 0x7f : 0x7e;

    unsigned char bits;

    Float8() = default;
    __device__ explicit Float8(double value) : Float8(float(value)) {}
    __device__ explicit operator double() const { return double(float(*this)); }

    __device__ explicit Float8(float value) {
        const unsigned word = __float_as_uint(value), magnitude = word & 0x7fffffffu;
        const unsigned sign = word >> 24 & 0x80u;
#if !defined(BARACUDA_HOST) && __CUDA_ARCH__ >= 890
        unsigned short both;
        if constexpr (MANTISSA == 3) {
            asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(0.0f), "f"(value));
            const bool finite = magnitude <= __float_as_uint(464.0f);  // halfway to the next number
            bits = finite ? both : sign | OVERFLOW;
        } else {
            asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(both) : "f"(0.0f), "f"(value));
            const bool finite = magnitude < __float_as_uint(61440.0f);
            bits = finite ? both : sign | (magnitude > 0x7f800000u ? NOT_A_NUMBER : OVERFLOW);
        }
#else
        constexpr unsigned LEAST = EXPONENT + (1u << 23);                            // normal
        const float wide = __uint_as_float(EXPONENT + (unsigned(SHIFT + 1) << 23));  // one here is its last place
        unsigned rounded = magnitude + ((1u << (SHIFT - 1)) - 1) + (magnitude >> SHIFT & 1u);
        rounded = (rounded - EXPONENT) >> SHIFT;
        if (magnitude < LEAST) rounded = __float_as_uint(__uint_as_float(magnitude) + wide) - __float_as_uint(wide);
        if (magnitude >= LEAST && rounded > OVERFLOW) rounded = OVERFLOW;
        bits = sign | (magnitude > 0x7f800000u ? NOT_A_NUMBER : rounded);
#endif
    }

    __device__ explicit operator float() const {
        const unsigned magnitude = bits & 0x7fu;
        float value = __uint_as_float((magnitude << SHIFT) + EXPONENT);
        if (magnitude < 1u << MANTISSA)  // subnormal: as many of the last place
            value = float(magnitude) * __uint_as_float(EXPONENT + (unsigned(1 - MANTISSA) << 23));
        if (MANTISSA == 3 ? magnitude == 0x7fu : magnitude > 0x7cu) value = __uint_as_float(0x7fffffffu);
        if (MANTISSA == 2 && magnitude == 0x7cu) value = __uint_as_float(0x7f800000u);
        return __uint_as_float(__float_as_uint(value) | (bits & 0x80u) << 24);
    }
};

using f8e4m3 = Float8<3>;
using f8e5m2 = Float8<2>;

}  // namespace baracuda
