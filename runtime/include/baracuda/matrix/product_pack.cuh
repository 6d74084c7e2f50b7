// Copies a factor that TMA cannot address into the workspace, whose rows begin at multiples of 16 bytes. Its inner axis
// is the depth, or its side (PACK_SIDE).
//
// warp -> 512 bytes of a row at a time, through its own part of shared memory: both loads and stores are whole
// lines
#pragma once

#include <baracuda/warp.cuh>

namespace baracuda {

template <class Program> __device__ constexpr int blocks_per_sm() { return 1; }

// The factor that is copied.
template <class Program> __device__ __forceinline__ auto copied_factor(const typename Program::Args& args) {
    using Of = Factors<Program>;
    if constexpr (BARACUDA_PACK == 1) return (args.*Of::LEFT_ARRAY).data;
    else if constexpr (BARACUDA_PACK == 3) return (args.*Of::SECOND_ARRAY).data;
    else return (args.*Of::RIGHT_ARRAY).data;
}

template <class Program> __device__ __forceinline__ void walk(const typename Program::Args& args) {
    using Of = Factors<Program>;
    constexpr bool LEFT = BARACUDA_PACK == 1;
    using T = FactorOf<Program, LEFT>;
    constexpr int WARPS = Schedule::THREADS / WARP, VEC = 16 / int(sizeof(T)), RUN = WARP * VEC;
    __shared__ uint4 shared[WARPS][WARP];
    T* const own = reinterpret_cast<T*>(shared[threadIdx.x / WARP]);
    T* to = nullptr;
    args.parts.each([&](auto* memory) { to = reinterpret_cast<T*>(memory); }, args.parts);
    const T* const from = copied_factor<Program>(args);
    constexpr int RIGHT = BARACUDA_PACK == 3 ? Of::Second::OPERAND : Of::Right::OPERAND;
    const long long* const stride = args.stride[LEFT ? Of::Left::OPERAND : RIGHT];
    constexpr int OUTER = BARACUDA_PACK_SIDE ? 2 : 1, INNER = BARACUDA_PACK_SIDE ? 1 : 2;
    const long long side = LEFT ? args.rows : args.columns;
    const long long outer = BARACUDA_PACK_SIDE ? args.depth : side, inner = BARACUDA_PACK_SIDE ? side : args.depth;
    const long long pitch = (inner + VEC - 1) / VEC * VEC, matrices = stride[0] ? args.batch : 1;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const long long warps = (long long)gridDim.x * WARPS;
    for (long long row = (long long)blockIdx.x * WARPS + warp; row < matrices * outer; row += warps) {
        const long long matrix = row / outer;
        const T* const source = from + matrix * stride[0] + (row - matrix * outer) * stride[OUTER];
        for (long long first = 0; first < pitch; first += RUN) {
#pragma unroll
            for (int i = 0; i < VEC; ++i) {
                const long long place = first + lane + i * WARP;
                own[lane + i * WARP] = place < inner ? source[place * stride[INNER]] : T{};
            }
            __syncwarp();
            Pack<T, VEC> pack;
            pack.load(own + lane * VEC);
            if (first + lane * VEC < pitch) pack.store(to + row * pitch + first + lane * VEC);
            __syncwarp();
        }
    }
}

}  // namespace baracuda
