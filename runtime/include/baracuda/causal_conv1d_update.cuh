// Causal convolution of a few new time steps, with the last values of each channel kept in between: decoding.
#pragma once

#include <baracuda/causal_conv1d_silu.cuh>

namespace baracuda {

// y = act(the convolution of (conv_state, x) at the steps of x), and conv_state becomes the last S values of
// (conv_state, x).
// block -> THREADS channels of a batch; thread -> a channel. Memory sees x and conv_state once, the last W - 1 values
// of conv_state perhaps from L1 again; neighbouring threads read neighbouring channels.
template <typename T, class Schedule, class Variant, class Args>
__device__ void causal_conv1d_update_main(const Args& args) {
    using A = acc_of<T>;
    constexpr int WIDTH = Variant::WIDTH, HALO = WIDTH - 1;
    const unsigned across = unsigned((args.channels + Schedule::THREADS - 1) / Schedule::THREADS);
    const long long batch = blockIdx.x / across;
    const long long channel = (long long)(blockIdx.x % across) * Schedule::THREADS + threadIdx.x;
    if (channel >= args.channels || batch >= args.batch_size) return;

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
        *args.y.at(batch, channel, t) = T(Variant::SILU ? conv1d::silu(sum) : sum);
    }
    // Upwards, so that a value is read before its place is written.
#pragma unroll 1
    for (long long i = 0; i < kept; ++i)
        state[i * along] = i + steps < kept ? state[(i + steps) * along] : x[(i + steps - kept) * args.x.stride[2]];
}

}  // namespace baracuda
