// mbarriers: barriers in shared memory that also count bytes, between TMA and warps. sm_90 on.
#pragma once

namespace baracuda {

// The 32-bit shared address that barriers, TMA and wgmma take.
__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return unsigned(__cvta_generic_to_shared(pointer));
}

// An mbarrier of 8 bytes at a shared address. Its phases 0, 1, 2, ... each end when the number of threads given to
// `init` and all expected bytes have arrived. `wait` returns when the latest phase of that parity has ended; of a new
// barrier, that of parity 1 has.
#ifdef BARACUDA_HOST
struct Barrier {
    unsigned address;

    void init(unsigned arrivals, BARACUDA_SITE) const {
        baracuda_host::mbarrier_init(address, arrivals, BARACUDA_HERE);
    }
    void arrive(BARACUDA_SITE) const { baracuda_host::mbarrier_arrive(address, 0, BARACUDA_HERE); }
    void expect(unsigned bytes, BARACUDA_SITE) const { baracuda_host::mbarrier_arrive(address, bytes, BARACUDA_HERE); }
    void wait(unsigned parity, BARACUDA_SITE) const { baracuda_host::mbarrier_wait(address, parity, BARACUDA_HERE); }
    void wait_cluster(unsigned parity, BARACUDA_SITE) const {
        baracuda_host::mbarrier_wait(address, parity, BARACUDA_HERE);
    }
    void inval(BARACUDA_SITE) const { baracuda_host::mbarrier_inval(address, BARACUDA_HERE); }
};
inline void fence_barrier_init() { baracuda_host::fence_proxy_async(); }
inline void fence_proxy_async() { baracuda_host::fence_proxy_async(); }
inline void fence_proxy_async_shared() { baracuda_host::fence_proxy_async(); }
#else
struct Barrier {
    unsigned address;

    __device__ __forceinline__ void init(unsigned arrivals) const {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(arrivals) : "memory");
    }
    __device__ __forceinline__ void arrive() const {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address) : "memory");
    }
    // Arrives, and makes the phase wait for `bytes` more bytes.
    __device__ __forceinline__ void expect(unsigned bytes) const {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes) : "memory");
    }
    __device__ __forceinline__ void wait(unsigned parity) const {
        asm volatile(
            "{\n.reg .pred done;\nagain_%=:\n"
            "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again_%=;\n}\n" ::"r"(address),
            "r"(parity)
            : "memory");
    }
    // Makes the barrier's 8 bytes ordinary memory again; nobody waits.
    __device__ __forceinline__ void inval() const {
        asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(address) : "memory");
    }
    // `wait` with acquire semantics for stores of other blocks of the cluster.
    __device__ __forceinline__ void wait_cluster(unsigned parity) const {
        asm volatile(
            "{\n.reg .pred done;\nagain_%=:\n"
            "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n@!done bra again_%=;\n}\n" ::"r"(
                address),
            "r"(parity)
            : "memory");
    }
};

// After `init` and before a block barrier: makes new barriers visible to other threads and to TMA.
__device__ __forceinline__ void fence_barrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
}

// Makes what this thread wrote, or knows of, visible to TMA and wgmma; `_shared`: what is in shared memory.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async;" ::: "memory"); }
__device__ __forceinline__ void fence_proxy_async_shared() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
#endif

// The pipeline state: the stage of a ring of STAGES buffers, and the parity of its barriers' phase.
template <int STAGES> struct Ring {
    unsigned stage = 0, parity = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
    __device__ __forceinline__ void advance(unsigned stages) {
        const unsigned to = stage + stages;
        parity ^= to / STAGES & 1;
        stage = to % STAGES;
    }
};

// All warps of a warpgroup change their registers per thread (setmaxnreg). The block's total is what it was launched
// with: registers per thread, rounded up to a multiple of 8, times threads. Asking for more waits forever.
#ifdef BARACUDA_HOST
template <int REGISTERS> inline void allocate_registers(BARACUDA_SITE) {
    baracuda_host::set_registers(REGISTERS, true, BARACUDA_HERE);
}
template <int REGISTERS> inline void deallocate_registers(BARACUDA_SITE) {
    baracuda_host::set_registers(REGISTERS, false, BARACUDA_HERE);
}
#else
template <int REGISTERS> __device__ __forceinline__ void allocate_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS> __device__ __forceinline__ void deallocate_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
#endif

}  // namespace baracuda
