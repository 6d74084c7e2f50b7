// Depthwise causal convolution along time, with optional SiLU.
#pragma once

#include <baracuda/convolution/ring.cuh>

namespace baracuda {
namespace conv1d {

// The final state of a sequence: its last WIDTH - 1 values. Any thread -> a channel of a sequence.
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

// The results of a tile from step `first` on; earlier ones are kept. Returns the largest |t| among them.
template <class Variant, class F, class Input, class Output>
__device__ typename F::Acc convolve(const F& filter, Input& in, Output& out, int first) {
    using A = typename F::Acc;
    A farthest = 0;
    out.fill([&](int c, int s) {
        if (Variant::HAS_CU_SEQLENS && s < first) return A(out.get(c, s));
        const A t = filter.at(in, c, s);
        if (!Variant::SILU) return t;
        farthest = max(farthest, math::abs(t));
        return near_silu(t);
    });
    return farthest;
}

// Recomputes the results of a tile whose convolution is far from zero, see is_far.
template <typename T, class Variant, class P, class Args>
__device__ void store_far(const P& place, const Args& args, int offset) {
    const int end = min(P::TIME, place.rest - offset);
#pragma unroll 1
    for (int i = 0; i < place.live * end; ++i) {
        const long long channel = place.channel + i / end, t = place.start + offset + i % end;
        const Far<acc_of<T>> far(Variant(), args, place, channel, t);
        if (far.is) *args.y.at(place.batch, channel, t) = T(silu(far.p));
    }
}

// Computes and stores the results of a tile that has arrived.
template <typename T, class Variant, class P, class F, class Input, class Args>
__device__ void filter_tile(Input& in, const Slice<const T>& x, const Slice<T>& y, const P& place, const F& filter,
                            const Args& args, int offset) {
    Tile<T, P, 0, Variant> out;
    in.finish(x, place, offset);
    int next = offset;
    acc_of<T> farthest = 0;
    do {  // once for each sequence that the tile has a part of
        const Piece of = place.piece(args, next);
        if (in.is_cut(of, offset)) in.load_piece(x, args, place, of, offset);
        farthest = max(farthest, convolve<Variant>(filter, in, out, next - offset));
        next = max(next + 1, of.end);
    } while (Variant::HAS_CU_SEQLENS && next < min(offset + P::TIME, place.rest));
    out.store(y, place, offset);
    if (Variant::SILU && is_far(farthest)) store_far<T, Variant>(place, args, offset);
}

// The tiles of a thread; BATCH - 1 others are prefetched meanwhile.
template <typename T, class Variant, class P, class F, class Memory, class Args>
__device__ void filter_run(const P& place, const F& filter, Memory& memory, const Args& args) {
    constexpr int BATCH = P::BATCH;
    static_assert(BATCH >= 2, "a tile is in flight");
    const Slice<const T> x(args.x, place);
    const Slice<T> y(args.y, place);
    using Input = Tile<T, P, Variant::WIDTH - 1, Variant>;
    Input in;
    Ring<Input, T, P> ring = {memory, x, place};
    const auto fetch = [&](int slot, int step) {
        if (step < place.steps) ring.fetch(slot, place.offset(step));
        cp_async_commit_group();
    };
    for (int step = 0; step < BATCH - 1; ++step) fetch(step, step);
    if (P::COLUMNS) in.fetch_before(x, place, 0);
    int slot = 0;
#pragma unroll 1
    for (int step = 0; step < place.steps; ++step) {
        const int offset = place.offset(step);
        if (!P::WHOLE && offset >= place.rest) break;
        cp_async_wait_group<BATCH - 2>();
        ring.read(in, slot, offset);
        fetch(slot == 0 ? BATCH - 1 : slot - 1, step + BATCH - 1);
        filter_tile<T, Variant>(in, x, y, place, filter, args, offset);
        in.advance();
        slot = slot == BATCH - 1 ? 0 : slot + 1;
    }
}

}  // namespace conv1d

// y[b, c, t] = act(bias[c] + sum over k of weight[c, k] x[b, c, t - (W - 1 - k)]).
// block -> CHANNELS channels and RUNS runs of each; group of lanes -> a run; thread -> tiles of TIME steps, see Place.
// Memory traffic: x once (in rows a tile's halo is its neighbour's and comes from L1), y once, whole packs in the
// packed layouts.
template <typename T, class Schedule, class Variant, class Args>
__device__ void causal_conv1d_main(const Args& args) {
    using namespace conv1d;
    using P = Place<Schedule, Variant>;
    const P place(args);
    if (place.part < place.parts) {  // false only in the one block of an empty problem
        Filter<acc_of<T>, Variant::WIDTH, P, Variant> filter;
        filter.load(args, place);
        __shared__ typename Ring<Tile<T, P, Variant::WIDTH - 1, Variant>, T, P>::Memory memory;
        if (place.is_whole()) filter_run<T, Variant>(WholePlace<P>(place), filter, memory, args);
        else filter_run<T, Variant>(place, filter, memory, args);
    }
    if constexpr (Variant::HAS_FINAL_STATES) store_final_states<T, Schedule, Variant>(args);
}

}  // namespace baracuda
