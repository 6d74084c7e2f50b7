// Causal convolution along time: how threads own channels and time steps.
//
// A thread works on tiles of CH channels x TIME time steps; the HALO = WIDTH - 1 steps before a tile belong to it too
// when it is read. Threads form groups of LANES, a group works on one run of tiles, and a block has RUNS runs for each
// of CHANNELS channels:
//   rows (PACKED and any strides)   CH = 1; the lanes of a group own neighbouring tiles of one channel, STEPS times
//   columns (CHANNELS_LAST)         each lane owns CH neighbouring channels and walks over STEPS tiles of a run
#pragma once

#include <baracuda/convolution/silu.cuh>
#include <baracuda/strided.cuh>
#include <baracuda/warp.cuh>

namespace baracuda {
namespace conv1d {

__device__ inline long long ceil_div(long long a, long long b) { return (a + b - 1) / b; }

// Quotients of numbers that are not negative; 32 bits are enough but for the largest problems, and much faster.
__device__ inline long long divide(long long a, long long b) {
    return ((a | b) >> 32) == 0 ? (long long)(unsigned(a) / unsigned(b)) : a / b;
}

// One rounding, to whatever type the caller stores.
template <typename S, typename A> __device__ void put(S* to, A value) { *to = S(value); }

// The time steps [first, end) that know of each other, and which initial and final state is theirs.
struct Sequence {
    long long index, first, end;
};

// The bounds of a sequence; those that are out of order or out of range lead to no access out of bounds.
template <class Variant, class Args> __device__ Sequence sequence(const Args& args, long long index) {
    if constexpr (Variant::HAS_CU_SEQLENS) {
        const auto bound = [&](long long i) { return max(0ll, min(args.seq_len, (long long)*args.cu_seqlens.at(i))); };
        const long long first = bound(index);
        return {index, first, max(first, bound(index + 1))};
    } else {
        return {index, 0, args.seq_len};
    }
}

template <class Variant, class Args> __device__ long long sequences(const Args& args) {
    return Variant::HAS_CU_SEQLENS ? args.num_sequences : args.batch_size;
}

// The last sequence that does not begin after time step t.
template <class Args> __device__ long long sequence_at(const Args& args, long long t) {
    long long low = 0, high = args.num_sequences;
    while (high - low > 1) {
        const long long middle = (low + high) / 2;
        if (*args.cu_seqlens.at(middle) <= t) low = middle;
        else high = middle;
    }
    return low;
}

// A sequence relative to a run: time steps count from the beginning of the run, clamped to 32 bits.
struct Piece {
    long long index;
    int first, end;
};

// The channels and time steps of a thread. Groups without work have `rest` 0.
template <class Schedule, class Variant> struct Place {
    static constexpr bool COLUMNS = Variant::CHANNELS_LAST, WHOLE = false;

    static constexpr int THREADS = Schedule::THREADS, LANES = Schedule::LANES, CHANNELS = Schedule::OWNED,
                         STEPS = Schedule::STEPS, TIME = Schedule::TIME;
    static constexpr int CH = COLUMNS ? CHANNELS / LANES : 1;
    static constexpr int RUNS = COLUMNS ? THREADS / LANES : THREADS / LANES / CHANNELS;
    static constexpr int RUN = COLUMNS ? STEPS * TIME : STEPS * TIME * LANES;  // time steps
    static constexpr int BATCH = Schedule::BATCH;                              // tiles in shared memory, see Ring
    static_assert(LANES <= WARP && WARP % LANES == 0 && THREADS % WARP == 0, "a group is a part of a warp");
    static_assert(RUNS > 0 && CH > 0, "a block has at least one run of a channel, a thread at least one channel");
    static_assert(TIME >= Variant::WIDTH - 1, "a tile needs its next neighbours only");

    long long channel, batch, start, part, parts;
    int begin, rest;  // first time step and end, from the beginning of the run; what is far away may seem nearer
    int live;         // channels of the thread that exist
    int lane;
    int steps;  // tiles of each thread, of a short sequence not all STEPS

    template <class Args> __device__ explicit Place(const Args& args) {
        const long long segments = ceil_div(args.seq_len, RUN);
        const unsigned across = unsigned(max(1ll, ceil_div(args.channels, CHANNELS)));
        const int group = threadIdx.x / LANES;
        lane = threadIdx.x % LANES;
        parts = ceil_div(args.batch_size * segments, RUNS);
        part = blockIdx.x / across;
        channel = (long long)(blockIdx.x % across) * CHANNELS + (COLUMNS ? lane * CH : group / RUNS);
        const long long run = part * RUNS + (COLUMNS ? group : group % RUNS);
        batch = divide(run, max(1ll, segments));
        start = (run - batch * segments) * RUN;
        live = int(max(0ll, min((long long)CH, args.channels - channel)));
        const bool some = live > 0 && batch < args.batch_size;
        steps = int(min(ceil_div(args.seq_len, RUN / STEPS), (long long)STEPS));
        begin = start == 0 ? 0 : -TIME;
        rest = some ? int(min(args.seq_len - start, (long long)(RUN + TIME))) : 0;
    }
    // Whether a thread can move packs wherever there are enough time steps, and all of its tiles have enough.
    __device__ bool in_packs() const { return Variant::PACKED || (COLUMNS && live == CH); }
    __device__ bool is_whole() const { return in_packs() && rest >= steps * (RUN / STEPS); }
    // Where a tile begins, from the beginning of the run.
    __device__ int offset(int step) const { return (COLUMNS ? step : step * LANES + lane) * TIME; }

    // The sequence of the time step at an offset.
    template <class Args> __device__ Piece piece(const Args& args, int offset) const {
        if constexpr (Variant::HAS_CU_SEQLENS) {
            const Sequence of = sequence<Variant>(args, sequence_at(args, start + offset));
            constexpr long long FAR = 1 << 30;
            return {of.index, int(max(of.first - start, -FAR)), int(min(of.end - start, FAR))};
        } else {
            return {batch, begin, rest};
        }
    }
};

// The place of a thread whose tiles are all whole, decided at compile time.
template <class P> struct WholePlace : P {
    static constexpr bool WHOLE = true;
    __device__ explicit WholePlace(const P& place) : P(place) {}
};

// The channels of a thread from the beginning of its run on, of a tensor [B, C, L].
template <typename T> struct Slice {
    T* data;
    long long along_channels, along_time;

    template <class Place> __device__ Slice(const Strided<T, 3>& tensor, const Place& place)
        : data(tensor.data), along_channels(tensor.stride[1]), along_time(tensor.stride[2]) {
        if (place.rest > 0) data = tensor.at(place.batch, place.channel, place.start);
    }
    __device__ T* at(int offset) const { return data + offset * along_time; }
};

// The input of a sequence in channel c at time step t, which lies before its end and no more than a halo before its
// beginning.
template <typename A, class Variant, class Args>
__device__ A input_at(const Args& args, const Sequence& of, long long c, long long t) {
    if (t >= of.first) return A(*args.x.at(Variant::HAS_CU_SEQLENS ? 0 : of.index, c, t));
    if constexpr (Variant::HAS_INITIAL_STATES)
        return A(*args.initial_states.at(of.index, c, t - of.first + Variant::WIDTH - 1));
    return A(0);
}

// The convolution p of one time step, element by element from memory, if the step is in its sequence and p is far from
// zero, see is_far, or its filter cannot be scaled. The same p and t in the same order as a Filter has them.
template <typename A> struct Far {
    bool is = false;
    A p = 0;

    template <class Variant, class P, class Args>
    __device__ Far(Variant, const Args& args, const P& place, long long channel, long long t) {
        Sequence of = {place.batch, 0, args.seq_len};
        if constexpr (Variant::HAS_CU_SEQLENS) of = sequence<Variant>(args, sequence_at(args, t));
        if (t < of.first || t >= of.end) return;
        if constexpr (Variant::HAS_BIAS) p = A(*args.bias.at(channel));
        A scaled_p = scaled(p);
        is = !can_scale(p);
#pragma unroll 1
        for (int k = 0; k < Variant::WIDTH; ++k) {
            const A tap = A(*args.weight.at(channel, k));
            const A x = input_at<A, Variant>(args, of, channel, t + k - (Variant::WIDTH - 1));
            p = math::fma(tap, x, p);
            scaled_p = math::fma(scaled(tap), x, scaled_p);
            is = is || !can_scale(tap);
        }
        is = is || is_far(scaled_p);
    }
};

}  // namespace conv1d
}  // namespace baracuda
