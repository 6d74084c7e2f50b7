// Runs of neighbouring cells of a map, read and written: as packs where they lie so, else lane by lane.
#pragma once

#include <baracuda/map_place.cuh>

namespace baracuda {

// The first `live` cells one by one, and zeros; of what is PACKED, one for all.
template <typename T, int N, int OPERANDS, Layout LAYOUT>
__device__ Pack<T, N> read_lanes(const T* data, const Run<OPERANDS, LAYOUT, N>& run, int operand, int live) {
    constexpr bool SPLAT = LAYOUT == Layout::PACKED;
    Pack<T, N> pack = {};
    const T* const base = data + run.base[operand];
#pragma unroll
    for (int i = 0; i < (SPLAT ? 1 : N); ++i)
        if (i < live) pack.lane[i] = base[run.from_base(operand, i)];
#pragma unroll
    for (int i = 1; SPLAT && i < N; ++i) pack.lane[i] = pack.lane[0];
    return pack;
}

// All cells of a run, of a tensor whose rows, if it is FLAT, lie as they are counted. There are no conditions, so that
// many loads are in flight.
template <typename T, int N, int OPERANDS, Layout LAYOUT>
__device__ Pack<T, N> read_all(const T* data, const Run<OPERANDS, LAYOUT, N>& run, int operand) {
    Pack<T, N> pack;
    const T* const base = data + run.base[operand];
    const T *const row = base + run.place[0][operand], *const next = base + run.place[run.PLACES - 1][operand];
#pragma unroll
    for (int i = 0; i < N; ++i) {
        if (LAYOUT == Layout::FLAT) pack.lane[i] = (i < run.left ? row : next)[i];
        else pack.lane[i] = base[run.place[i % run.PLACES][operand]];
    }
    return pack;
}

// The first live[k] cells of each run, and zeros, from a tensor's memory, which may start anywhere. Bit `operand` of
// `whole`: N cells of the tensor are an aligned pack.
template <typename T, int N, int PACKS, int OPERANDS, Layout LAYOUT>
__device__ void read(Pack<T, N> (&pack)[PACKS], const T* data, const Run<OPERANDS, LAYOUT, N> (&run)[PACKS],
                     int operand, long long whole, const int (&live)[PACKS]) {
    if constexpr (LAYOUT == Layout::STRIDED) {
        if (all_live<LAYOUT, N>(live)) {
#pragma unroll
            for (int k = 0; k < PACKS; ++k) pack[k] = read_all<T, N>(data, run[k], operand);
        } else {
#pragma unroll
            for (int k = 0; k < PACKS; ++k) pack[k] = read_lanes<T, N>(data, run[k], operand, live[k]);
        }
    } else {
        PackWords<T, N> words[PACKS] = {};
        if (whole >> operand & 1) {
#pragma unroll
            for (int k = 0; k < PACKS; ++k) {
                if (is_live<LAYOUT>(N - 1, live[k])) {
                    words[k].load(data + run[k].at(operand, 0));
                } else if (LAYOUT != Layout::PACKED) {
                    words[k].hold(read_lanes<T, N>(data, run[k], operand, live[k]));
                }
            }
        } else if (LAYOUT == Layout::FLAT && run[0].inner[operand] == 1 && all_live<LAYOUT, N>(live)) {
#pragma unroll
            for (int k = 0; k < PACKS; ++k) words[k].hold(read_all<T, N>(data, run[k], operand));
        } else {
#pragma unroll
            for (int k = 0; k < PACKS; ++k) words[k].hold(read_lanes<T, N>(data, run[k], operand, live[k]));
        }
#pragma unroll
        for (int k = 0; k < PACKS; ++k) pack[k] = words[k].pack();
    }
}

// ALL: the tensor has a value for each cell of the space, which FLAT packs of it hold in the order they are counted.
template <bool ALL, typename T, int N, int PACKS, int OPERANDS, Layout LAYOUT>
__device__ void write(const Pack<T, N> (&pack)[PACKS], T* data, const Run<OPERANDS, LAYOUT, N> (&run)[PACKS],
                      int operand, long long whole, const int (&live)[PACKS]) {
    constexpr bool FLAT = ALL && LAYOUT == Layout::FLAT && N > 1;
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        T* const start = data + (FLAT ? run[k].first : run[k].at(operand, 0));
        if (LAYOUT == Layout::PACKED) {
            if (live[k]) pack[k].store(start);
        } else if ((FLAT || (whole >> operand & 1)) && live[k] == N) {
            pack[k].store(start);
        } else {
#pragma unroll
            for (int i = 0; i < N; ++i)
                if (i < live[k]) (FLAT ? start[i] : data[run[k].at(operand, i)]) = pack[k].lane[i];
        }
    }
}

}  // namespace baracuda
