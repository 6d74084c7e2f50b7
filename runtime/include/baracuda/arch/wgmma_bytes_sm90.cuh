// wgmma of 8-bit factors, whose depth is contiguous: sums of e4m3 and e5m2 in f32, of which an instruction keeps 14
// bits, and of whole numbers in 32 bits, which wrap around. sm_90a only.
#pragma once

#include <baracuda/arch/wgmma_sm90.cuh>
#include <baracuda/float8.cuh>

namespace baracuda {

// As Wgmma of halves: sum[64, N] += A[64, 32] B[32, N], of rows in panels of 128 bytes.
#ifdef BARACUDA_HOST
#define BARACUDA_WGMMA_BYTES(A, B, Number, factor_a, factor_b)                                                      \
    template <int N> struct Wgmma<A, N, B> {                                                                        \
        using Sum = Number;                                                                                         \
        static constexpr int REGISTERS = N / 2;                                                                     \
        template <bool B_COLUMNS, bool A_COLUMNS = false>                                                           \
        static void shared(Sum (&sum)[REGISTERS], Matrix a, Matrix b, bool fresh, BARACUDA_SITE) {                  \
            static_assert(!A_COLUMNS && !B_COLUMNS, "no instruction transposes bytes");                             \
            baracuda_host::wgmma({sum, nullptr, a.descriptor(), b.descriptor(), N, baracuda_host::Factor::factor_a, \
                                  baracuda_host::Factor::factor_b, fresh, false, false},                            \
                                 BARACUDA_HERE);                                                                    \
        }                                                                                                           \
    };
#define BARACUDA_WGMMA_FLOATS(A, B, a, b, factor_a, factor_b) BARACUDA_WGMMA_BYTES(A, B, float, factor_a, factor_b)
#define BARACUDA_WGMMA_WHOLE(A, B, a, b, factor_a, factor_b) BARACUDA_WGMMA_BYTES(A, B, int, factor_a, factor_b)
#else
// R registers of sum; r0 ... are the numbers of the operands behind them.
#define BARACUDA_WGMMA_BYTES(A, B, Number, kind, types, signs, N, R, r0, r1, r2)                       \
    template <> struct Wgmma<A, N, B> {                                                                \
        using Sum = Number;                                                                            \
        static constexpr int REGISTERS = R;                                                            \
        template <bool B_COLUMNS, bool A_COLUMNS = false>                                              \
        __device__ static __forceinline__ void shared(Sum (&sum)[R], Matrix a, Matrix b, bool fresh) { \
            static_assert(!A_COLUMNS && !B_COLUMNS, "no instruction transposes bytes");                \
            asm volatile("{\n.reg .pred keep;\nsetp.eq.b32 keep, %" #r2                                \
                         ", 0;\n"                                                                      \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k32." types " {" BARACUDA_TEXT_##R    \
                         "}, "                                                                         \
                         "%" #r0 ", %" #r1 ", keep" signs ";\n}\n"                                     \
                         : BARACUDA_SUM_##R(kind, 0)                                                   \
                         : "l"(a.descriptor()), "l"(b.descriptor()), "r"(int(fresh)));                 \
        }                                                                                              \
    };
#define BARACUDA_WGMMA_WIDTHS(A, B, Number, kind, types, signs)                 \
    BARACUDA_WGMMA_BYTES(A, B, Number, kind, types, signs, 16, 8, 8, 9, 10)     \
    BARACUDA_WGMMA_BYTES(A, B, Number, kind, types, signs, 32, 16, 16, 17, 18)  \
    BARACUDA_WGMMA_BYTES(A, B, Number, kind, types, signs, 64, 32, 32, 33, 34)  \
    BARACUDA_WGMMA_BYTES(A, B, Number, kind, types, signs, 128, 64, 64, 65, 66) \
    BARACUDA_WGMMA_BYTES(A, B, Number, kind, types, signs, 192, 96, 96, 97, 98) \
    BARACUDA_WGMMA_BYTES(A, B, Number, kind, types, signs, 256, 128, 128, 129, 130)
#define BARACUDA_WGMMA_FLOATS(A, B, a, b, factor_a, factor_b) \
    BARACUDA_WGMMA_WIDTHS(A, B, float, "f", "f32." #a "." #b, ", 1, 1")
#define BARACUDA_WGMMA_WHOLE(A, B, a, b, factor_a, factor_b) BARACUDA_WGMMA_WIDTHS(A, B, int, "r", "s32." #a "." #b, "")
#endif
BARACUDA_WGMMA_FLOATS(f8e4m3, f8e4m3, e4m3, e4m3, E4M3, E4M3)
BARACUDA_WGMMA_FLOATS(f8e4m3, f8e5m2, e4m3, e5m2, E4M3, E5M2)
BARACUDA_WGMMA_FLOATS(f8e5m2, f8e4m3, e5m2, e4m3, E5M2, E4M3)
BARACUDA_WGMMA_FLOATS(f8e5m2, f8e5m2, e5m2, e5m2, E5M2, E5M2)
BARACUDA_WGMMA_WHOLE(signed char, signed char, s8, s8, S8, S8)
BARACUDA_WGMMA_WHOLE(signed char, unsigned char, s8, u8, S8, U8)
BARACUDA_WGMMA_WHOLE(unsigned char, signed char, u8, s8, U8, S8)
BARACUDA_WGMMA_WHOLE(unsigned char, unsigned char, u8, u8, U8, U8)
#undef BARACUDA_WGMMA_WHOLE
#undef BARACUDA_WGMMA_FLOATS
#undef BARACUDA_WGMMA_BYTES

}  // namespace baracuda
