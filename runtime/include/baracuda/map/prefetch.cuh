// Packs of the terms that a thread takes next: on their way to shared memory while it reduces those that it has, so
// that memory is busy however long the mathematics takes. A thread copies for itself alone, and needs no barrier.
#pragma once

#include <baracuda/arch/async.cuh>
#include <baracuda/map/access.cuh>
#include <baracuda/map/body.cuh>

namespace baracuda {

constexpr int PACK_BYTES = 16, MOST_PREFETCHED = 32 * 1024;  // of a block
// Shared memory of a block that prefetches, so that at most four are on an H200's multiprocessor: then 1056 are two
// waves. Where five are, a sum of all of bf16 16384x14336 takes 139 us, with four 119.
#if !defined(BARACUDA_HOST) && __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
constexpr int LEAST_SHARED = 45 * 1024;
#else
constexpr int LEAST_SHARED = 0;
#endif

// The arrays that lie in packs of 16 bytes, as bits of their operands.
template <class A, int N> __device__ constexpr u64 bit_of_packed() {
    return A::PRESENT && sizeof(typename A::element_t) * N == PACK_BYTES && !is_splat(A::OPERAND) ? 1ull << A::OPERAND
                                                                                                  : 0;
}
// How many of the arrays come before that of an operand.
template <u64 ARRAYS> __device__ constexpr int rank(int operand) {
    int rank = 0;
    for (int o = 0; o < 64; ++o) rank += o < operand && ARRAYS >> o & 1;
    return rank;
}

template <u64 OPERANDS_> struct Packed {
    static constexpr u64 OPERANDS = OPERANDS_;
};
// None of a body that stores: what is in doubt is read again, perhaps from where it was stored.
template <int N, auto... READS, auto... WRITES, class... Places>
Packed<sizeof...(WRITES) == 0 ? (0 | ... | bit_of_packed<ArrayOf<READS>, N>()) : 0> packed_of(
    const Body<Reads<READS...>, Writes<WRITES...>, Places...>&);

// Two buffers with a slot for each pack that a thread reads of an array at a time.
template <int ARRAYS, int PACKS, int THREADS> struct Slots {
    struct alignas(PACK_BYTES) Slot {
        unsigned char of[PACK_BYTES];
    };
    static constexpr int BUFFER = ARRAYS * PACKS * THREADS, BYTES = 2 * BUFFER * PACK_BYTES;
    Slot* first;
    int buffer = 0;
    __device__ explicit Slots(unsigned char* memory) : first(reinterpret_cast<Slot*>(memory) + threadIdx.x) {}
    __device__ void exchange() { buffer = BUFFER - buffer; }
    __device__ void* at(int array, int k) const { return first + (buffer + (array * PACKS + k) * THREADS); }
};

// Copies the packs of these arrays to their slots.
template <u64 ARRAYS, class R, int PACKS, class S> struct Prefetch {
    const R (&run)[PACKS];
    const S& slots;
    template <class Packs, typename T> __device__ void operator()(Packs&, const T* data, int operand) const {
        if (ARRAYS >> operand & 1) {
#pragma unroll
            for (int k = 0; k < PACKS; ++k)
                cp_async_cg(slots.at(rank<ARRAYS>(operand), k), run[k].at(data, operand, 0));
        }
    }
};

// Reads the packs that were copied, and those of other arrays from memory.
template <u64 ARRAYS, class R, int PACKS, class S> struct PrefetchedReader {
    const R (&run)[PACKS];
    const int (&live)[PACKS];
    const S& slots;
    long long vectorized;
    template <typename T, int N> __device__ void operator()(Pack<T, N> (&packs)[PACKS], const T* data,
                                                            int operand) const {
        if (ARRAYS >> operand & 1) {
#pragma unroll
            for (int k = 0; k < PACKS; ++k) {
                PackWords<T, N> words;
                words.load(static_cast<const T*>(slots.at(rank<ARRAYS>(operand), k)));
                packs[k] = words.pack();
            }
        } else {
            read(packs, data, run, operand, vectorized, live);
        }
    }
};

}  // namespace baracuda
