// Barriers in shared memory that also count bytes: how the copy engine and some warps wait for each other. sm_90 on.
#pragma once

namespace baracuda {

// Where something in shared memory lies, as barriers, the copy engine and the matrix units address it.
__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return unsigned(__cvta_generic_to_shared(pointer));
}

// A barrier of 8 bytes at a shared address. It is in phase 0, 1, 2, ...: a phase ends when as many threads as `init`
// said have arrived and every byte that was expected has come. `wait` returns when the latest phase of that parity has
// ended; of a new barrier, that of parity 1 has.
struct Barrier {
    unsigned address;

    __device__ __forceinline__ void init(unsigned arrivals) const {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(arrivals) : "memory");
    }
    __device__ __forceinline__ void arrive() const {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address) : "memory");
    }
    // Arrives, and the phase lasts until `bytes` more bytes have come.
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
    // `wait`, after which what other blocks of the cluster sent is there.
    __device__ __forceinline__ void wait_for_cluster(unsigned parity) const {
        asm volatile(
            "{\n.reg .pred done;\nagain_%=:\n"
            "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n@!done bra again_%=;\n}\n" ::"r"(
                address),
            "r"(parity)
            : "memory");
    }
};

// After `init`, before a block barrier: the other threads and the copy engine see new barriers.
__device__ __forceinline__ void publish_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
}

// A position in a ring of STAGES buffers, and the parity of the phase that its barriers are in on this lap.
template <int STAGES> struct Ring {
    unsigned stage = 0, parity = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// All warps of a warpgroup change what each of their threads may hold. The block draws on what it was launched with:
// registers a thread, rounded up to a multiple of 8, times its threads; asking for more waits forever.
template <int REGISTERS> __device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS> __device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

}  // namespace baracuda
