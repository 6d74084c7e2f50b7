// The forward of attention in one element type, with the settings and the tile that the tests ask for.
#include <baracuda/attention/flash_forward.cuh>
#include <baracuda/strided.cuh>

namespace baracuda {
struct Variant {
  static constexpr int DK = SETTING_DK, DV = SETTING_DV;
  static constexpr bool BAND = SETTING_BAND, SOFTCAP = SETTING_SOFTCAP, PACKED = SETTING_PACKED;
  static constexpr bool HAS_MASK = SETTING_MASK, HAS_ALIBI_SLOPES = SETTING_ALIBI;
};
struct Schedule {
  static constexpr int THREADS = TILE_THREADS, BLOCK_Q = TILE_Q, BLOCK_K = TILE_K, STAGES = TILE_STAGES;
};
template <typename T> struct flash_sdpa_args {
  Strided<const T, 4> q, k, v;
  Strided<const acc_of<T>, 4> mask;
  Strided<const acc_of<T>, 2> alibi_slopes;
  Strided<T, 4> y;
  Strided<acc_of<T>, 3> lse;
  long long batch_size, num_heads, num_kv_heads, query_len, key_len, d_k, d_v;
  double scale;
  long long is_causal, bottom_right;
  double softcap;
  long long window_left, window_right;
};
}  // namespace baracuda
using namespace baracuda;

constexpr int SHARED_BYTES = sizeof(FlashForward<ELEMENT, Schedule, Variant>::Shared);
#define DYN_SHARED_BYTES SHARED_BYTES

extern "C" __global__ void __launch_bounds__(TILE_THREADS)
flash_forward(__grid_constant__ const flash_sdpa_args<ELEMENT> args) {
  flash_sdpa_main<ELEMENT, Schedule, Variant>(args);
}
