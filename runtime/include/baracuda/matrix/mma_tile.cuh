// A warp's matrix products on tiles in shared memory, for f16, bf16, float (as three tf32 products) and double alike.
#pragma once

#include <baracuda/arch/async.cuh>
#include <baracuda/math.cuh>
#include <baracuda/pack.cuh>
#include <baracuda/arch/tensor_core.cuh>

namespace baracuda {

// A matrix in shared memory, aligned to 128 bytes. Chunks of 16 bytes change places within their row, so that the loads
// of Mma below, down columns and along rows, meet no bank conflict (rows of less than 128 bytes: few).
template <typename T, int ROWS_, int COLS_> struct SharedTile {
    static constexpr int ROWS = ROWS_, COLS = COLS_, SIZE = ROWS * COLS;
    static constexpr int PER_CHUNK = 16 / int(sizeof(T)), CHUNKS = COLS / PER_CHUNK;
    static constexpr int SPAN = CHUNKS & -CHUNKS;  // an XOR with less than this stays within the row
    static_assert(COLS % PER_CHUNK == 0, "a row is whole chunks");

    T* data;

    // What the places of a row's chunks are XORed with; it repeats after 8 rows. 8-bit and 16-bit: rows 0..7 differ.
    // 32-bit: lanes read half a chunk of rows 0..3 or a word of rows 0, 2, 4, 6. 64-bit: a chunk of rows 0 and 1, or
    // half of one of 0, 2, 4, 6.
    __device__ static int swizzle(int row) {
        const int wish = sizeof(T) <= 2   ? (SPAN >= 8   ? row
                                             : SPAN == 4 ? row >> 1
                                                         : row >> 2)
                         : sizeof(T) == 4 ? 2 * ((row & 3) ^ (row >> 2 & 1))
                                          : 2 * ((row >> 1 & 3) ^ 2 * (row & 1));
        return wish & 7 & (SPAN - 1);
    }
    // Element 0 of chunk `chunk0 + chunk` in row `row0 + row`. What is constant belongs into row0, a multiple of 8, and
    // chunk0, a multiple of a power of two above chunk: then the lane's part is the same in each step of an unrolled
    // loop.
    __device__ T* chunk(int row0, int chunk0, int row, int chunk) const {
        const int of_lane = row * COLS + (swizzle(row) ^ chunk) * PER_CHUNK;
        const int far = (chunk0 & -SPAN) * PER_CHUNK + row0 * COLS, near = (chunk0 & (SPAN - 1)) * PER_CHUNK;
        char* const bytes = reinterpret_cast<char*>(data);
        return reinterpret_cast<T*>(bytes + (of_lane * int(sizeof(T)) ^ near * int(sizeof(T))) + far * int(sizeof(T)));
    }
    __device__ T* at(int row, int col) const { return chunk(0, col / PER_CHUNK, row, 0) + col % PER_CHUNK; }
};

// Hides a value's origin from the compiler, so that addresses derived from it are computed where they are used.
// Otherwise the loop-invariant ones of an unrolled body would be kept in registers across the loop, or spilled.
__device__ __forceinline__ int opaque(int number) {
#ifndef BARACUDA_HOST
    asm volatile("" : "+r"(number));
#endif
    return number;
}

// threadIdx.x, read again instead of kept in a register.
__device__ __forceinline__ unsigned reload_thread_index() {
#ifdef BARACUDA_HOST
    return threadIdx.x;
#else
    unsigned thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
#endif
}

// Rows of global memory, `stride` elements apart, to a tile: `rows` of them and `cols` elements of each (either may be
// more than the tile has or none); the rest of the tile becomes zero. PACKED: addresses, stride and `cols` are whole
// chunks; copies are asynchronous, and the caller commits and awaits them. Otherwise elements are stored at once. A
// barrier must follow.
template <int THREADS, bool PACKED, typename T, int ROWS, int COLS>
__device__ __forceinline__ void copy_rows(SharedTile<T, ROWS, COLS> tile, const T* from, long long stride,
                                          long long rows, long long cols, int thread = threadIdx.x) {
    constexpr int STEP = PACKED ? 16 / int(sizeof(T)) : 1, PARTS = COLS / STEP;
    // Threads side by side in a row, and rows that are copied at once.
    constexpr int LANES = (PARTS & -PARTS) < (THREADS & -THREADS) ? PARTS & -PARTS : THREADS & -THREADS;
    constexpr int AT_ONCE = THREADS / LANES;
    const int whole = int(min(rows, (long long)ROWS)), wide = int(min(cols, (long long)COLS));
    const int row = thread / LANES, part = thread % LANES;
    const T* next = from + row * stride + part * STEP;
#pragma unroll(PACKED ? ROWS : 4)
    for (int below = 0; below < ROWS; below += AT_ONCE) {
        if (ROWS % AT_ONCE != 0 && below + row >= ROWS) break;
#pragma unroll
        for (int beside = 0; beside < PARTS; beside += LANES) {
            const bool inside = below + row < whole && (beside + part) * STEP < wide;
            if constexpr (PACKED) {
                T* const to = tile.chunk(below & -8, beside, below % 8 + row, part);
                cp_async_cg(to, next + beside * STEP, inside ? 16 : 0);
            } else {
                *tile.at(below + row, beside + part) = inside ? next[beside] : T{};
            }
        }
        next += AT_ONCE * stride;
    }
}

// Sum[ROWS, 8] += Left[ROWS, DEPTH] Right[DEPTH, 16], two sums side by side. Every lane of the warp takes part in
// every call. Fragments begin at m, n and k, which are multiples of their sizes.
//   Left, Right                     fragments: what a lane holds of an operand
//   Sum                             value[i] is element row(i), col(i) of its tile, the same for every type; a Number
//   left(tile, m, k)                element (m, k) of the operand is tile[m][k]
//   left_transposed(tile, m, k)     or tile[k][m]
//   right(tile, k, n)               element (k, n) is tile[k][n]
//   right_transposed(tile, k, n)    or tile[n][k]
//   left_of(sums)                   DEPTH columns of sums, DEPTH / 8 tiles side by side, rounded to T, as an operand
//   multiply(sums, left, right)     adds the product to two sums side by side
// In a loop, pass the loads an `opaque` lane() in each iteration.
//   S = Q K^T     left(q), right_transposed(k)
//   O = P V       left_of(p), right(v)
//   dP = dO V^T   left(dO), right_transposed(v)
//   dV = P^T dO   left_transposed(p), right(dO), or left_of(p^T) where S^T = K Q^T was computed
//   dQ = dS K     left_of(dS), right(k)
template <typename T> struct Mma;

// The rows and columns of a lane's values, the same for all types.
struct MmaLane {
    __device__ static int lane() { return int(threadIdx.x) % 32; }
    __device__ static int row(int i) { return lane() / 4 + i / 2 * 8; }
    __device__ static int col(int i) { return lane() % 4 * 2 + i % 2; }
};

template <typename T> struct MmaHalf : MmaLane {
    static constexpr int ROWS = 16, DEPTH = 16, VALUES = 4;
    struct Left {
        unsigned word[4];
    };
    struct Right {
        unsigned word[4];
    };
    using Number = float;
    struct Sum {
        float value[4];
    };

    template <class Tile>
    __device__ static Left left(const Tile& tile, int m, int k, int lane = MmaLane::lane()) {
        Left a;
        ldmatrix_x4(a.word, tile.chunk(m, k / 8, lane & 15, lane >> 4));
        return a;
    }
    template <class Tile>
    __device__ static Left left_transposed(const Tile& tile, int m, int k, int lane = MmaLane::lane()) {
        Left a;
        ldmatrix_x4_trans(a.word, tile.chunk(k, m / 8, (lane & 7) + (lane >> 4) * 8, lane >> 3 & 1));
        return a;
    }
    template <class Tile>
    __device__ static Right right(const Tile& tile, int k, int n, int lane = MmaLane::lane()) {
        Right b;
        ldmatrix_x4_trans(b.word, tile.chunk(k, n / 8, lane & 15, lane >> 4));
        return b;
    }
    template <class Tile>
    __device__ static Right right_transposed(const Tile& tile, int k, int n, int lane = MmaLane::lane()) {
        Right b;
        ldmatrix_x4(b.word, tile.chunk(n, k / 8, (lane & 7) + (lane >> 4) * 8, lane >> 3 & 1));
        return b;
    }
    __device__ static Left left_of(const Sum* sums) {
        return {{pack_halves<T>(sums[0].value[0], sums[0].value[1]), pack_halves<T>(sums[0].value[2], sums[0].value[3]),
                 pack_halves<T>(sums[1].value[0], sums[1].value[1]),
                 pack_halves<T>(sums[1].value[2], sums[1].value[3])}};
    }
};

template <> struct Mma<f16> : MmaHalf<f16> {
    __device__ static void multiply(Sum* sums, const Left& a, const Right& b) {
        mma_m16n8k16_f16(sums[0].value, a.word, b.word);
        mma_m16n8k16_f16(sums[1].value, a.word, b.word + 2);
    }
};
template <> struct Mma<bf16> : MmaHalf<bf16> {
    __device__ static void multiply(Sum* sums, const Left& a, const Right& b) {
        mma_m16n8k16_bf16(sums[0].value, a.word, b.word);
        mma_m16n8k16_bf16(sums[1].value, a.word, b.word + 2);
    }
};

// A float is split into the nearest tf32 and a remainder, truncated to tf32 by the instruction; of the four products
// the smallest is left out. The error of a product is then a few units in the last place of float. NaN stays in the
// remainder; an operand that is infinite, or nearly, gives NaN.
struct SplitFloats {
    unsigned big[4], small[4];
    __device__ void set(int i, float value) {
        big[i] = (__float_as_uint(value) + 0x1000) & 0xffffe000u;
        small[i] = __float_as_uint(value - __uint_as_float(big[i]));
    }
    __device__ static void multiply(float* sum, float* beside, const SplitFloats& a, const SplitFloats& b) {
        mma_m16n8k8_tf32(sum, a.small, b.big);
        mma_m16n8k8_tf32(beside, a.small, b.big + 2);
        mma_m16n8k8_tf32(sum, a.big, b.small);
        mma_m16n8k8_tf32(beside, a.big, b.small + 2);
        mma_m16n8k8_tf32(sum, a.big, b.big);
        mma_m16n8k8_tf32(beside, a.big, b.big + 2);
    }
};
// A float is rounded to the nearest tf32; what is nearly infinite becomes infinite.
struct RoundedFloats {
    unsigned word[4];
    __device__ void set(int i, float value) { word[i] = cvt_rna_tf32_f32(value); }
    __device__ static void multiply(float* sum, float* beside, const RoundedFloats& a, const RoundedFloats& b) {
        mma_m16n8k8_tf32(sum, a.word, b.word);
        mma_m16n8k8_tf32(beside, a.word, b.word + 2);
    }
};
// The instruction's k-th places t and t + 4 hold columns 2 t and 2 t + 1 in both operands, so that neighbours are
// loaded together, and sums are operands as they are.
template <class Floats> struct MmaFloat : MmaLane {
    static constexpr int ROWS = 16, DEPTH = 8, VALUES = 4;
    using Left = Floats;
    using Right = Floats;
    using Number = float;
    struct Sum {
        float value[4];
    };

    __device__ static Floats operand(float x0, float x1, float x2, float x3) {
        Floats f;
        f.set(0, x0);
        f.set(1, x1);
        f.set(2, x2);
        f.set(3, x3);
        return f;
    }
    template <class Tile> __device__ static Pack<float, 2> pair(const Tile& tile, int row, int col, int lane) {
        Pack<float, 2> two;
        two.load(tile.chunk(row, col / 4, lane >> 2, lane >> 1 & 1) + (lane & 1) * 2);
        return two;
    }
    template <class Tile> __device__ static float one(const Tile& tile, int row, int next, int col, int lane) {
        return tile.chunk(row, col / 4, (lane & 3) * 2 + next, lane >> 4)[lane >> 2 & 3];
    }
    template <class Tile>
    __device__ static Left left(const Tile& tile, int m, int k, int lane = MmaLane::lane()) {
        const Pack<float, 2> top = pair(tile, m, k, lane), low = pair(tile, m + 8, k, lane);
        return operand(top.lane[0], low.lane[0], top.lane[1], low.lane[1]);
    }
    template <class Tile>
    __device__ static Left left_transposed(const Tile& tile, int m, int k, int lane = MmaLane::lane()) {
        return operand(one(tile, k, 0, m, lane), one(tile, k, 0, m + 8, lane),  //
                       one(tile, k, 1, m, lane), one(tile, k, 1, m + 8, lane));
    }
    template <class Tile>
    __device__ static Right right(const Tile& tile, int k, int n, int lane = MmaLane::lane()) {
        return operand(one(tile, k, 0, n, lane), one(tile, k, 1, n, lane),  //
                       one(tile, k, 0, n + 8, lane), one(tile, k, 1, n + 8, lane));
    }
    template <class Tile>
    __device__ static Right right_transposed(const Tile& tile, int k, int n, int lane = MmaLane::lane()) {
        const Pack<float, 2> first = pair(tile, n, k, lane), second = pair(tile, n + 8, k, lane);
        return operand(first.lane[0], first.lane[1], second.lane[0], second.lane[1]);
    }
    __device__ static Left left_of(const Sum* sums) {
        const float* x = sums->value;
        return operand(x[0], x[2], x[1], x[3]);
    }
    __device__ static void multiply(Sum* sums, const Floats& a, const Floats& b) {
        Floats::multiply(sums[0].value, sums[1].value, a, b);
    }
};
template <> struct Mma<float> : MmaFloat<SplitFloats> {};

// How doubles are loaded: neighbouring columns t and t + 1 of a depth of 8 go to one lane.
struct MmaDouble : MmaLane {
    static constexpr int DEPTH = 8;
    struct Right {
        double value[4];
    };

    template <class Tile> __device__ static Pack<double, 2> pair(const Tile& tile, int row, int col, int lane) {
        Pack<double, 2> two;
        two.load(tile.chunk(row, col / 2, lane >> 2, lane & 3));
        return two;
    }
    template <class Tile> __device__ static double one(const Tile& tile, int row, int next, int col, int lane) {
        return tile.chunk(row, col / 2, (lane & 3) * 2 + next, lane >> 3)[lane >> 2 & 1];
    }
    template <class Tile>
    __device__ static Right right(const Tile& tile, int k, int n, int lane = MmaLane::lane()) {
        return {{one(tile, k, 0, n, lane), one(tile, k, 1, n, lane),  //
                 one(tile, k, 0, n + 8, lane), one(tile, k, 1, n + 8, lane)}};
    }
    template <class Tile>
    __device__ static Right right_transposed(const Tile& tile, int k, int n, int lane = MmaLane::lane()) {
        const Pack<double, 2> first = pair(tile, n, k, lane), second = pair(tile, n + 8, k, lane);
        return {{first.lane[0], first.lane[1], second.lane[0], second.lane[1]}};
    }
};

// Two instructions of depth 4: place t of the first holds column 2 t, of the second column 2 t + 1.
template <> struct Mma<double> : MmaDouble {
    static constexpr int ROWS = 8, VALUES = 2;
    struct Left {
        double value[2];
    };
    using Number = double;
    struct Sum {
        double value[2];
    };

    template <class Tile>
    __device__ static Left left(const Tile& tile, int m, int k, int lane = MmaLane::lane()) {
        const Pack<double, 2> two = pair(tile, m, k, lane);
        return {{two.lane[0], two.lane[1]}};
    }
    template <class Tile>
    __device__ static Left left_transposed(const Tile& tile, int m, int k, int lane = MmaLane::lane()) {
        return {{one(tile, k, 0, m, lane), one(tile, k, 1, m, lane)}};
    }
    __device__ static Left left_of(const Sum* sums) { return {{sums->value[0], sums->value[1]}}; }
    __device__ static void multiply(Sum* sums, const Left& a, const Right& b) {
#pragma unroll
        for (int step = 0; step < 2; ++step) {
            mma_m8n8k4_f64(sums[0].value, a.value + step, b.value + step);
            mma_m8n8k4_f64(sums[1].value, a.value + step, b.value + 2 + step);
        }
    }
};

// 16 rows at once: place t of the instruction holds column 2 t, place t + 4 column 2 t + 1.
struct MmaTallDouble : MmaDouble {
    static constexpr int ROWS = 16, VALUES = 4;
    struct Left {
        double value[4];
    };
    using Number = double;
    struct Sum {
        double value[4];
    };

    template <class Tile>
    __device__ static Left left(const Tile& tile, int m, int k, int lane = MmaLane::lane()) {
        const Pack<double, 2> top = pair(tile, m, k, lane), low = pair(tile, m + 8, k, lane);
        return {{top.lane[0], low.lane[0], top.lane[1], low.lane[1]}};
    }
    __device__ static Left left_of(const Sum* sums) {
        const double* x = sums->value;
        return {{x[0], x[2], x[1], x[3]}};
    }
    __device__ static void multiply(Sum* sums, const Left& a, const Right& b) {
        mma_m16n8k8_f64(sums[0].value, a.value, b.value);
        mma_m16n8k8_f64(sums[1].value, a.value, b.value + 2);
    }
};

// The products of a warp that has WHOLE multiples of 16 rows, or not.
template <typename T, bool WHOLE> struct MmaFor {
    using type = Mma<T>;
};
template <> struct MmaFor<double, true> {
    using type = MmaTallDouble;
};

}  // namespace baracuda
