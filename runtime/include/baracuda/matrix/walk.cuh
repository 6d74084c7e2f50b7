// Matrix products with an epilogue: the result of each cell is made of the sum of its products and of what else the
// program reads there.
//
// A program has one body, Epilogue (see body.cuh). Macros name the factors, [batch, row, depth] and
// [batch, column, depth], and the first output. Each factor is contiguous along its side (SIDE) or along the depth,
// unless they are STRIDED. With TMA, the copy engine moves factors, and a result of 16-bit elements.
#pragma once

#include <baracuda/arch/cluster_dims.cuh>
#include <baracuda/map/body.cuh>
#include <baracuda/map/reduce.cuh>
#if BARACUDA_TMA
#include <baracuda/arch/tma_sm90.cuh>
#endif

namespace baracuda {

// Set by the plan at compile time.
using Element = BARACUDA_ELEMENT;
struct Schedule {
    static constexpr int BARACUDA_SCHEDULE;
};
constexpr bool LEFT_SIDE = BARACUDA_LEFT_SIDE, RIGHT_SIDE = BARACUDA_RIGHT_SIDE, STRIDED = BARACUDA_STRIDED;

// What the arguments of a kernel begin with.
template <int OPERANDS_> struct WalkArgs {
    static constexpr int OPERANDS = OPERANDS_;
#if BARACUDA_TMA
    TensorMap left_map, right_map, result_map;
#endif
    long long batch, rows, columns, depth;
    long long stride[OPERANDS][3];  // of each operand, along batch, rows and columns; of factors, batch, side and depth
};
template <class M> using ScratchOf = M*;  // no sum is in memory

template <class Program> struct Factors {
    using Args = typename Program::Args;
    static constexpr auto LEFT_ARRAY = &Args::BARACUDA_LEFT;
    static constexpr auto RIGHT_ARRAY = &Args::BARACUDA_RIGHT;
    static constexpr auto RESULT_ARRAY = &Args::BARACUDA_RESULT;
    using Left = ArrayOf<LEFT_ARRAY>;
    using Right = ArrayOf<RIGHT_ARRAY>;
    using Result = ArrayOf<RESULT_ARRAY>;
};

// Two neighbours of the result, along its rows with DOWN and else along its columns; `live` of them exist.
template <bool DOWN> struct TwoCells {
    long long matrix, row, column;
    int live;

    template <typename T> struct Address {
        T* at;
        long long step;
        __device__ bool is_pack() const { return step == 1 && size_t(at) % (2 * sizeof(T)) == 0; }
    };
    template <typename T, class Args> __device__ Address<T> of(T* data, const Args& args, int operand) const {
        const long long* const stride = args.stride[operand];
        return {data + matrix * stride[0] + row * stride[1] + column * stride[2], stride[DOWN ? 1 : 2]};
    }
    template <typename T, class Args>
    __device__ void read(Pack<T, 2>& pack, const T* data, const Args& args, int operand) const {
        const auto from = of(data, args, operand);
        pack = {};
        if (live == 2 && from.is_pack()) return pack.load(from.at);
        if (live > 0) pack.lane[0] = *from.at;
        if (live > 1) pack.lane[1] = from.at[from.step];
    }
    template <typename T, class Args>
    __device__ void write(const Pack<T, 2>& pack, T* data, const Args& args, int operand) const {
        const auto to = of(data, args, operand);
        if (live == 2 && to.is_pack()) return pack.store(to.at);
        if (live > 0) *to.at = pack.lane[0];
        if (live > 1) to.at[to.step] = pack.lane[1];
    }
};

// The lanes of two neighbours, each with its sum.
template <class Program, class P, typename A> struct SumLanes {
    P& packs;
    const A (&sum)[2];
    template <class Compute> __device__ void each(const Compute& compute) const {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            typename Program::template Reduced<ValueOf> reduced;
            reduced.each([&](auto& value) { value = sum[i]; }, reduced);
            compute(PackLane<P>{packs, 0, i}, reduced);
        }
    }
};

// Makes two cells of their sums. HELD: the result is left to the caller; all else is stored.
template <class Program, bool HELD, bool DOWN, typename A>
__device__ __forceinline__ auto finish(const A (&sum)[2], const TwoCells<DOWN>& cells,
                                       const typename Program::Args& args) {
    using Result = typename Factors<Program>::Result;
    Packs<typename Program::Epilogue, 2, 1> packs;
    packs.reads(args, [&](auto& pack, const auto* data, int operand) { cells.read(pack[0], data, args, operand); });
    packs.compute(args, SumLanes<Program, decltype(packs), A>{packs, sum});
    packs.writes(args, [&](const auto& pack, auto* data, int operand) {
        if (!HELD || operand != Result::OPERAND) cells.write(pack[0], data, args, operand);
    });
    return packs_out<Result>(packs)[0];
}

}  // namespace baracuda

#if BARACUDA_TMA
#include <baracuda/matrix/product_sm90.cuh>
#else
#include <baracuda/matrix/product_mma.cuh>
#endif
