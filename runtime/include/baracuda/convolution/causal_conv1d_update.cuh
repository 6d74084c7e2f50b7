// Causal convolution of a few new time steps with a state of the last values of each channel, for decoding.
//
// block -> THREADS channels of a batch at a time, CHANNELS_EACH times; thread -> CHANNELS_EACH of them. Memory sees x
// and conv_state once, the last W - 1 values of conv_state perhaps from L1 again. Of one step on a short state without
// gaps a thread has neighbours, whose values are whole packs; else neighbouring threads read neighbouring channels.
#pragma once

#include <baracuda/convolution/silu.cuh>
#include <baracuda/pack.cuh>
#include <baracuda/strided.cuh>

namespace baracuda {
namespace conv1d {

// Channels of a thread: as few as have whole packs of 16 bytes of state.
template <typename T, int STATE> __device__ constexpr int channels_of_a_thread() {
    const int pack = 16 / int(sizeof(T)), even = STATE % 4 == 0 ? 4 : STATE % 2 == 0 ? 2 : 1;
    return STATE == 0 || pack < even ? 1 : pack / even;
}

// N neighbours, in packs where they are such.
template <typename T, int N> struct Neighbours {
    static constexpr int BYTES = N * int(sizeof(T)), WORD = BYTES % 16 == 0 ? 16 : BYTES & -BYTES;
    static constexpr int LANES = WORD / int(sizeof(T));
    Pack<T, LANES> pack[N / LANES];

    __device__ static bool is_aligned(const T* data) { return reinterpret_cast<unsigned long long>(data) % WORD == 0; }
    __device__ void load(const T* from) {
#pragma unroll
        for (int i = 0; i < N / LANES; ++i) pack[i].load(from + i * LANES);
    }
    __device__ void store(T* to) const {
#pragma unroll
        for (int i = 0; i < N / LANES; ++i) pack[i].store(to + i * LANES);
    }
    __device__ T& operator[](int i) { return pack[i / LANES].lane[i % LANES]; }
};

template <class Variant, typename A> __device__ A activated(A sum) { return Variant::SILU ? silu(sum) : sum; }

template <class Tensor> struct Stored;
template <typename S, int RANK> struct Stored<Strided<const S, RANK>> {
    using type = S;
};

// One step of CHANNELS_EACH channels.
template <typename T, int CHANNELS_EACH, class Variant, class Args> struct Step {
    using States = Neighbours<T, CHANNELS_EACH * Variant::STATE>;
    using Values = Neighbours<T, CHANNELS_EACH>;
    using Taps = Neighbours<typename Stored<decltype(Args::weight)>::type, CHANNELS_EACH * Variant::WIDTH>;

    // Whether there are no gaps and all packs of a block, from this channel on, are aligned.
    __device__ static bool is_packed(const Args& args, long long batch, long long channel) {
        return args.conv_state.stride[1] == Variant::STATE && (Variant::STATE == 1 || args.conv_state.stride[2] == 1) &&
               args.weight.stride[0] == Variant::WIDTH && args.weight.stride[1] == 1 &&
               (CHANNELS_EACH == 1 || (args.x.stride[1] == 1 && args.y.stride[1] == 1)) &&
               States::is_aligned(args.conv_state.at(batch, channel)) &&
               Values::is_aligned(args.x.at(batch, channel)) && Values::is_aligned(args.y.at(batch, channel)) &&
               Taps::is_aligned(args.weight.at(channel));
    }

    __device__ static void run(const Args& args, long long batch, long long channel) {
        using A = acc_of<T>;
        constexpr int WIDTH = Variant::WIDTH, STATE = Variant::STATE, HALO = WIDTH - 1;
        States state;
        Values value;
        Taps tap;
        A bias[CHANNELS_EACH] = {};
        state.load(args.conv_state.at(batch, channel));
        value.load(args.x.at(batch, channel));
        tap.load(args.weight.at(channel));
#pragma unroll
        for (int c = 0; c < CHANNELS_EACH; ++c) {
            if constexpr (Variant::HAS_BIAS) bias[c] = A(*args.bias.at(channel + c));
        }
#pragma unroll
        for (int c = 0; c < CHANNELS_EACH; ++c) {
            const T last = value[c];
            A sum = bias[c];
#pragma unroll
            for (int k = 0; k < HALO; ++k)
                sum = math::fma(A(tap[c * WIDTH + k]), A(state[c * STATE + STATE - HALO + k]), sum);
            sum = math::fma(A(tap[c * WIDTH + HALO]), A(last), sum);
#pragma unroll
            for (int i = 0; i + 1 < STATE; ++i) state[c * STATE + i] = state[c * STATE + i + 1];
            state[c * STATE + STATE - 1] = last;
            value[c] = T(activated<Variant>(sum));
        }
        state.store(args.conv_state.at(batch, channel));
        value.store(args.y.at(batch, channel));
    }
};

// All steps of a channel, whatever the strides.
template <typename T, class Variant, class Args>
__device__ void steps_of_channel(const Args& args, long long batch, long long channel) {
    using A = acc_of<T>;
    constexpr int WIDTH = Variant::WIDTH, HALO = WIDTH - 1;
    A tap[WIDTH], window[WIDTH], bias = 0;
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) tap[k] = A(*args.weight.at(channel, k));
    if constexpr (Variant::HAS_BIAS) bias = A(*args.bias.at(channel));
    T* const state = args.conv_state.at(batch, channel);
    const T* const x = args.x.at(batch, channel);
    const long long along = args.conv_state.stride[2], kept = args.state_len, steps = args.seq_len;
#pragma unroll
    for (int k = 0; k < HALO; ++k) window[k + 1] = A(state[(kept - HALO + k) * along]);
#pragma unroll 1  // there are few steps, and the compiler's copies of one take as long as all else
    for (long long t = 0; t < steps; ++t) {
        A sum = bias;
#pragma unroll
        for (int k = 0; k < HALO; ++k) window[k] = window[k + 1];
        window[HALO] = A(x[t * args.x.stride[2]]);
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) sum = math::fma(tap[k], window[k], sum);
        *args.y.at(batch, channel, t) = T(activated<Variant>(sum));
    }
    // Upwards, so that a value is read before its place is written.
#pragma unroll 1
    for (long long i = 0; i < kept; ++i)
        state[i * along] = i + steps < kept ? state[(i + steps) * along] : x[(i + steps - kept) * args.x.stride[2]];
}

}  // namespace conv1d

// y = act(the convolution of (conv_state, x) at the steps of x), and conv_state becomes the last S values of
// (conv_state, x).
template <typename T, class Schedule, class Variant, class Args>
__device__ void causal_conv1d_update_main(const Args& args) {
    constexpr int THREADS = Schedule::THREADS, CHANNELS_EACH = conv1d::channels_of_a_thread<T, Variant::STATE>();
    const unsigned across = unsigned((args.channels + THREADS * CHANNELS_EACH - 1) / (THREADS * CHANNELS_EACH));
    const long long batch = blockIdx.x / across;
    const long long first = (long long)(blockIdx.x % across) * (THREADS * CHANNELS_EACH);
    if (batch >= args.batch_size) return;
    long long channel = first + threadIdx.x, end = min(args.channels, first + THREADS * CHANNELS_EACH);
    int next = THREADS;
    if constexpr (Variant::STATE > 0) {
        using Step = conv1d::Step<T, CHANNELS_EACH, Variant, Args>;
        if (Step::is_packed(args, batch, first)) {
            channel = first + threadIdx.x * CHANNELS_EACH;
            if (channel + CHANNELS_EACH <= end) return Step::run(args, batch, channel);
            next = 1;
        }
    }
#pragma unroll 1
    for (; channel < end; channel += next) conv1d::steps_of_channel<T, Variant>(args, batch, channel);
}

}  // namespace baracuda
