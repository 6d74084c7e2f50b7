// N neighbours in memory, moved 16 bytes at a time.
#pragma once

#include <baracuda/element.cuh>

namespace baracuda {

template <typename T, int N> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
    T lane[N];

    // The address must be a multiple of the pack's alignment.
    __device__ void load(const T* address) { *this = *reinterpret_cast<const Pack*>(address); }
    __device__ void store(T* address) const { *reinterpret_cast<Pack*>(address) = *this; }
};

}  // namespace baracuda
