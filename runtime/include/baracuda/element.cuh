// 16-bit floating types, and the type each element type is computed and summed in.
#pragma once

namespace baracuda {

struct f16 {
    unsigned short bits;

    f16() = default;
    __device__ explicit f16(double value) : f16(float(value)) {}
    __device__ explicit operator double() const { return double(float(*this)); }
#ifdef BARACUDA_HOST
    explicit f16(float value) : bits(baracuda_host::float_to_half_bits(value)) {}
    explicit operator float() const { return baracuda_host::half_bits_to_float(bits); }
#else
    __device__ explicit f16(float value) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value)); }
    __device__ explicit operator float() const {
        float f;
        asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(bits));
        return f;
    }
#endif
};

struct bf16 {
    unsigned short bits;

    bf16() = default;
    __device__ explicit bf16(double value) : bf16(float(value)) {}
    __device__ explicit operator double() const { return double(float(*this)); }
#ifdef BARACUDA_HOST
    explicit bf16(float value) {
        const unsigned word = __float_as_uint(value);
        bits = value != value ? 0x7fff : (word + 0x7fff + ((word >> 16) & 1)) >> 16;
    }
#else
    __device__ explicit bf16(float value) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value)); }
#endif
    __device__ explicit operator float() const { return __uint_as_float(unsigned(bits) << 16); }
};

// Two floats, rounded and packed into a word.
template <typename T> __device__ inline unsigned pack_halves(float low, float high) {
    return T(low).bits | unsigned(T(high).bits) << 16;
}
#ifndef BARACUDA_HOST
template <> __device__ inline unsigned pack_halves<f16>(float low, float high) {
    unsigned both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}
template <> __device__ inline unsigned pack_halves<bf16>(float low, float high) {
    unsigned both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}
#endif

// The one in the lower half of a word.
template <typename T> __device__ inline T first_half(unsigned word) {
    T half;
    half.bits = static_cast<unsigned short>(word);
    return half;
}

using i64 = long long;
using u32 = unsigned;
using u64 = unsigned long long;

// A complex number of two floats or doubles, which load and store as one. Programs compute with its parts.
template <typename R> struct alignas(2 * sizeof(R)) Complex {
    R real, imag;

    Complex() = default;
    __device__ Complex(R real, R imag = 0) : real(real), imag(imag) {}
};
using c64 = Complex<float>;
using c128 = Complex<double>;

// Half types are computed in float, float and double in themselves, complex numbers in the type of their parts.
template <typename T> struct Accumulator {
    using type = float;
};
template <> struct Accumulator<double> {
    using type = double;
};
template <typename R> struct Accumulator<Complex<R>> {
    using type = R;
};
template <typename T> using acc_of = typename Accumulator<T>::type;

}  // namespace baracuda
