// Attention that keeps its probabilities; -DOP is sdpa_args or sdpa_backward_args, and args.kernel or -DKERNEL
// says which of its kernels.
#include <baracuda/attention/sdpa.cuh>
#include <baracuda/attention/sdpa_backward.cuh>

namespace baracuda {

struct Variant { static constexpr bool HAS_MASK = MASKED, HAS_DMASK = MASKED; };
struct Schedule { static constexpr int THREADS = 128, LANES = LANES_PER_ROW; };

template <typename T> struct sdpa_args {
    Strided<const T, 4> q, k, v, mask;
    Strided<T, 4> attn, y;
    long long batch_size, num_heads, num_kv_heads, query_len, key_len, d_k, d_v;
    double scale;
    long long is_causal, bottom_right;
    acc_of<T>* scores;
};

template <typename T> struct sdpa_backward_args {
    Strided<const T, 4> q, k, v, attn, dy;
    Strided<T, 4> dq, dk, dv, dmask;
    long long batch_size, num_heads, num_kv_heads, query_len, key_len, d_k, d_v;
    double scale;
    long long is_causal, bottom_right;
    acc_of<T>* dscores;
};

#ifndef KERNEL
#define KERNEL args.kernel
#endif
template <class Args> struct One : Args { long long kernel; };

template <typename T> __device__ void run(const One<sdpa_args<T>>& args) {
    if (KERNEL == 0) sdpa_scores<T, Schedule, Variant>(args);
    if (KERNEL == 1) sdpa_softmax<T, Schedule, Variant>(args);
    if (KERNEL == 2) sdpa_output<T, Schedule, Variant>(args);
}
template <typename T> __device__ void run(const One<sdpa_backward_args<T>>& args) {
    if (KERNEL == 0) sdpa_backward_scores<T, Schedule, Variant>(args);
    if (KERNEL == 1) sdpa_backward_softmax<T, Schedule, Variant>(args);
    if (KERNEL == 2) sdpa_backward_query<T, Schedule, Variant>(args);
    if (KERNEL == 3) sdpa_backward_key<T, Schedule, Variant>(args);
    if (KERNEL == 4) sdpa_backward_value<T, Schedule, Variant>(args);
}

}  // namespace baracuda

using namespace baracuda;

extern "C" __global__ void __launch_bounds__(Schedule::THREADS)
    entry(__grid_constant__ const One<OP<ELEMENT>> args) {
    run(args);
}
