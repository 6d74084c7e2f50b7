// The functions of the program language: one spelling for float, double and 64-bit integers; and quick ones.
#pragma once

#include <baracuda/element.cuh>

namespace baracuda {

// 2^a and 1 / a, of floats on a GPU within two units in the last place; what is below the smallest normal float is
// zero.
__device__ inline double quick_exp2(double a) { return ::exp2(a); }
__device__ inline double quick_reciprocal(double a) { return 1 / a; }
#ifdef BARACUDA_HOST
__device__ inline float quick_exp2(float a) { return ::exp2f(a); }
__device__ inline float quick_reciprocal(float a) { return 1 / a; }
#else
__device__ inline float quick_exp2(float a) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(a));
    return power;
}
__device__ inline float quick_reciprocal(float a) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
    return r;
}
#endif

namespace math {

#define BARACUDA_UNARY(name, of_float, of_double)                 \
    __device__ inline float name(float a) { return of_float(a); } \
    __device__ inline double name(double a) { return of_double(a); }
BARACUDA_UNARY(sqrt, ::sqrtf, ::sqrt)
BARACUDA_UNARY(rsqrt, ::rsqrtf, ::rsqrt)
BARACUDA_UNARY(exp, ::expf, ::exp)
BARACUDA_UNARY(exp2, ::exp2f, ::exp2)
BARACUDA_UNARY(expm1, ::expm1f, ::expm1)
BARACUDA_UNARY(log, ::logf, ::log)
BARACUDA_UNARY(log2, ::log2f, ::log2)
BARACUDA_UNARY(log1p, ::log1pf, ::log1p)
BARACUDA_UNARY(tanh, ::tanhf, ::tanh)
BARACUDA_UNARY(sin, ::sinf, ::sin)
BARACUDA_UNARY(cos, ::cosf, ::cos)
BARACUDA_UNARY(tan, ::tanf, ::tan)
BARACUDA_UNARY(asin, ::asinf, ::asin)
BARACUDA_UNARY(acos, ::acosf, ::acos)
BARACUDA_UNARY(atan, ::atanf, ::atan)
BARACUDA_UNARY(asinh, ::asinhf, ::asinh)
BARACUDA_UNARY(acosh, ::acoshf, ::acosh)
BARACUDA_UNARY(atanh, ::atanhf, ::atanh)
BARACUDA_UNARY(cbrt, ::cbrtf, ::cbrt)
BARACUDA_UNARY(exp10, ::exp10f, ::exp10)
BARACUDA_UNARY(log10, ::log10f, ::log10)
BARACUDA_UNARY(trunc, ::truncf, ::trunc)
BARACUDA_UNARY(erf, ::erff, ::erf)
BARACUDA_UNARY(floor, ::floorf, ::floor)
BARACUDA_UNARY(ceil, ::ceilf, ::ceil)
BARACUDA_UNARY(round, ::rintf, ::rint)
BARACUDA_UNARY(abs, ::fabsf, ::fabs)
#undef BARACUDA_UNARY

#define BARACUDA_BINARY(name, of_float, of_double)                            \
    __device__ inline float name(float a, float b) { return of_float(a, b); } \
    __device__ inline double name(double a, double b) { return of_double(a, b); }
BARACUDA_BINARY(pow, ::powf, ::pow)
BARACUDA_BINARY(atan2, ::atan2f, ::atan2)
BARACUDA_BINARY(hypot, ::hypotf, ::hypot)
BARACUDA_BINARY(copysign, ::copysignf, ::copysign)
#undef BARACUDA_BINARY
__device__ inline double fmod(double a, double b) { return ::fmod(a, b); }
// Exact; the library's of floats divides by an approximation.
__device__ inline float fmod(float a, float b) { return float(::fmod(double(a), double(b))); }

// Towards zero; the nearest there is for what is larger, 0 for NaN.
template <typename A> __device__ i64 whole(A a) {
    constexpr A END = A(9223372036854775808.0);
    if (a >= END) return i64(~(1ull << 63));
    if (a <= -END) return i64(1ull << 63);
    return a == a ? i64(a) : 0;
}
__device__ inline i64 whole(i64 a) { return a; }

// Types of whole numbers that 32 bits hold.
template <typename A> struct IsShort {
    static constexpr bool VALUE = false;
};
template <> struct IsShort<int> {
    static constexpr bool VALUE = true;
};
template <bool SHORT> struct WholeNumber {
    using type = i64;
    using bits = u64;
};
template <> struct WholeNumber<true> {
    using type = int;
    using bits = u32;
};
// What is computed of two: a short number if both are short, which their bound must allow.
template <typename A, typename B> using WholeOf = WholeNumber<IsShort<A>::VALUE && IsShort<B>::VALUE>;
template <typename A, typename B = A> using whole_of = typename WholeOf<A, B>::type;

__device__ inline int whole(int a) { return a; }
__device__ inline int abs(int a) { return a < 0 ? -a : a; }
__device__ inline i64 abs(i64 a) { return a < 0 ? i64(0 - u64(a)) : a; }
__device__ inline float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
__device__ inline double fma(double a, double b, double c) { return ::fma(a, b, c); }
template <typename A> __device__ bool isnan(A a) { return a != a; }

// Never overflows, so that it stays accurate as it goes to zero.
template <typename A> __device__ A sigmoid(A a) {
    const A small = exp(-abs(a));
    return (a < A(0) ? small : A(1)) / (A(1) + small);
}
// A quotient by a number of [1, 2] needs none of the cases of a division, for which compilers call a function: calls
// keep products of wgmma from running beside each other.
template <> __device__ inline float sigmoid(float a) {
    const float small = exp(-abs(a)), top = a < 0.0f ? small : 1.0f, d = 1.0f + small;
    const float about = quick_reciprocal(d), q = top * about;
    return fma(fma(-d, q, top), about, q);
}

// e^(-x^2) times t q, which approximates e^(x^2) erfc(x) within a part in 10^8 up to 10.5, beyond which there is
// nothing left; q is a polynomial of t = 1 / (1 + 0.55 x). With all that is rounded, and the reciprocal and the
// exponential off by as much as they may be, 9 parts in 2^24 remain. In PTX these are 64 instructions, the library's
// are 79.
__device__ inline double erfc(double a) { return ::erfc(a); }
__device__ inline float erfc(float a) {
    constexpr float OF_T[] = {3.102920949e-01f,  3.106636703e-01f, 2.588188350e-01f,  2.020564377e-01f,
                              -9.501263499e-02f, 3.639968634e-01f, -8.534744978e-01f, 7.812814713e-01f,
                              -3.366723955e-01f, 5.805015936e-02f};
    const float size = abs(a), x = size > 10.5f ? 10.5f : size, d = fma(0.55f, x, 1.0f);
    const float about = quick_reciprocal(d), t = fma(about, fma(-d, about, 1.0f), about);
    float q = OF_T[9];
#pragma unroll
    for (int i = 8; i >= 0; --i) q = fma(q, t, OF_T[i]);
    const float square = x * x, rest = fma(x, x, -square), power = exp(-square);
    const float tail = q * t * fma(power, -rest, power);
    return a < 0 ? 2 - tail : tail;
}

// The library's of floats divide by an approximation. Beyond 80 the square of half the exponential does not overflow
// before the result does.
__device__ inline double sinh(double a) { return ::sinh(a); }
__device__ inline double cosh(double a) { return ::cosh(a); }
__device__ inline float sinh(float a) {
    const float size = abs(a), power = expm1(size), half = exp(0.5f * size);
    return copysign(size > 80 ? 0.5f * half * half : 0.5f * (power + power / (power + 1)), a);
}
__device__ inline float cosh(float a) {
    const float size = abs(a), power = exp(size), half = exp(0.5f * size);
    return size > 80 ? 0.5f * half * half : 0.5f * power + 0.5f / power;
}

// NaN wins, as in NumPy. Of zeros of both signs, floats take the positive as the larger: the instruction's rule.
template <typename A> __device__ A maximum(A a, A b) { return a > b || a != a ? a : b; }
template <typename A> __device__ A minimum(A a, A b) { return a < b || a != a ? a : b; }
template <typename A, typename B> __device__ whole_of<A, B> maximum(A a, B b) {
    return maximum(whole_of<A, B>(a), whole_of<A, B>(b));
}
template <typename A, typename B> __device__ whole_of<A, B> minimum(A a, B b) {
    return minimum(whole_of<A, B>(a), whole_of<A, B>(b));
}
#ifdef BARACUDA_HOST
inline float maximum(float a, float b) { return a > b || a != a || (a == b && !(__float_as_uint(a) >> 31)) ? a : b; }
inline float minimum(float a, float b) { return a < b || a != a || (a == b && __float_as_uint(a) >> 31) ? a : b; }
#else
__device__ inline float maximum(float a, float b) {
    float c;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
}
__device__ inline float minimum(float a, float b) {
    float c;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
}
#endif

// The same of each of two halves in a word.
#ifdef BARACUDA_HOST
template <typename T> u32 maximum_of_halves(u32 a, u32 b) {
    const auto of = [&](int at) { return maximum(float(first_half<T>(a >> at)), float(first_half<T>(b >> at))); };
    return pack_halves<T>(of(0), of(16));
}
#else
template <typename T> __device__ u32 maximum_of_halves(u32 a, u32 b);
template <> __device__ inline u32 maximum_of_halves<f16>(u32 a, u32 b) {
    u32 c;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
}
template <> __device__ inline u32 maximum_of_halves<bf16>(u32 a, u32 b) {
    u32 c;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
}
#endif

// Integers as in NumPy: they wrap, quotients round down, dividing by zero gives zero, shifts of 64 and more push every
// bit out.
#define BARACUDA_WRAPPING(name, op)                                              \
    template <typename A, typename B> __device__ whole_of<A, B> name(A a, B b) { \
        using W = whole_of<A, B>;                                                \
        using Bits = typename WholeOf<A, B>::bits;                               \
        return W(Bits(W(a)) op Bits(W(b)));                                      \
    }
BARACUDA_WRAPPING(add, +)
BARACUDA_WRAPPING(subtract, -)
BARACUDA_WRAPPING(multiply, *)
BARACUDA_WRAPPING(bitwise_and, &)
BARACUDA_WRAPPING(bitwise_or, |)
BARACUDA_WRAPPING(bitwise_xor, ^)
#undef BARACUDA_WRAPPING
// Whether 32 bits hold both, and neither is negative: then a division takes a fraction of the time.
__device__ inline bool are_short(i64 a, i64 b) { return (u64(a) | u64(b)) >> 32 == 0; }
// a / b of 32 bits, and anything if b is 0. In steps, so that divisions by one number share those that depend on it
// alone: an estimate of 2^32 / b that is never too large, one step of Newton's method, and a quotient that is at most
// two too small.
__device__ inline u32 short_quotient(u32 a, u32 b) {
#ifdef BARACUDA_HOST
    return b == 0 ? 0 : a / b;
#else
    u32 inverse = u32(quick_reciprocal(float(b)) * 4294966784.0f);
    inverse += __umulhi(inverse, 0u - b * inverse);
    u32 quotient = __umulhi(a, inverse), rest = a - quotient * b;
    if (rest >= b) quotient += 1, rest -= b;
    return rest >= b ? quotient + 1 : quotient;
#endif
}
__device__ __noinline__ i64 long_quotient(i64 a, i64 b) {
    if (b == 0) return 0;
    if (b == -1) return i64(0 - u64(a));
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
__device__ inline i64 floor_quotient(i64 a, i64 b) {
    const u32 quotient = short_quotient(u32(a), u32(b));
    return are_short(a, b) ? i64(quotient) : long_quotient(a, b);
}
// The complement of a negative number is its distance from -1, which rounds towards zero as the number rounds down.
__device__ inline int floor_quotient(int a, int b) {
    const int up = b < 0 ? -a : a, sign = up >> 31;
    return int(short_quotient(u32(up ^ sign), u32(b < 0 ? -b : b))) ^ sign;
}
template <typename A, typename B> __device__ whole_of<A, B> floor_divide(A a, B b) {
    using W = whole_of<A, B>;
    return W(b) == 0 ? W(0) : floor_quotient(W(a), W(b));
}
template <typename A, typename B> __device__ whole_of<A, B> remainder(A a, B b) {
    using W = whole_of<A, B>;
    return W(b) == 0 ? W(0) : subtract(W(a), multiply(floor_quotient(W(a), W(b)), W(b)));
}
__device__ constexpr int log2_of(i64 power) { return power > 1 ? 1 + log2_of(power / 2) : 0; }
// By a positive constant: a shift, or a multiplication.
template <i64 BY, typename A> __device__ auto floor_divide_by(A number) {
    static_assert(BY > 0, "quotients by other constants are not special");
    using W = typename WholeNumber<IsShort<A>::VALUE && (BY >> 31) == 0>::type;
    const W a = W(number);
    if constexpr ((BY & (BY - 1)) == 0) {
        return W(a >> log2_of(BY));
    } else if constexpr (sizeof(W) == sizeof(int)) {
        return int(u32(a ^ a >> 31) / u32(BY)) ^ a >> 31;
    } else {
        return are_short(a, BY) ? i64(u32(a) / u32(BY)) : a / BY - (a % BY < 0);
    }
}
template <i64 BY, typename A> __device__ auto remainder_by(A a) {
    const auto quotient = floor_divide_by<BY>(a);
    return decltype(quotient)(a) - quotient * decltype(quotient)(BY);
}
__device__ inline i64 left_shift(i64 a, i64 b) { return u64(b) < 64 ? i64(u64(a) << b) : 0; }
__device__ inline i64 right_shift(i64 a, i64 b) { return u64(b) < 64 ? a >> b : a < 0 ? -1 : 0; }

template <typename A> __device__ A infinity() { return A(__uint_as_float(0x7f800000u)); }
template <typename A> __device__ A largest() {
    return A(sizeof(A) == 4 ? 3.4028234663852886e38 : 1.7976931348623157e308);
}

}  // namespace math

// Of a product of 64-bit numbers that were 32-bit ones, the compiler adds a zero to the upper half.
__device__ inline u64 wide_product(u32 a, u32 b) {
#ifdef BARACUDA_HOST
    return u64(a) * b;
#else
    u64 product;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
    return product;
#endif
}

// In one instruction: where one of three numbers comes later, the compiler would take two.
__device__ inline u32 exclusive_or(u32 a, u32 b, u32 c) {
#ifdef BARACUDA_HOST
    return a ^ b ^ c;
#else
    u32 all;
    asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(all) : "r"(a), "r"(b), "r"(c));
    return all;
#endif
}

// Philox4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, 2011) with key `seed` and a counter of
// `element / 4` in its low and `offset` in its high half. Its four words are kept for the elements that come next.
struct Philox {
    u64 block = ~u64(0);  // of no element
    i64 seed = 0, offset = 0;
    u32 a, b, c, d;

    // Word `element % 4`: 0 to 2^32 - 1.
    __device__ i64 operator()(i64 seed_, i64 offset_, i64 element) {
        if (u64(element) >> 2 != block || seed_ != seed || offset_ != offset) {
            block = u64(element) >> 2, seed = seed_, offset = offset_;
            compute();
        }
        const int word = int(element & 3);
        return word == 0 ? a : word == 1 ? b : word == 2 ? c : d;
    }

    __device__ void compute() {
        a = u32(block), b = u32(block >> 32), c = u32(offset), d = u32(u64(offset) >> 32);
        u32 key = u32(seed), other = u32(u64(seed) >> 32);
#pragma unroll
        for (int i = 0; i < 10; ++i) {
            const u64 first = wide_product(0xD2511F53u, a), second = wide_product(0xCD9E8D57u, c);
            a = exclusive_or(u32(second >> 32), b, key), b = u32(second);
            c = exclusive_or(u32(first >> 32), d, other), d = u32(first);
            key += 0x9E3779B9u, other += 0xBB67AE85u;
        }
    }
};
__device__ inline i64 philox(i64 seed, i64 offset, i64 element) { return Philox{}(seed, offset, element); }

namespace math {

// e^a, for a result of type T. A half keeps nothing of what the power of two of a rounded product is off by, a part in
// 2^24 / |a|.
template <typename T, typename A> __device__ A exp_for(A a) {
    if constexpr (sizeof(T) == 2) {
        const A scaled = a * A(1.4426950408889634);
#ifdef BARACUDA_HOST
        return ::exp2f(scaled);
#else
        A power;  // not by `quick_exp2`: bf16 has numbers below the smallest normal float
        asm("ex2.approx.f32 %0, %1;" : "=f"(power) : "f"(scaled));
        return power;
#endif
    } else {
        return exp(a);
    }
}

// erfc(a), which the program only multiplies before it stores the product as a T. Rounding to bf16 hides relative
// errors up to 1.5e-5; a polynomial of 7 terms has 3e-6, all roundings included. e^(-x^2) is scaled by 2^64 and the
// polynomial by 2^-64, so that the exponential does not become subnormal.
template <typename T, typename A> __device__ A erfc_for(A a) { return erfc(a); }
template <> __device__ inline float erfc_for<bf16>(float a) {
    constexpr float DOWN = 1.0f / 18446744073709551616.0f;
    constexpr float OF_T[] = {2.823163569e-01f, 2.777919173e-01f,  2.803730965e-01f, 4.092626646e-02f,
                              3.849134147e-01f, -3.536456227e-01f, 8.732303977e-02f};
    const float size = abs(a), x = size > 10.5f ? 10.5f : size, t = quick_reciprocal(fma(0.5f, x, 1.0f));
    float q = OF_T[6] * DOWN;
#pragma unroll
    for (int i = 5; i >= 0; --i) q = fma(q, t, OF_T[i] * DOWN);
    const float tail = q * t * quick_exp2(fma(x * x, -1.4426950408889634f, 64.0f));
    return a < 0 ? 2 - tail : tail;
}

// e^a for a sum of which one term is 1: to that, a number below the smallest normal one adds nothing.
template <typename T, typename A> __device__ A exp_term(A a) {
    if constexpr (sizeof(T) == 2) return quick_exp2(a * A(1.4426950408889634));
    else return exp(a);
}

}  // namespace math
}  // namespace baracuda
