// Reads and writes runs of neighbouring cells of a map: as packs where memory allows, else lane by lane.
#pragma once

#include <baracuda/map/place.cuh>

namespace baracuda {

// The first `live` cells one by one, zeros for the rest; PACKED: one element for all lanes.
template <typename T, int N, class R>
__device__ Pack<T, N> read_lanes(const T* data, const R& run, int operand, int live) {
    constexpr bool SPLAT = R::ONE_PLACE;
    Pack<T, N> pack = {};
#pragma unroll
    for (int i = 0; i < (SPLAT ? 1 : N); ++i)
        if (i < live) pack.lane[i] = *run.at(data, operand, i);
#pragma unroll
    for (int i = 1; SPLAT && i < N; ++i) pack.lane[i] = pack.lane[0];
    return pack;
}

// Loads an element, and its 128 bytes into the L2 cache: other lanes of the warp read them.
template <typename T> __device__ T read_line(const T* address) {
#ifdef BARACUDA_HOST
    return *address;
#else
    if constexpr (sizeof(T) == 2) {
        unsigned bits;
        asm volatile("ld.global.L2::128B.u16 %0, [%1];" : "=r"(bits) : "l"(__cvta_generic_to_global(address)));
        return __builtin_bit_cast(T, (unsigned short)(bits));
    } else if constexpr (sizeof(T) == 4) {
        unsigned bits;
        asm volatile("ld.global.L2::128B.b32 %0, [%1];" : "=r"(bits) : "l"(__cvta_generic_to_global(address)));
        return __builtin_bit_cast(T, bits);
    } else {
        struct Words {
            u64 word[sizeof(T) / sizeof(u64)];
        } bits;
        const auto from = __cvta_generic_to_global(address);
#pragma unroll
        for (int i = 0; i < int(sizeof(T) / sizeof(u64)); ++i)
            asm volatile("ld.global.L2::128B.b64 %0, [%1];" : "=l"(bits.word[i]) : "l"(from + sizeof(u64) * i));
        return __builtin_bit_cast(T, bits);
    }
#endif
}

// All cells of a run; the rows of a FLAT tensor are contiguous. No conditions, so that many loads are in flight.
template <typename T, int N, class R> __device__ Pack<T, N> read_all(const T* data, const R& run, int operand) {
    Pack<T, N> pack;
    if constexpr (R::SINGLE) {
        pack.lane[0] = read_line(run.at(data, operand, 0));
        return pack;
    }
    const T *const row = run.start(data, operand, 0), *const next = run.start(data, operand, R::PLACES - 1);
#pragma unroll
    for (int i = 0; i < N; ++i) pack.lane[i] = R::ROWS ? (i < run.left ? row : next)[i] : *run.at(data, operand, i);
    return pack;
}

// Of a tensor that has one element for each of the two rows of a run.
template <typename T, int N, class R>
__device__ Pack<T, N> read_rows(const T* data, const R& run, int operand, int live) {
    Pack<T, N> pack;
    const T row = live ? *run.start(data, operand, 0) : T();
    const T next = run.left < live ? *run.start(data, operand, R::PLACES - 1) : T();
#pragma unroll
    for (int i = 0; i < N; ++i) pack.lane[i] = i < run.left ? row : next;
    return pack;
}

// The first `live` cells of a run, as words.
template <typename T, int N, Layout LAYOUT, class R>
__device__ PackWords<T, N> read_words(const T* data, const R& run, int operand, bool vectorized, int live) {
    PackWords<T, N> words = {};
    if (vectorized && is_live<LAYOUT>(N - 1, live)) {
        words.load(run.at(data, operand, 0));
    } else if (R::ROWS && run.last_stride[operand] == 0) {
        words.set(read_rows<T, N>(data, run, operand, live));
    } else if (R::ROWS && run.last_stride[operand] == 1 && live == N) {
        words.set(read_all<T, N>(data, run, operand));
    } else if (!R::ONE_PLACE || !vectorized) {
        words.set(read_lanes<T, N>(data, run, operand, live));
    }
    return words;
}

// Of PACKED and FLAT runs.
template <typename T, class I, int N, int PACKS, int OPERANDS, Layout LAYOUT>
__device__ void read_packs(PackWords<T, N> (&words)[PACKS], const T* data,
                           const Run<I, OPERANDS, LAYOUT, N> (&run)[PACKS], int operand, bool vectorized,
                           const int (&live)[PACKS]) {
    const int others = is_still(operand) ? 1 : PACKS;
    if (vectorized && all_live<LAYOUT, N>(live)) {
#pragma unroll
        for (int k = 0; k < others; ++k) words[k].load(run[k].at(data, operand, 0));
    } else {
#pragma unroll
        for (int k = 0; k < others; ++k)
            words[k] = read_words<T, N, LAYOUT>(data, run[k], operand, vectorized, live[k]);
    }
#pragma unroll
    for (int k = others; k < PACKS; ++k) words[k] = words[0];
}

// The first live[k] cells of each run, zeros for the rest, from a tensor of any alignment. Bit `operand` of
// `vectorized`: N cells of the tensor are an aligned pack.
template <typename T, class I, int N, int PACKS, int OPERANDS, Layout LAYOUT>
__device__ void read(Pack<T, N> (&pack)[PACKS], const T* data, const Run<I, OPERANDS, LAYOUT, N> (&run)[PACKS],
                     int operand, long long vectorized, const int (&live)[PACKS]) {
    if constexpr (LAYOUT == Layout::SINGLE) {  // cells that do not exist have the offset of one that does
#pragma unroll
        for (int k = 0; k < PACKS; ++k) pack[k] = read_all<T, N>(data, run[k], operand);
        if (all_live<LAYOUT, N>(live)) return;
#pragma unroll
        for (int k = 0; k < PACKS; ++k)
            if (!live[k]) pack[k] = {};
    } else if (LAYOUT == Layout::STRIDED && all_live<LAYOUT, N>(live)) {
#pragma unroll
        for (int k = 0; k < PACKS; ++k) pack[k] = read_all<T, N>(data, run[k], operand);
    } else if (LAYOUT == Layout::STRIDED || (LAYOUT == Layout::PACKED && is_splat(operand))) {
#pragma unroll
        for (int k = 0; k < PACKS; ++k) pack[k] = read_lanes<T, N>(data, run[k], operand, live[k]);
    } else {
        PackWords<T, N> words[PACKS];
        read_packs(words, data, run, operand, vectorized >> operand & 1, live);
#pragma unroll
        for (int k = 0; k < PACKS; ++k) pack[k] = words[k].pack();
    }
}

// ALL: the tensor has a value for each cell of the space, so that FLAT packs are contiguous in it.
template <bool ALL, typename T, class I, int N, int PACKS, int OPERANDS, Layout LAYOUT>
__device__ void write(const Pack<T, N> (&pack)[PACKS], T* data, const Run<I, OPERANDS, LAYOUT, N> (&run)[PACKS],
                      int operand, long long vectorized, const int (&live)[PACKS]) {
    constexpr bool FLAT = ALL && LAYOUT == Layout::FLAT && N > 1;
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        T* const start = FLAT ? data + run[k].first : run[k].at(data, operand, 0);
        if (LAYOUT == Layout::PACKED) {
            if (live[k]) pack[k].store(start);
        } else if ((FLAT || (vectorized >> operand & 1)) && live[k] == N) {
            pack[k].store(start);
        } else {
#pragma unroll
            for (int i = 0; i < N; ++i)
                if (i < live[k]) *(FLAT ? start + i : run[k].at(data, operand, i)) = pack[k].lane[i];
        }
    }
}

}  // namespace baracuda
