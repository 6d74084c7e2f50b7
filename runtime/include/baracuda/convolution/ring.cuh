// A thread's prefetched tiles, in shared memory to save registers. A thread reads only what it copied itself, so there
// are no barriers.
#pragma once

#include <baracuda/arch/async.cuh>
#include <baracuda/convolution/tile.cuh>

namespace baracuda {
namespace conv1d {

// SLOTS tiles for each thread, in chunks that are contiguous across threads.
template <int CHUNK, int COUNT, int SLOTS, int THREADS> struct RingMemory {
    typename Word<CHUNK>::type chunk[SLOTS][COUNT][THREADS];
};

// A thread's ring of tiles of one tensor. A slot is refilled only after its tile has been used.
template <class Tile, class T, class Place> struct Ring {
    static constexpr int SLOTS = Place::BATCH, THREADS = Place::THREADS;
    static constexpr int BODY = int(sizeof(Tile::body[0])), CHUNK = BODY < 16 ? BODY : 16, PER_BODY = BODY / CHUNK;
    static constexpr int BODIES = int(sizeof(Tile::body)) / BODY * PER_BODY;
    static constexpr int BEFORES = Tile::COLUMNS ? 0 : Tile::BEFORE * int(sizeof(T)) / CHUNK;
    using Memory = RingMemory<CHUNK, BODIES + BEFORES, SLOTS, THREADS>;
    using Chunk = typename Word<CHUNK>::type;
    Memory& memory;
    const Slice<const T>& from;
    const Place& place;

    // Prefetches a tile, if it is whole, as Tile::fetch does.
    __device__ void fetch(int slot, int offset) {
        if (Tile::is_whole(place, offset)) {
            const T* body = from.at(offset);
#pragma unroll
            for (int i = 0; i < BODIES; ++i) {
                copy(slot, i, body, i % PER_BODY, CHUNK);
                if (Tile::COLUMNS && i % PER_BODY == PER_BODY - 1) body += from.along_time;
            }
            const bool any = offset > place.begin;  // else there are zeros
#pragma unroll
            for (int i = 0; i < BEFORES; ++i)
                copy(slot, BODIES + i, from.data + (any ? offset - Tile::BEFORE : 0), i, any ? CHUNK : 0);
        }
    }
    // Reads a tile that has arrived.
    __device__ void read(Tile& tile, int slot, int offset) const {
        if (!Tile::is_whole(place, offset)) return;
#pragma unroll
        for (int s = 0; s < BODIES / PER_BODY; ++s) read<PER_BODY>(tile.body[s], slot, s * PER_BODY);
        if constexpr (BEFORES > 0) read<BEFORES>(tile.before[0], slot, BODIES);
    }
    // In columns: reads the halo of a tile from the tile before it, which has arrived, too.
    __device__ void read_halo(Tile& tile, int slot) const {
        if constexpr (Tile::COLUMNS) {
#pragma unroll
            for (int s = 0; s < Tile::STEPS_BEFORE; ++s)
                read<PER_BODY>(tile.before[s], slot, (Tile::TIME - Tile::STEPS_BEFORE + s) * PER_BODY);
        }
    }

private:
    __device__ void copy(int slot, int to, const T* at, int chunk, int bytes) {
        cp_async_ca<CHUNK>(&memory.chunk[slot][to][threadIdx.x], at + chunk * (CHUNK / int(sizeof(T))), bytes);
    }
    template <int N, class Part> __device__ void read(Part& part, int slot, int first) const {
        struct Chunks {
            Chunk of[N];
        } chunks;
#pragma unroll
        for (int i = 0; i < N; ++i) chunks.of[i] = memory.chunk[slot][first + i][threadIdx.x];
        part = __builtin_bit_cast(Part, chunks);
    }
};

}  // namespace conv1d
}  // namespace baracuda
