// Dynamic shared memory: `DYN_SHARED(T, name)` declares `T* name`, aligned to 128 bytes. The launch reserves
// DYN_SHARED_BYTES.
#pragma once

#ifndef DYN_SHARED  // which the host device has
#define DYN_SHARED(T, name)                                                   \
    extern __shared__ __align__(128) unsigned char baracuda_dynamic_shared[]; \
    T* const name = reinterpret_cast<T*>(baracuda_dynamic_shared)
#endif
