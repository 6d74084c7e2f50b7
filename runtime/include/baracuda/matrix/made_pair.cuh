// Pairs of `T((code - zero) * scale)`, of codes of four bits. In the arithmetic of T where the difference is exact,
// which it is for small whole zero points: the one rounding is that of the product, as if it were computed in float.
#pragma once

#include <baracuda/math.cuh>
#include <baracuda/pack.cuh>

namespace baracuda {

// A code is the last four bits of LARGE, which has no others there: LARGE + code.
template <typename T> struct MadeCode;
template <> struct MadeCode<f16> {
    static constexpr float LARGE = 1024.0f;
    static constexpr unsigned LARGE_PAIR = 0x64006400u, ONE_PAIR = 0x3c003c00u, MINUS = 0x80008000u;
};
template <> struct MadeCode<bf16> {
    static constexpr float LARGE = 128.0f;
    static constexpr unsigned LARGE_PAIR = 0x43004300u, ONE_PAIR = 0x3f803f80u, MINUS = 0x80008000u;
};

// a * b + c of both halves, each rounded once. On the host the product and the sum must be exact, but for one of them.
#ifdef BARACUDA_HOST
template <typename T> inline T half_of(unsigned pair, int half) {
    T value;
    value.bits = (unsigned short)(pair >> 16 * half);
    return value;
}
template <typename T> inline unsigned fma_pair(unsigned a, unsigned b, unsigned c) {
    float value[2];
    for (int i = 0; i < 2; ++i) value[i] = float(half_of<T>(a, i)) * float(half_of<T>(b, i)) + float(half_of<T>(c, i));
    return pack_halves<T>(value[0], value[1]);
}
#else
template <typename T> __device__ __forceinline__ unsigned fma_pair(unsigned a, unsigned b, unsigned c);
template <> __device__ __forceinline__ unsigned fma_pair<f16>(unsigned a, unsigned b, unsigned c) {
    unsigned d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
template <> __device__ __forceinline__ unsigned fma_pair<bf16>(unsigned a, unsigned b, unsigned c) {
    unsigned d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
#endif

// (bits & MASK) | SET, in one instruction: compilers make two of two constants.
template <unsigned MASK, unsigned SET> __device__ __forceinline__ unsigned mask_and_set(unsigned bits) {
#ifdef BARACUDA_HOST
    return (bits & MASK) | SET;
#else
    unsigned to;
    asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(to) : "r"(bits), "n"(MASK), "n"(SET), "n"(0xea));
    return to;
#endif
}

template <typename T> struct MadePair {
    using Code = MadeCode<T>;
    static constexpr float WHOLE = 12582912.0f;  // what is added to it is rounded to a whole number
    static constexpr float SMALL =
        100.0f;  // LARGE and what is added to it, and their difference from a code, are exact

    unsigned selector;

    // Makes pairs of a byte of each word, whose upper half is zero.
    __device__ __forceinline__ explicit MadePair(int byte) : selector(unsigned(byte) | 0x4440u) {}

    __device__ __forceinline__ static bool is_exact(T zero) {
        const float value = float(zero);
        return bool(math::abs(value) <= SMALL) & bool(value + WHOLE - WHOLE == value);
    }
    __device__ __forceinline__ static unsigned of(T value) { return value.bits * 0x10001u; }
    // -(LARGE + zero), of a pair that is exact.
    __device__ __forceinline__ static unsigned offset(unsigned zero) {
        return fma_pair<T>(zero, Code::ONE_PAIR | Code::MINUS, Code::LARGE_PAIR | Code::MINUS);
    }
    // Of the two codes of the byte, the second of which is moved to the other half.
    __device__ __forceinline__ unsigned of_codes(unsigned word, unsigned offset, unsigned scale) const {
        const unsigned byte = __byte_perm(word, 0, selector);
        const unsigned large = mask_and_set<0x000f000fu, Code::LARGE_PAIR>(byte * 0x1001u);
        return fma_pair<T>(fma_pair<T>(large, Code::ONE_PAIR, offset), scale, Code::MINUS);
    }
    // Of any zero point, in float.
    __device__ __forceinline__ unsigned of_codes(unsigned word, float zero, float scale) const {
        const unsigned byte = __byte_perm(word, 0, selector);
        const float first = (float_of(byte & 15) - zero) * scale, second = (float_of(byte >> 4) - zero) * scale;
        return pack_halves<T>(first, second);
    }
    __device__ __forceinline__ static float float_of(unsigned code) {
        return __uint_as_float(0x4b000000u | code) - 8388608.0f;
    }
    __device__ __forceinline__ static float first_of(unsigned pair) {
        return float(__builtin_bit_cast(T, (unsigned short)pair));
    }
};

// What makes pairs of a row's runs: a pair of the zero point and one of the scale.
template <class Program> struct PairMaker {
    using T = typename Program::T;
    using Pairs = MadePair<T>;
    static constexpr int WORDS = 2;  // of a record
    struct Record {
        unsigned zero, scale;
        __device__ __forceinline__ void store(unsigned* at, int) const {
            *reinterpret_cast<u64*>(at) = zero | u64(scale) << 32;
        }
    };

    __device__ __forceinline__ PairMaker(const typename Program::Args&, long long) {}
    // Whether the pair is exact, too.
    __device__ __forceinline__ bool make(Record& record, T zero, T scale) const {
        record = {Pairs::of(zero), Pairs::of(scale)};
        return Pairs::is_exact(zero);
    }
};

}  // namespace baracuda
