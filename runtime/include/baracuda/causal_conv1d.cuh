// Causal convolution along time, each channel with its own taps, and perhaps the sigmoid linear unit of the result.
#pragma once

#include <baracuda/causal_conv1d_tile.cuh>

namespace baracuda {
namespace conv1d {

// What follows the last time step of a sequence: its last WIDTH - 1 values. Any thread -> a channel of a sequence.
template <typename T, class Schedule, class Variant, class Args>
__device__ void store_final_states(const Args& args) {
    constexpr int HALO = Variant::WIDTH - 1;
    const long long total = sequences<Variant>(args) * args.channels;
    const long long threads = (long long)gridDim.x * Schedule::THREADS;
    for (long long i = (long long)blockIdx.x * Schedule::THREADS + threadIdx.x; i < total; i += threads) {
        const long long index = divide(i, args.channels), c = i - index * args.channels;
        const Sequence of = sequence<Variant>(args, index);
#pragma unroll
        for (int m = 0; m < HALO; ++m) {
            const long long t = of.end - HALO + m;
            T value = T(acc_of<T>(0));
            if (t >= of.first) value = *args.x.at(Variant::HAS_CU_SEQLENS ? 0 : index, c, t);
            else if constexpr (Variant::HAS_INITIAL_STATES)
                value = *args.initial_states.at(index, c, t - of.first + HALO);
            *args.final_states.at(index, c, m) = value;
        }
    }
}

}  // namespace conv1d

// y[b, c, t] = act(bias[c] + sum over k of weight[c, k] x[b, c, t - (W - 1 - k)]).
// block -> CHANNELS channels and RUNS runs of each; group of lanes -> a run; thread -> tiles of 8 time steps, see
// Place.
// Memory sees x once (a tile's halo is its neighbour's and comes from L1), y once, whole packs in the packed layouts.
template <typename T, class Schedule, class Variant, class Args>
__device__ void causal_conv1d_main(const Args& args) {
    using namespace conv1d;
    using A = acc_of<T>;
    using P = Place<Schedule, Variant>;
    constexpr int HALO = Variant::WIDTH - 1, CH = P::CH, BATCH = P::BATCH;
    const P place(args);
    if (place.part < place.parts) {  // false only in the one block of an empty problem
        const Slice<const T> x(args.x, place);
        const Slice<T> y(args.y, place);
        Tile<T, CH, HALO, Variant> in[BATCH];
        Filter<A, Variant::WIDTH, P, Variant> filter;
        filter.load(args, place);
#pragma unroll 1
        for (int step = 0; step < P::STEPS; step += BATCH) {
#pragma unroll
            for (int i = 0; i < BATCH; ++i) in[i].fetch(x, place, place.offset(step + i));
#pragma unroll
            for (int i = 0; i < BATCH; ++i) {
                const int offset = place.offset(step + i);
                if (offset >= place.rest) break;
                Tile<T, CH, 0, Variant> out;
                in[i].finish(x, place, offset);
                int next = offset;
                do {  // once for each sequence that the tile has a part of
                    const Piece of = place.piece(args, next);
                    if (in[i].is_cut(of, offset)) in[i].load_piece(x, args, place, of, offset);
                    out.fill([&](int c, int s) {
                        if (Variant::HAS_CU_SEQLENS && offset + s < next) return A(out.get(c, s));
                        const A sum = filter.at(in[i], c, s);
                        return Variant::SILU ? silu(sum) : sum;
                    });
                    next = max(next + 1, of.end);
                } while (Variant::HAS_CU_SEQLENS && next < min(offset + TIME, place.rest));
                out.store(y, place, offset);
            }
        }
    }
    if constexpr (Variant::HAS_FINAL_STATES) store_final_states<T, Schedule, Variant>(args);
}

}  // namespace baracuda
