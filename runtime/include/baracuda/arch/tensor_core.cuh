// Matrix instructions of a whole warp: every lane calls them, with the same arguments but for its own fragments and
// rows. Fragments are registers, laid out over the lanes as PTX defines it for the instruction of the same name.
#pragma once

namespace baracuda {

// Matrices of 8x8 16-bit elements from shared memory. Lane i gives the address, a multiple of 16, of row i % 8 of
// matrix i / 8; lane l receives elements 2 (l % 4) and the next of row l / 4 of each matrix, or with `trans` of its
// column l / 4.
#ifdef BARACUDA_HOST
#define BARACUDA_LDMATRIX(name, count, trans, ...)                                \
    inline void name(unsigned* fragment, const void* row, BARACUDA_SITE) {        \
        baracuda_host::ldmatrix<count, trans>(fragment, row, BARACUDA_SITE_ARGS); \
    }
#else
#define BARACUDA_LDMATRIX(name, count, trans, ptx, registers, address, ...)                                         \
    template <int ARCH = __CUDA_ARCH__> __device__ __forceinline__ void name(unsigned* fragment, const void* row) { \
        static_assert(ARCH >= 750, "ldmatrix needs sm_75");                                                         \
        asm volatile("ldmatrix.sync.aligned.m8n8." ptx ".shared.b16 {" registers "}, [" address "];"                \
                     : __VA_ARGS__                                                                                  \
                     : "r"(unsigned(__cvta_generic_to_shared(row)))                                                 \
                     : "memory");                                                                                   \
    }
#endif
#define BARACUDA_WORD(i) "=r"(fragment[i])
BARACUDA_LDMATRIX(ldmatrix_x1, 1, false, "x1", "%0", "%1", BARACUDA_WORD(0))
BARACUDA_LDMATRIX(ldmatrix_x2, 2, false, "x2", "%0, %1", "%2", BARACUDA_WORD(0), BARACUDA_WORD(1))
BARACUDA_LDMATRIX(ldmatrix_x4, 4, false, "x4", "%0, %1, %2, %3", "%4", BARACUDA_WORD(0), BARACUDA_WORD(1),
                  BARACUDA_WORD(2), BARACUDA_WORD(3))
BARACUDA_LDMATRIX(ldmatrix_x1_trans, 1, true, "x1.trans", "%0", "%1", BARACUDA_WORD(0))
BARACUDA_LDMATRIX(ldmatrix_x2_trans, 2, true, "x2.trans", "%0, %1", "%2", BARACUDA_WORD(0), BARACUDA_WORD(1))
BARACUDA_LDMATRIX(ldmatrix_x4_trans, 4, true, "x4.trans", "%0, %1, %2, %3", "%4", BARACUDA_WORD(0), BARACUDA_WORD(1),
                  BARACUDA_WORD(2), BARACUDA_WORD(3))
#undef BARACUDA_WORD
#undef BARACUDA_LDMATRIX

// The transpose of 8 by 8 halves, of which a lane has two neighbours of row lane / 4.
#ifdef BARACUDA_HOST
using baracuda_host::movmatrix_trans;
#else
__device__ __forceinline__ unsigned movmatrix_trans(unsigned pair) {
    unsigned to;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(to) : "r"(pair));
    return to;
}
#endif

// D += A B, where A is row-major and B column-major; a name says shape and element type, of A and B where they differ.
// The sum is f32, for integers s32, which wraps around, and for f64 f64.
#ifdef BARACUDA_HOST
using baracuda_host::cvt_rna_tf32_f32;
using baracuda_host::mma_m16n8k8_f64;
using baracuda_host::mma_m8n8k4_f64;
#define BARACUDA_MMA(name, ...) using baracuda_host::name;
#else
// To the nearest tf32, ties away from zero, as the bits that the instruction takes.
template <int ARCH = __CUDA_ARCH__> __device__ __forceinline__ unsigned cvt_rna_tf32_f32(float value) {
    static_assert(ARCH >= 800, "cvt.rna.tf32.f32 needs sm_80");
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
}
#define BARACUDA_MMA(name, sm, ptx, Sum, kind)                                                                  \
    template <int ARCH = __CUDA_ARCH__>                                                                         \
    __device__ __forceinline__ void name(Sum* d, const unsigned* a, const unsigned* b) {                        \
        static_assert(ARCH >= 10 * sm, #name " needs sm_" #sm);                                                 \
        asm volatile("mma.sync.aligned." ptx " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                     : "+" kind(d[0]), "+" kind(d[1]), "+" kind(d[2]), "+" kind(d[3])                           \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                       \
    }
template <int ARCH = __CUDA_ARCH__>
__device__ __forceinline__ void mma_m8n8k4_f64(double* d, const double* a, const double* b) {
    static_assert(ARCH >= 800, "mma_m8n8k4_f64 needs sm_80");
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(d[0]), "+d"(d[1])
                 : "d"(a[0]), "d"(b[0]));
}
// Twice as fast on sm_90 as four instructions of sm_80.
template <int ARCH = __CUDA_ARCH__>
__device__ __forceinline__ void mma_m16n8k8_f64(double* d, const double* a, const double* b) {
    static_assert(ARCH >= 800, "mma_m16n8k8_f64 needs sm_80");
    if constexpr (ARCH >= 900) {
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
            : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) mma_m8n8k4_f64(d + i % 2 * 2, a + i, b + i / 2);
    }
}
#endif
BARACUDA_MMA(mma_m16n8k16_f16, 80, "m16n8k16.row.col.f32.f16.f16.f32", float, "f")
BARACUDA_MMA(mma_m16n8k16_bf16, 80, "m16n8k16.row.col.f32.bf16.bf16.f32", float, "f")
BARACUDA_MMA(mma_m16n8k8_tf32, 80, "m16n8k8.row.col.f32.tf32.tf32.f32", float, "f")
BARACUDA_MMA(mma_m16n8k32_e4m3, 89, "m16n8k32.row.col.f32.e4m3.e4m3.f32", float, "f")
BARACUDA_MMA(mma_m16n8k32_e5m2, 89, "m16n8k32.row.col.f32.e5m2.e5m2.f32", float, "f")
BARACUDA_MMA(mma_m16n8k32_e4m3_e5m2, 89, "m16n8k32.row.col.f32.e4m3.e5m2.f32", float, "f")
BARACUDA_MMA(mma_m16n8k32_e5m2_e4m3, 89, "m16n8k32.row.col.f32.e5m2.e4m3.f32", float, "f")
BARACUDA_MMA(mma_m16n8k32_s8, 80, "m16n8k32.row.col.s32.s8.s8.s32", int, "r")
BARACUDA_MMA(mma_m16n8k32_u8, 80, "m16n8k32.row.col.s32.u8.u8.s32", int, "r")
BARACUDA_MMA(mma_m16n8k32_s8_u8, 80, "m16n8k32.row.col.s32.s8.u8.s32", int, "r")
BARACUDA_MMA(mma_m16n8k32_u8_s8, 80, "m16n8k32.row.col.s32.u8.s8.s32", int, "r")
#undef BARACUDA_MMA

}  // namespace baracuda
