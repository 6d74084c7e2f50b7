// The threads of a warp.
#pragma once

namespace baracuda {

constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

// The value of the lane `lanes` above; all lanes of the warp take part.
template <class V> __device__ V shuffle_down(const V& value, int lanes) {
    constexpr int WORDS = (sizeof(V) + 3) / 4;
    union Words {
        V value;
        unsigned of[WORDS];
        __device__ Words() : of{} {}
    } words;
    words.value = value;
#pragma unroll
    for (int i = 0; i < WORDS; ++i) words.of[i] = __shfl_down_sync(ALL_LANES, words.of[i], lanes);
    return words.value;
}

}  // namespace baracuda
