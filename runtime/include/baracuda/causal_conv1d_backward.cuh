// The gradients of a causal convolution along time. With g = dy act'(pre), pre being computed again:
//   dx[t] = sum over d of weight[W - 1 - d] g[t + d], as far as the sequence goes, plus what its final state sends back
//   dweight[k] = sum of g[t] x[t - (W - 1 - k)], dbias = sum of g: a partial sum for each block, which `fold` adds
#pragma once

#include <baracuda/causal_conv1d_tile.cuh>

namespace baracuda {
namespace conv1d {

// g at a step where the convolution is `pre`.
template <class Variant, typename A> __device__ A gradient(A dy, A pre) {
    return Variant::SILU ? dy * silu_slope(pre) : dy;
}

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

// g at the first STEPS steps of the tile at an offset, zero beyond the end. With ADD the sums and dx are added to: dx
// by what comes from final states. `reach[s]` is how many of the steps s, s + 1, ... belong to the sequence of step s.
template <int STEPS, bool ADD, typename T, typename A, class P, class F, class S, class Args, class Variant>
__device__ void gradients(A (&g)[P::CH][STEPS], A (&dx)[P::CH][TIME], int (&reach)[TIME], S& sums, const F& filter,
                          Tile<T, P::CH, Variant::WIDTH - 1, Variant>& x, Tile<T, P::CH, 0, Variant>& dy,
                          const Slice<const T>& from, const Slice<const T>& from_dy, const P& place, const Args& args,
                          int offset, Variant) {
    constexpr int HALO = Variant::WIDTH - 1;
#pragma unroll
    for (int c = 0; c < P::CH; ++c)
#pragma unroll
        for (int s = 0; s < STEPS; ++s) g[c][s] = 0;
#pragma unroll
    for (int s = 0; s < TIME; ++s) reach[s] = 1;
    if (offset >= place.rest) return;
    x.finish(from, place, offset);
    dy.finish(from_dy, place, offset);
    int next = offset;
    do {  // once for each sequence that the tile has a part of
        const Piece of = place.piece(args, next);
        if (x.is_cut(of, offset)) x.load_piece(from, args, place, of, offset);
#pragma unroll
        for (int c = 0; c < P::CH; ++c)
#pragma unroll
            for (int s = 0; s < STEPS; ++s) {
                if (Variant::HAS_CU_SEQLENS && (offset + s < next || offset + s >= of.end)) continue;
                g[c][s] = gradient<Variant>(A(dy.get(c, s)), Variant::SILU ? filter.at(x, c, s) : A(0));
                if (ADD) sums.add(x, c, s, g[c][s]);
            }
        if (ADD && Variant::HAS_CU_SEQLENS) {
#pragma unroll
            for (int s = 0; s < TIME; ++s)
                if (offset + s >= next) reach[s] = max(1, min(of.end - offset - s, Variant::WIDTH));
        }
        if constexpr (ADD && Variant::HAS_DFINAL_STATES) {
            if (offset + TIME > of.end - HALO) {
#pragma unroll
                for (int s = 0; s < TIME; ++s) {
                    const int column = offset + s - (of.end - HALO);
                    if (offset + s < next || column < 0 || column >= HALO) continue;
#pragma unroll
                    for (int c = 0; c < P::CH; ++c)
                        if (c < place.live) dx[c][s] = A(*args.dfinal_states.at(of.index, place.channel + c, column));
                }
            }
        }
        next = max(next + 1, of.end);
    } while (Variant::HAS_CU_SEQLENS && next < min(offset + STEPS, place.rest));
}

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
                    pre = math::fma(tap[k], seen<A, Variant>(args, of, c, of.first + s + k - HALO), pre);
            }
            const A g = gradient<Variant>(A(*args.dy.at(Variant::HAS_CU_SEQLENS ? 0 : index, c, of.first + s)), pre);
#pragma unroll
            for (int m = s; m < HALO; ++m) sum[m] = math::fma(tap[m - s], g, sum[m]);
        }
#pragma unroll
        for (int m = 0; m < HALO; ++m) *args.dinitial_states.at(index, c, m) = T(sum[m]);
    }
}

}  // namespace conv1d

// block -> CHANNELS channels and RUNS runs of each; group of lanes -> a run; thread -> tiles of 8 time steps, see
// Place. A run is walked from its end to its beginning, so that each g is computed once and handed to the tile before:
// along the lanes by shuffles, from a thread's tile to its next one in registers. Only the steps after a run are
// computed by two groups.
// Memory sees x and dy once (halos come from L1), dx once, and (W + 1) partial sums for each block and channel.
template <typename T, class Schedule, class Variant, class Args>
__device__ void causal_conv1d_backward_main(const Args& args) {
    using namespace conv1d;
    using A = acc_of<T>;
    using P = Place<Schedule, Variant>;
    constexpr int WIDTH = Variant::WIDTH, HALO = WIDTH - 1, CH = P::CH, BATCH = P::BATCH;
    const P place(args);
    if (place.part < place.parts) {  // false only in the one block of an empty problem
        const Slice<const T> x(args.x, place), dy(args.dy, place);
        const Slice<T> dx(args.dx, place);
        // Rows ask for a batch while they work on the one before; columns have no registers for that.
        constexpr bool EARLY = !P::COLUMNS;
        using Input = Tile<T, CH, HALO, Variant>;
        using Output = Tile<T, CH, 0, Variant>;
        Input in[BATCH], later_in[BATCH];
        Output out[BATCH], later_out[BATCH];
        const auto fetch = [&](Input& of_x, Output& of_dy, int step) {
            of_x.fetch(x, place, place.offset(step));
            of_dy.fetch(dy, place, place.offset(step));
        };
#pragma unroll
        for (int i = BATCH - 1; EARLY && i >= 0; --i) fetch(later_in[i], later_out[i], place.steps - BATCH + i);
        Filter<A, WIDTH, P, Variant> filter;
        filter.load(args, place);
        Sums<A, CH, Variant> sums = {};
        A ahead[CH][HALO];  // g at the steps after the tile of the last lane
        {
            Input in;
            Output out;
            A none[CH][TIME];
            int whole[TIME];
            in.fetch(x, place, P::RUN);  // the same one for each lane of a row
            out.fetch(dy, place, P::RUN);
            gradients<HALO, false>(ahead, none, whole, sums, filter, in, out, x, dy, place, args, P::RUN, Variant());
        }
#pragma unroll 1
        for (int step = place.steps - BATCH; step >= 0; step -= BATCH) {
#pragma unroll
            for (int i = BATCH - 1; i >= 0; --i) {
                if (!EARLY) {
                    fetch(in[i], out[i], step + i);
                } else {
                    in[i] = later_in[i], out[i] = later_out[i];
                    if (step > 0) fetch(later_in[i], later_out[i], step - BATCH + i);
                }
            }
#pragma unroll
            for (int i = BATCH - 1; i >= 0; --i) {
                const int offset = place.offset(step + i);
                A g[CH][TIME], sum[CH][TIME] = {};
                int reach[TIME];
                gradients<TIME, true>(g, sum, reach, sums, filter, in[i], out[i], x, dy, place, args, offset,
                                      Variant());
                A after[CH][HALO];  // g at the steps after the tile
#pragma unroll
                for (int c = 0; c < CH; ++c)
#pragma unroll
                    for (int s = 0; s < HALO; ++s) {
                        after[c][s] = ahead[c][s];
                        if (!P::COLUMNS)  // of the next lane; the last one's next is lane 0 of the tiles before
                            after[c][s] = __shfl_sync(ALL_LANES, place.lane == 0 ? ahead[c][s] : g[c][s],
                                                      (place.lane + 1) % P::LANES, P::LANES);
                        ahead[c][s] = g[c][s];
                    }
                out[i].fill([&](int c, int s) {
                    A total = sum[c][s];
#pragma unroll
                    for (int d = 0; d < WIDTH; ++d)
                        if (!Variant::HAS_CU_SEQLENS || d < reach[s])
                            total = math::fma(filter.tap[c][WIDTH - 1 - d],
                                              s + d < TIME ? g[c][s + d] : after[c][s + d - TIME], total);
                    return total;
                });
                out[i].store(dx, place, offset);
            }
        }
        store_partials<P, Variant>(sums, place, args);
    }
    if constexpr (Variant::HAS_DINITIAL_STATES) store_dinitial_states<T, Schedule, Variant>(args);
}

// dweight and dbias from the partial sums [parts, W + 1, C]; no parts give zeros. block -> THREADS / SLICES sums;
// thread -> every SLICES-th part of one, with what an addition loses kept. Memory sees the partial sums once.
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
