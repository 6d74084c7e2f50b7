// Dynamic shared memory: `DYN_SHARED(T, name)` declares `T* name`, aligned to 128 bytes. The launch reserves
// DYN_SHARED_BYTES.
#pragma once

#ifndef DYN_SHARED  // which the host device has
#define DYN_SHARED(T, name)                                                   \
    extern __shared__ __align__(128) unsigned char baracuda_dynamic_shared[]; \
    T* const name = reinterpret_cast<T*>(baracuda_dynamic_shared)
#endif

namespace baracuda {

// Whether the launch reserves `bytes` of dynamic shared memory, or less than `spare` more. A source that does not get
// its macros from a plan may say so later.
__device__ constexpr bool reserves(unsigned long long bytes, unsigned long long spare = 1) {
#if defined(DYN_SHARED_BYTES)
    return bytes <= DYN_SHARED_BYTES && DYN_SHARED_BYTES < bytes + spare;
#elif defined(BARACUDA_SYMBOL)
    return bytes == 0;
#else
    return bytes + spare > 0;
#endif
}

}  // namespace baracuda
