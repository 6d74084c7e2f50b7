// Attention scores: which keys a query attends to, and the soft cap.
#pragma once

#include <baracuda/math.cuh>
#include <baracuda/warp.cuh>

namespace baracuda {

// Query i is aligned with key i + shift: shift is 0 if the first query is aligned with the first key (top left) and
// keys - queries if the last ones are (bottom right). It attends to keys [i + shift - left, i + shift + right]; a
// negative side is unlimited. Causal means right = 0.
struct Band {
    long long keys, shift, left, right;

    __device__ static Band of(long long queries, long long keys, bool bottom_right, bool causal, long long left,
                              long long right) {
        constexpr long long FAR = 1ll << 60;  // further than there are keys, and sums with it stay in range
        return {keys, bottom_right ? keys - queries : 0, min(left, FAR), causal ? 0 : min(right, FAR)};
    }
    // The keys that a query attends to are [first, end), perhaps none.
    __device__ long long first(long long query) const { return left < 0 ? 0 : max(0ll, query + shift - left); }
    __device__ long long end(long long query) const {
        return right < 0 ? keys : max(0ll, min(keys, query + shift + right + 1));
    }
    __device__ bool sees(long long query, long long key) const { return key >= first(query) && key < end(query); }
    // The queries of [0, queries) that attend to a key are [first_query, end_query), perhaps none.
    __device__ long long first_query(long long key) const { return right < 0 ? 0 : max(0ll, key - shift - right); }
    __device__ long long end_query(long long key, long long queries) const {
        return left < 0 ? queries : max(0ll, min(queries, key - shift + left + 1));
    }
};

// softcap * tanh(score / softcap), and its slope for a capped score.
template <typename A> __device__ A capped(A score, A softcap) { return softcap * math::tanh(score / softcap); }
template <typename A> __device__ A capped_slope(A value, A softcap) {
    const A part = value / softcap;
    return A(1) - part * part;
}

}  // namespace baracuda
