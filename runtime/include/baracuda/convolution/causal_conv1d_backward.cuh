// The gradients of a causal convolution along time. With g = dy act'(pre), pre being computed again:
//   dx[t] = sum over d of weight[W - 1 - d] g[t + d], as far as the sequence goes, plus what its final state sends back
//   dweight[k] = sum of g[t] x[t - (W - 1 - k)], dbias = sum of g: a partial sum for each block, which `fold` adds
#pragma once

#include <baracuda/convolution/ring.cuh>
#include <baracuda/convolution/sums.cuh>

namespace baracuda {
namespace conv1d {

// Recomputes g at the steps of a tile whose convolution is far from zero; g is zero where there are no steps.
template <typename T, class Variant, int CH, int STEPS, typename A, class P, class Args>
__device__ void correct_far(A (&g)[CH][STEPS], const P& place, const Args& args, int offset) {
#pragma unroll 1
    for (int i = 0; i < CH * STEPS; ++i) {
        const int from_channel = i / STEPS, from_offset = i % STEPS;
        const bool exists = from_channel < place.live && offset + from_offset < place.rest;
        const long long channel = place.channel + from_channel, t = place.start + offset + from_offset;
        A recomputed = 0;
        if (exists) {
            const Far<A> far(Variant(), args, place, channel, t);
            if (!far.is) continue;
            recomputed = A(*args.dy.at(place.batch, channel, t)) * silu_slope(far.p);
        }
#pragma unroll
        for (int c = 0; c < CH; ++c)
#pragma unroll
            for (int s = 0; s < STEPS; ++s)
                if (i == c * STEPS + s) g[c][s] = recomputed;
    }
}

// The steps of a tile at an offset that belong to one sequence: those before its end, from `next` on.
template <class Variant> struct TilePart {
    const int &offset, &next;
    const Piece& of;

    __device__ bool has(int s) const { return !Variant::HAS_CU_SEQLENS || (offset + s >= next && offset + s < of.end); }
};

// A thread's gradients: what they are computed from, and the sums that they are added to.
template <typename T, class Variant, class P, class F, class S, class Args> struct Gradients {
    using A = acc_of<T>;
    static constexpr int WIDTH = Variant::WIDTH, HALO = WIDTH - 1, CH = P::CH, TIME = P::TIME;
    using Input = Tile<T, P, HALO, Variant>;
    using Output = Tile<T, P, 0, Variant>;
    using Part = TilePart<Variant>;

    const F& filter;
    S& sums;
    const Args& args;
    const Slice<const T>&x, &dy;

    // g at the first STEPS steps of the tile at an offset, zero beyond the end. With ADD the sums and dx are added to:
    // dx by what comes from final states. `reach[s]` is how many of the steps s, s + 1, ... belong to the sequence of
    // step s.
    template <int STEPS, bool ADD>
    __device__ void of_tile(A (&g)[CH][STEPS], A (&dx)[CH][TIME], int (&reach)[TIME], Input& in, Output& out,
                            const P& place, int offset) const {
#pragma unroll
        for (int c = 0; c < CH; ++c)
#pragma unroll
            for (int s = 0; s < STEPS; ++s) g[c][s] = 0;
#pragma unroll
        for (int s = 0; s < TIME; ++s) reach[s] = 1;
        if (!P::WHOLE && offset >= place.rest) return;
        in.finish(x, place, offset);
        out.finish(dy, place, offset);
        int next = offset;
        do {  // once for each sequence that the tile has a part of
            const Piece of = place.piece(args, next);
            const Part part = {offset, next, of};
            if (in.is_cut(part.of, offset)) in.load_piece(x, args, place, part.of, offset);
            const A farthest = of_part(g, part, in, out);
            if (Variant::SILU && is_far(farthest)) correct_far<T, Variant>(g, place, args, offset);
            if (ADD) {
                add_to_sums(g, part, in);
                limit_reach(reach, part);
                take_final_states(dx, part, place);
            }
            next = max(next + 1, part.of.end);
        } while (Variant::HAS_CU_SEQLENS && next < min(offset + STEPS, place.rest));
    }

private:
    // g = dy act'(pre) near zero; returns how far the farthest pre is.
    template <int STEPS>
    __device__ A of_part(A (&g)[CH][STEPS], const Part& part, Input& in, Output& out) const {
        A farthest = 0;
#pragma unroll
        for (int c = 0; c < CH; ++c)
#pragma unroll
            for (int s = 0; s < STEPS; ++s) {
                if (!part.has(s)) continue;
                g[c][s] = A(out.get(c, s));
                if (!Variant::SILU) continue;
                const A t = filter.at(in, c, s);
                farthest = max(farthest, math::abs(t));
                g[c][s] = times_near_slope(g[c][s], t);
            }
        return farthest;
    }
    template <int STEPS> __device__ void add_to_sums(const A (&g)[CH][STEPS], const Part& part, Input& in) const {
#pragma unroll
        for (int c = 0; c < CH; ++c)
#pragma unroll
            for (int s = 0; s < STEPS; ++s)
                if (part.has(s)) sums.add(in, c, s, g[c][s]);
    }
    __device__ void limit_reach(int (&reach)[TIME], const Part& part) const {
        if (Variant::HAS_CU_SEQLENS) {
#pragma unroll
            for (int s = 0; s < TIME; ++s)
                if (part.offset + s >= part.next) reach[s] = max(1, min(part.of.end - part.offset - s, WIDTH));
        }
    }
    // dx of the last steps of a sequence, which its final state holds.
    __device__ void take_final_states(A (&dx)[CH][TIME], const Part& part, const P& place) const {
        if constexpr (Variant::HAS_DFINAL_STATES) {
            if (part.offset + TIME > part.of.end - HALO) {
#pragma unroll
                for (int s = 0; s < TIME; ++s) {
                    const int column = part.offset + s - (part.of.end - HALO);
                    if (part.offset + s < part.next || column < 0 || column >= HALO) continue;
#pragma unroll
                    for (int c = 0; c < CH; ++c)
                        if (c < place.live)
                            dx[c][s] = A(*args.dfinal_states.at(part.of.index, place.channel + c, column));
                }
            }
        }
    }
};

// What initial states get: from the first WIDTH - 1 steps, and through a sequence that is shorter than that from its
// final state. Any thread -> a channel of a sequence.
template <typename T, class Schedule, class Variant, class Args>
__device__ void store_dinitial_states(const Args& args) {
    using A = acc_of<T>;
    constexpr int WIDTH = Variant::WIDTH, HALO = WIDTH - 1;
    const long long total = sequences<Variant>(args) * args.channels;
    const long long threads = (long long)gridDim.x * Schedule::THREADS;
    for (long long i = (long long)blockIdx.x * Schedule::THREADS + threadIdx.x; i < total; i += threads) {
        const long long index = divide(i, args.channels), c = i - index * args.channels;
        const Sequence of = sequence<Variant>(args, index);
        const long long length = of.end - of.first;
        A tap[WIDTH], bias = 0, sum[WIDTH];
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) tap[k] = A(*args.weight.at(c, k));
        if constexpr (Variant::HAS_BIAS) bias = A(*args.bias.at(c));
#pragma unroll
        for (int m = 0; m < HALO; ++m) {
            sum[m] = 0;
            if constexpr (Variant::HAS_DFINAL_STATES)
                if (m >= length) sum[m] = A(*args.dfinal_states.at(index, c, m - length));
        }
#pragma unroll
        for (int s = 0; s < HALO; ++s) {
            if (s >= length) break;
            A pre = bias;
            if (Variant::SILU) {
#pragma unroll
                for (int k = 0; k < WIDTH; ++k)
                    pre = math::fma(tap[k], input_at<A, Variant>(args, of, c, of.first + s + k - HALO), pre);
            }
            A g = A(*args.dy.at(Variant::HAS_CU_SEQLENS ? 0 : index, c, of.first + s));
            if (Variant::SILU) g *= silu_slope(pre);
#pragma unroll
            for (int m = s; m < HALO; ++m) sum[m] = math::fma(tap[m - s], g, sum[m]);
        }
#pragma unroll
        for (int m = 0; m < HALO; ++m) *args.dinitial_states.at(index, c, m) = T(sum[m]);
    }
}

// Computes a tile that has arrived: its g, then dx and the sums. `next_g` are the g at the steps after it, and then
// those at its first steps. In rows, lanes exchange them by shuffles.
template <typename T, class Variant, class P, class F, class S, class Args>
__device__ void backward_tile(const Gradients<T, Variant, P, F, S, Args>& gradients, const Slice<T>& dx,
                              Tile<T, P, Variant::WIDTH - 1, Variant>& in, Tile<T, P, 0, Variant>& out,
                              acc_of<T> (&next_g)[P::CH][Variant::WIDTH - 1], const P& place, int offset) {
    using A = acc_of<T>;
    constexpr int WIDTH = Variant::WIDTH, HALO = WIDTH - 1, CH = P::CH, TIME = P::TIME;
    A g[CH][TIME], sum[CH][TIME] = {}, tap[CH][WIDTH];
    int reach[TIME];
    gradients.template of_tile<TIME, true>(g, sum, reach, in, out, place, offset);
    A after[CH][HALO];  // g at the steps after the tile
#pragma unroll
    for (int c = 0; c < CH; ++c)
#pragma unroll
        for (int s = 0; s < HALO; ++s) {
            after[c][s] = next_g[c][s];
            if (!P::COLUMNS)  // of the next lane; the last one's next is lane 0 of the tiles before
                after[c][s] = __shfl_sync(ALL_LANES, place.lane == 0 ? next_g[c][s] : g[c][s],
                                          (place.lane + 1) % P::LANES, P::LANES);
            next_g[c][s] = g[c][s];
        }
    gradients.filter.read_taps(tap);
    out.fill([&](int c, int s) {
        A total = sum[c][s];
#pragma unroll
        for (int d = 0; d < WIDTH; ++d)
            if (!Variant::HAS_CU_SEQLENS || d < reach[s])
                total = math::fma(tap[c][WIDTH - 1 - d], s + d < TIME ? g[c][s + d] : after[c][s + d - TIME], total);
        return total;
    });
    out.store(dx, place, offset);
}

// The tiles of a thread from the last to the first, so that each g is computed once and passed to the tile before.
// BATCH - 1 others are prefetched meanwhile.
template <typename T, class Variant, class P, class F, class S, class RingX, class RingDy, class Args, typename A>
__device__ void backward_run(const P& place, const F& filter, S& sums, A (&next_g)[P::CH][Variant::WIDTH - 1],
                             RingX& memory_x, RingDy& memory_dy, const Args& args) {
    constexpr int BATCH = P::BATCH;
    constexpr int NEEDED = P::COLUMNS ? 2 : 1;  // tiles that must have arrived; in columns the one before, too
    static_assert(BATCH > NEEDED, "a tile is in flight");
    const Slice<const T> x(args.x, place), dy(args.dy, place);
    const Slice<T> dx(args.dx, place);
    const Gradients<T, Variant, P, F, S, Args> gradients = {filter, sums, args, x, dy};
    using Input = Tile<T, P, Variant::WIDTH - 1, Variant>;
    using Output = Tile<T, P, 0, Variant>;
    Input in;
    Output out;
    Ring<Input, T, P> ring_x = {memory_x, x, place};
    Ring<Output, T, P> ring_dy = {memory_dy, dy, place};
    const auto fetch = [&](int slot, int step) {
        if (step >= 0) ring_x.fetch(slot, place.offset(step)), ring_dy.fetch(slot, place.offset(step));
        cp_async_commit_group();
    };
    for (int i = 0; i < BATCH - 1; ++i) fetch(i, place.steps - 1 - i);
    int slot = 0;
#pragma unroll 1
    for (int step = place.steps - 1; step >= 0; --step) {
        const int offset = place.offset(step), next = slot == BATCH - 1 ? 0 : slot + 1;
        cp_async_wait_group<BATCH - 1 - NEEDED>();
        ring_x.read(in, slot, offset);
        ring_dy.read(out, slot, offset);
        if (P::COLUMNS && P::WHOLE && step > 0) ring_x.read_halo(in, next);
        else if (P::COLUMNS) in.fetch_before(x, place, offset);
        fetch(slot == 0 ? BATCH - 1 : slot - 1, step - (BATCH - 1));
        backward_tile(gradients, dx, in, out, next_g, place, offset);
        slot = next;
    }
}

// g at the steps after a run, the same ones for each lane of a row.
template <typename T, class Variant, class P, class F, class S, class Args, typename A>
__device__ void gradients_after_run(A (&next_g)[P::CH][Variant::WIDTH - 1], const P& place, const F& filter, S& sums,
                                    const Args& args) {
    const Slice<const T> x(args.x, place), dy(args.dy, place);
    Tile<T, P, Variant::WIDTH - 1, Variant> in;
    Tile<T, P, 0, Variant> out;
    A none[P::CH][P::TIME];
    int whole[P::TIME];
    in.fetch(x, place, P::RUN);
    out.fetch(dy, place, P::RUN);
    const Gradients<T, Variant, P, F, S, Args> gradients = {filter, sums, args, x, dy};
    gradients.template of_tile<Variant::WIDTH - 1, false>(next_g, none, whole, in, out, place, P::RUN);
}

}  // namespace conv1d

// block -> CHANNELS channels and RUNS runs of each; group of lanes -> a run; thread -> tiles of TIME steps, see Place.
// Only the g of the steps after a run are computed by two groups.
// Memory traffic: x and dy once (halos come from L1), dx once, and W partial sums, or W + 1 with dbias, for each block
// and channel.
template <typename T, class Schedule, class Variant, class Args>
__device__ void causal_conv1d_backward_main(const Args& args) {
    using namespace conv1d;
    using A = acc_of<T>;
    using P = Place<Schedule, Variant>;
    const P place(args);
    if (place.part < place.parts) {  // false only in the one block of an empty problem
        Filter<A, Variant::WIDTH, P, Variant> filter;
        filter.load(args, place);
        Sums<A, P::CH, Variant> sums = {};
        A next_g[P::CH][Variant::WIDTH - 1];
        gradients_after_run<T, Variant>(next_g, place, filter, sums, args);
        __shared__ typename Ring<Tile<T, P, Variant::WIDTH - 1, Variant>, T, P>::Memory ring_x;
        __shared__ typename Ring<Tile<T, P, 0, Variant>, T, P>::Memory ring_dy;
        // The lanes of a row shuffle together.
        if (P::COLUMNS ? place.is_whole() : __all_sync(ALL_LANES, place.is_whole()))
            backward_run<T, Variant>(WholePlace<P>(place), filter, sums, next_g, ring_x, ring_dy, args);
        else backward_run<T, Variant>(place, filter, sums, next_g, ring_x, ring_dy, args);
        store_partials<P, Variant>(sums, place, args);
    }
    if constexpr (Variant::HAS_DINITIAL_STATES) store_dinitial_states<T, Schedule, Variant>(args);
}

// dweight and dbias from the partial sums [parts, COLUMNS, C]; no parts give zeros. block -> THREADS / SLICES sums;
// thread -> every SLICES-th part of one, with compensated summation. Memory traffic: the partial sums once.
template <typename T, class Schedule, class Variant, class Args>
__device__ void causal_conv1d_backward_fold(const Args& args) {
    using namespace conv1d;
    using A = acc_of<T>;
    using P = Place<Schedule, Variant>;
    constexpr int COLUMNS = Variant::WIDTH + (Variant::HAS_DB ? 1 : 0), SLICES = Schedule::SLICES,
                  WIDE = Schedule::THREADS / SLICES;
    const long long pitch = COLUMNS * args.channels, column = (long long)blockIdx.x * WIDE + threadIdx.x % WIDE;
    const long long parts = ceil_div(args.batch_size * ceil_div(args.seq_len, P::RUN), P::RUNS);
    A sum = 0, lost = 0, plain = 0;
    if (column < pitch) {
#pragma unroll 8
        for (long long p = threadIdx.x / WIDE; p < parts; p += SLICES) {
            const A next = args.partials[p * pitch + column], part = next - lost, more = sum + part;
            lost = (more - sum) - part;
            sum = more;
            plain += next;
        }
        if (math::isnan(sum)) sum = plain;  // which is infinite where only the correction is not a number
    }
    __shared__ A of_slice[SLICES][WIDE];
    of_slice[threadIdx.x / WIDE][threadIdx.x % WIDE] = sum;
    __syncthreads();
    if (threadIdx.x >= WIDE || column >= pitch) return;
    for (int slice = 1; slice < SLICES; ++slice) sum += of_slice[slice][threadIdx.x];
    const long long k = divide(column, args.channels), channel = column - k * args.channels;
    if (k < Variant::WIDTH) put(args.dw.at(channel, k), sum);
    if constexpr (Variant::HAS_DB)
        if (k == Variant::WIDTH) put(args.db.at(channel), sum);
}

}  // namespace baracuda
