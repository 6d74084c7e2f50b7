// The backward pass of flash attention, as a plan would instantiate it for one choice of tensors and tiles.
#include <baracuda/attention/flash_backward.cuh>

namespace baracuda {

struct Variant {
    static constexpr int DK = BARACUDA_DK, DV = BARACUDA_DV;
    static constexpr bool BAND = BARACUDA_BAND, SOFTCAP = BARACUDA_SOFTCAP, PACKED = BARACUDA_LAYOUT == 0;
    static constexpr bool HAS_MASK = BARACUDA_HAS_MASK, HAS_ALIBI_SLOPES = BARACUDA_HAS_ALIBI_SLOPES;
};

struct Schedule {
    static constexpr int THREADS = SCHEDULE_THREADS;
    static constexpr int KV_BLOCK_K = SCHEDULE_KV_BLOCK_K, KV_BLOCK_Q = SCHEDULE_KV_BLOCK_Q;
    static constexpr int KV_STAGES = SCHEDULE_KV_STAGES, KV_PARTS = SCHEDULE_KV_PARTS;
    static constexpr int Q_BLOCK_Q = SCHEDULE_Q_BLOCK_Q, Q_BLOCK_K = SCHEDULE_Q_BLOCK_K, Q_STAGES = SCHEDULE_Q_STAGES;
};

template <typename T> struct flash_sdpa_backward_args {
    Strided<const T, 4> q, k, v, y;
    Strided<const acc_of<T>, 3> lse;
    Strided<const T, 4> dy;
    Strided<const acc_of<T>, 4> mask;
    Strided<const acc_of<T>, 2> alibi_slopes;
    Strided<T, 4> dq, dk, dv;
    long long batch_size, num_heads, num_kv_heads, query_len, key_len, d_k, d_v;
    double scale;
    long long is_causal, bottom_right;
    double softcap;
    long long window_left, window_right;
    acc_of<T>* delta;
};

}  // namespace baracuda

using namespace baracuda;
using Element = ELEMENT;
using Args = flash_sdpa_backward_args<Element>;
constexpr int THREADS = SCHEDULE_THREADS;

#ifdef SKU_delta
extern "C" __global__ void __launch_bounds__(THREADS) delta(__grid_constant__ const Args args) {
    flash_sdpa_backward_delta<Element, Schedule, Variant>(args);
}
#endif
#ifdef SKU_dkdv
#define DYN_SHARED_BYTES                                                            \
    (sizeof(Element) * (SCHEDULE_KV_BLOCK_K + SCHEDULE_KV_STAGES * SCHEDULE_KV_BLOCK_Q) * \
         (BARACUDA_DK + BARACUDA_DV) +                                              \
     sizeof(acc_of<Element>) * 2 * SCHEDULE_KV_STAGES * SCHEDULE_KV_BLOCK_Q)
extern "C" __global__ void __launch_bounds__(THREADS) dkdv(__grid_constant__ const Args args) {
    flash_sdpa_backward_dkdv<Element, Schedule, Variant>(args);
}
#endif
#ifdef SKU_dq
#define DYN_SHARED_BYTES \
    (sizeof(Element) * (SCHEDULE_Q_BLOCK_Q + SCHEDULE_Q_STAGES * SCHEDULE_Q_BLOCK_K) * (BARACUDA_DK + BARACUDA_DV))
extern "C" __global__ void __launch_bounds__(THREADS) dq(__grid_constant__ const Args args) {
    flash_sdpa_backward_dq<Element, Schedule, Variant>(args);
}
#endif
