// wgmma: asynchronous matrix instructions of a warpgroup, four warps from a multiple of four on. sm_90a only. Those of
// 8-bit factors are in wgmma_bytes_sm90.cuh.
#pragma once

#include <baracuda/arch/wgmma_operands.cuh>
#include <baracuda/element.cuh>

namespace baracuda {

#ifdef BARACUDA_HOST
inline void wgmma_fence(BARACUDA_SITE) { baracuda_host::wgmma_fence(BARACUDA_HERE); }
inline void wgmma_commit(BARACUDA_SITE) { baracuda_host::wgmma_commit(BARACUDA_HERE); }
template <int PENDING> inline void wgmma_wait(BARACUDA_SITE) { baracuda_host::wgmma_wait(PENDING, BARACUDA_HERE); }
template <typename Registers> inline void fence_operand(Registers&) {}
#else
// Orders earlier accesses to registers and shared memory before the next products.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// The products since the last commit become a group; `wgmma_wait` waits for all groups but the PENDING committed last.
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Keeps the compiler from moving accesses to registers of products in flight across this point: before a fence, after a
// wait.
template <int N> __device__ __forceinline__ void fence_operand(float (&value)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(value[i])::"memory");
}
template <int N> __device__ __forceinline__ void fence_operand(int (&value)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+r"(value[i])::"memory");
}
template <int N> __device__ __forceinline__ void fence_operand(unsigned (&value)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+r"(value[i])::"memory");
}

#endif

// A matrix in shared memory, in panels of ROW bytes a row that start at multiples of 8 ROW. The 16-byte chunks of row r
// are in the order chunk ^ (r % 8) if there are eight, which is TMA's swizzle of 128 bytes, and chunk ^ (r / 4 % 2) if
// there are two. Adding bytes moves on: an element's a column within a panel, ROW a row, by 8 rows or more. `panel` is
// the distance of panels in bytes, needed where columns run along the result.
template <int ROW> struct PanelMatrix {
    static_assert(ROW == 128 || ROW == 32, "the swizzles that are used");
    unsigned start;  // low word of the descriptor: address and panel, each in units of 16 bytes

    __device__ __forceinline__ static PanelMatrix at(unsigned address, unsigned panel) {
        return {(address & 0x3ffff) >> 4 | (panel >> 4) << 16};
    }
    __device__ __forceinline__ PanelMatrix operator+(unsigned bytes) const { return {start + (bytes >> 4)}; }
    __device__ __forceinline__ u64 descriptor() const {
        constexpr unsigned EIGHT_ROWS = 8 * ROW >> 4, SWIZZLE = (ROW == 128 ? 1u : 3u) << 30;
        return u64(EIGHT_ROWS | SWIZZLE) << 32 | start;
    }
};
using Matrix = PanelMatrix<128>;

// sum[64, N] += A[64, 16] B[16, N], `fresh` sets sum instead of adding. B is in shared memory: a row there is one of
// the N columns of B, or with B_COLUMNS one of its 16 rows. A is there too, by its 64 rows or with A_COLUMNS by its 16
// columns, or in registers.
//
// Thread t of the 128 holds in sum[i] row 16 (t / 32) + t % 32 / 4 + 8 (i / 2 % 2) and column 8 (i / 4) + 2 (t % 4) +
// i % 2, and of A the same elements, two to a register: a sum rounded in pairs is the A of a next product.
#ifdef BARACUDA_HOST
template <typename T> constexpr auto FACTOR = baracuda_host::Factor::F16;
template <> constexpr auto FACTOR<bf16> = baracuda_host::Factor::BF16;
template <typename T, int N, typename = T> struct Wgmma {
    using Sum = float;
    static constexpr int REGISTERS = N / 2;
    static constexpr auto KIND = FACTOR<T>;
    template <bool B_COLUMNS, bool A_COLUMNS = false, int B_ROW = 128>
    static void shared(float (&sum)[REGISTERS], Matrix a, PanelMatrix<B_ROW> b, bool fresh, BARACUDA_SITE) {
        baracuda_host::wgmma({sum, nullptr, a.descriptor(), b.descriptor(), N, KIND, KIND, fresh, A_COLUMNS, B_COLUMNS},
                             BARACUDA_HERE);
    }
    template <bool B_COLUMNS>
    static void registers(float (&sum)[REGISTERS], const unsigned* a, Matrix b, bool fresh, BARACUDA_SITE) {
        baracuda_host::wgmma({sum, a, 0, b.descriptor(), N, KIND, KIND, fresh, false, B_COLUMNS}, BARACUDA_HERE);
    }
};
#else
template <typename A, int N, typename B = A> struct Wgmma;

// R registers of sum; r0 ... are the numbers of the operands behind them.
#define BARACUDA_WGMMA(T, N, R, r0, r1, r2, r3, r4, r5, r6)                                                          \
    template <> struct Wgmma<T, N> {                                                                                 \
        using Sum = float;                                                                                           \
        static constexpr int REGISTERS = R;                                                                          \
        template <bool B_COLUMNS, bool A_COLUMNS = false, int B_ROW = 128>                                           \
        __device__ static __forceinline__ void shared(float (&sum)[R], Matrix a, PanelMatrix<B_ROW> b, bool fresh) { \
            asm volatile("{\n.reg .pred keep;\nsetp.eq.b32 keep, %" #r2                                              \
                         ", 0;\n"                                                                                    \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #T "." #T " {" BARACUDA_TEXT_##R          \
                         "}, "                                                                                       \
                         "%" #r0 ", %" #r1 ", keep, 1, 1, %" #r3 ", %" #r4 ";\n}\n"                                  \
                         : BARACUDA_SUM_##R("f", 0)                                                                  \
                         : "l"(a.descriptor()), "l"(b.descriptor()), "r"(int(fresh)), "n"(int(A_COLUMNS)),           \
                           "n"(int(B_COLUMNS)));                                                                     \
        }                                                                                                            \
        template <bool B_COLUMNS>                                                                                    \
        __device__ static __forceinline__ void registers(float (&sum)[R], const unsigned* a, Matrix b, bool fresh) { \
            asm volatile("{\n.reg .pred keep;\nsetp.eq.b32 keep, %" #r5                                              \
                         ", 0;\n"                                                                                    \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #T "." #T " {" BARACUDA_TEXT_##R          \
                         "}, "                                                                                       \
                         "{%" #r0 ", %" #r1 ", %" #r2 ", %" #r3 "}, %" #r4 ", keep, 1, 1, %" #r6 ";\n}\n"            \
                         : BARACUDA_SUM_##R("f", 0)                                                                  \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.descriptor()), "r"(int(fresh)),         \
                           "n"(int(B_COLUMNS)));                                                                     \
        }                                                                                                            \
    };
#define BARACUDA_WGMMA_HALVES(...) BARACUDA_WGMMA(f16, __VA_ARGS__) BARACUDA_WGMMA(bf16, __VA_ARGS__)
BARACUDA_WGMMA_HALVES(16, 8, 8, 9, 10, 11, 12, 13, 14)
BARACUDA_WGMMA_HALVES(32, 16, 16, 17, 18, 19, 20, 21, 22)
BARACUDA_WGMMA_HALVES(64, 32, 32, 33, 34, 35, 36, 37, 38)
BARACUDA_WGMMA_HALVES(80, 40, 40, 41, 42, 43, 44, 45, 46)
BARACUDA_WGMMA_HALVES(96, 48, 48, 49, 50, 51, 52, 53, 54)
BARACUDA_WGMMA_HALVES(128, 64, 64, 65, 66, 67, 68, 69, 70)
BARACUDA_WGMMA_HALVES(192, 96, 96, 97, 98, 99, 100, 101, 102)
BARACUDA_WGMMA_HALVES(256, 128, 128, 129, 130, 131, 132, 133, 134)
#undef BARACUDA_WGMMA_HALVES
#undef BARACUDA_WGMMA
#endif

}  // namespace baracuda
