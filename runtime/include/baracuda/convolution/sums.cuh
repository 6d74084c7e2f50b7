// Sums over time that a backward convolution takes for the gradients of its taps and bias.
#pragma once

#include <baracuda/convolution/tile.cuh>

namespace baracuda {
namespace conv1d {

// What one thread adds to the gradients of its channels' taps and bias: at most STEPS * TIME terms each.
template <typename A, int CH, class Variant> struct Sums {
    static constexpr int COLUMNS = Variant::WIDTH + (Variant::HAS_DB ? 1 : 0);
    A of[CH][COLUMNS];

    template <class Tile> __device__ void add(Tile& x, int c, int s, A g) {
#pragma unroll
        for (int k = 0; k < Variant::WIDTH; ++k)
            of[c][k] = math::fma(A(x.get(c, s + k - (Variant::WIDTH - 1))), g, of[c][k]);
        if (Variant::HAS_DB) of[c][COLUMNS - 1] += g;
    }
};

// The block's partial sums: lanes, then groups of lanes, each in a fixed order.
template <class P, class Variant, typename A, class Args>
__device__ void store_partials(Sums<A, P::CH, Variant>& sums, const P& place, const Args& args) {
    constexpr int COLUMNS = Sums<A, P::CH, Variant>::COLUMNS, CHANNELS = P::CHANNELS;
    const int group = threadIdx.x / P::LANES;
    A* const partials = args.partials + place.part * COLUMNS * args.channels;
    if (P::COLUMNS) {
        __shared__ Pack<A, P::CH> of_run[P::RUNS][P::LANES];
#pragma unroll
        for (int k = 0; k < COLUMNS; ++k) {
            Pack<A, P::CH> mine;
#pragma unroll
            for (int c = 0; c < P::CH; ++c) mine.lane[c] = sums.of[c][k];
            __syncthreads();  // the sums before have been read
            of_run[group][place.lane] = mine;
            __syncthreads();
            for (int i = threadIdx.x; i < CHANNELS; i += P::THREADS) {
                const long long channel = place.channel - place.lane * P::CH + i;
                if (channel >= args.channels) continue;
                A sum = of_run[0][i / P::CH].lane[i % P::CH];
                for (int run = 1; run < P::RUNS; ++run) sum += of_run[run][i / P::CH].lane[i % P::CH];
                partials[k * args.channels + channel] = sum;
            }
        }
    } else {
        __shared__ A of_group[P::THREADS / P::LANES][COLUMNS];
#pragma unroll
        for (int k = 0; k < COLUMNS; ++k) {
            A sum = sums.of[0][k];
#pragma unroll
            for (int step = P::LANES / 2; step > 0; step /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, step);
            if (place.lane == 0) of_group[group][k] = sum;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < CHANNELS * COLUMNS; i += P::THREADS) {
            const int c = i % CHANNELS, k = i / CHANNELS;
            const long long channel = place.channel - group / P::RUNS + c;
            if (channel >= args.channels) continue;
            A sum = of_group[c * P::RUNS][k];
            for (int run = 1; run < P::RUNS; ++run) sum += of_group[c * P::RUNS + run][k];
            partials[k * args.channels + channel] = sum;
        }
    }
}

}  // namespace conv1d
}  // namespace baracuda
