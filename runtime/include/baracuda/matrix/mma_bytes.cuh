// A warp's products of factors of 8 bits, floats or whole numbers, whose depth is contiguous in tiles of shared memory.
#pragma once

#include <baracuda/float8.cuh>
#include <baracuda/matrix/mma_tile.cuh>

namespace baracuda {

// Bytes 0 and 2 of a word, or with ODD 1 and 3, as halves that are 2^-SHIFT of them, which is exact.
template <typename T> struct BytesAsHalves;
template <> struct BytesAsHalves<f8e5m2> {  // the upper byte of a half
    static constexpr int SHIFT = 0;
    template <bool ODD> __device__ static unsigned pair(unsigned word) {
        return (ODD ? word : word << 8) & 0xff00ff00u;
    }
};
template <> struct BytesAsHalves<f8e4m3> {  // an exponent has a bit less and its bias is smaller by 8
    static constexpr int SHIFT = 8;
    template <bool ODD> __device__ static unsigned pair(unsigned word) {
        const unsigned both = ODD ? word : word << 8, magnitude = both & 0x7f007f00u;
        const unsigned nan = (magnitude + 0x01000100u) & 0x80008000u;
        return (both & 0x80008000u) | magnitude >> 1 | (nan - (nan >> 5));
    }
};

// Sum[16, 8] += Left[16, 32] Right[32, 8] of fragments of bytes. Floats are multiplied as halves, 16 of the depth at a
// time: bytes 0 and 2 of all words, then 1 and 3.
template <typename L, typename R> struct ByteProducts {
    using Number = float;
    static constexpr float SCALE = float(1 << (BytesAsHalves<L>::SHIFT + BytesAsHalves<R>::SHIFT));
    struct Left {
        unsigned even[4], odd[4];
    };
    __device__ static Left left_of(const unsigned (&word)[4]) {
        Left a;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            a.even[i] = BytesAsHalves<L>::template pair<false>(word[i]);
            a.odd[i] = BytesAsHalves<L>::template pair<true>(word[i]);
        }
        return a;
    }
    struct Right {
        unsigned even[4], odd[4];
    };
    __device__ static Right right_of(const unsigned (&word)[4]) {
        Right b;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            b.even[i] = BytesAsHalves<R>::template pair<false>(word[i]);
            b.odd[i] = BytesAsHalves<R>::template pair<true>(word[i]);
        }
        return b;
    }
    __device__ static void add(float* sum, const Left& a, const Right& b, int half) {
        mma_m16n8k16_f16(sum, a.even, b.even + 2 * half);
        mma_m16n8k16_f16(sum, a.odd, b.odd + 2 * half);
    }
    __device__ static float unscaled(float sum) { return sum * SCALE; }
};
#define BARACUDA_BYTE_PRODUCTS(L, R, name)                                                                           \
    template <> struct ByteProducts<L, R> {                                                                          \
        using Number = int;                                                                                          \
        struct Left {                                                                                                \
            unsigned word[4];                                                                                        \
        };                                                                                                           \
        using Right = Left;                                                                                          \
        __device__ static Left left_of(const unsigned (&word)[4]) { return {{word[0], word[1], word[2], word[3]}}; } \
        __device__ static Right right_of(const unsigned (&word)[4]) { return left_of(word); }                        \
        __device__ static void add(int* sum, const Left& a, const Right& b, int half) {                              \
            name(sum, a.word, b.word + 2 * half);                                                                    \
        }                                                                                                            \
        __device__ static int unscaled(int sum) { return sum; }                                                      \
    };
BARACUDA_BYTE_PRODUCTS(signed char, signed char, mma_m16n8k32_s8)
BARACUDA_BYTE_PRODUCTS(unsigned char, unsigned char, mma_m16n8k32_u8)
BARACUDA_BYTE_PRODUCTS(signed char, unsigned char, mma_m16n8k32_s8_u8)
BARACUDA_BYTE_PRODUCTS(unsigned char, signed char, mma_m16n8k32_u8_s8)
#undef BARACUDA_BYTE_PRODUCTS

// As Mma, of factors whose types may differ. The sums of a depth are `unscaled` once, at the end.
template <typename L, typename R> struct MmaBytes : MmaLane {
    static constexpr int ROWS = 16, DEPTH = 32, VALUES = 4;
    using Products = ByteProducts<L, R>;
    using Number = typename Products::Number;
    using Left = typename Products::Left;
    using Right = typename Products::Right;
    struct Sum {
        Number value[4];
    };

    template <class Tile>
    __device__ static Left left(const Tile& tile, int m, int k, int lane = MmaLane::lane()) {
        unsigned word[4];
        ldmatrix_x4(word, tile.chunk(m, k / 16, lane & 15, lane >> 4));
        return Products::left_of(word);
    }
    template <class Tile>
    __device__ static Right right_transposed(const Tile& tile, int k, int n, int lane = MmaLane::lane()) {
        unsigned word[4];
        ldmatrix_x4(word, tile.chunk(n, k / 16, (lane & 7) + (lane >> 4) * 8, lane >> 3 & 1));
        return Products::right_of(word);
    }
    __device__ static void multiply(Sum* sums, const Left& a, const Right& b) {
        Products::add(sums[0].value, a, b, 0);
        Products::add(sums[1].value, a, b, 1);
    }
    __device__ static Number unscaled(Number sum) { return Products::unscaled(sum); }
};

}  // namespace baracuda
