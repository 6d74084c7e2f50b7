// The threads of a warp.
#pragma once

namespace baracuda {

constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

// The value of the lane `lanes` above; all lanes of the warp take part.
template <class V> __device__ V shuffle_down(const V& value, int lanes) {
    constexpr int WORDS = (sizeof(V) + 3) / 4;
    unsigned words[WORDS] = {};
    __builtin_memcpy(words, &value, sizeof(V));
#pragma unroll
    for (int i = 0; i < WORDS; ++i) words[i] = __shfl_down_sync(ALL_LANES, words[i], lanes);
    V other;
    __builtin_memcpy(&other, words, sizeof(V));
    return other;
}

}  // namespace baracuda
