// The registers of a thread of a causal convolution: a tile of time steps and channels, and the taps of these channels.
#pragma once

#include <baracuda/convolution/place.cuh>
#include <baracuda/pack.cuh>

namespace baracuda {
namespace conv1d {

// N contiguous elements, as they are in memory: 16-bit elements stay packed in pairs until they are used.
template <typename T, int N> struct Lanes {
    static constexpr int SHARE = sizeof(T) == 2 ? 2 : 1;  // elements of a word
    static_assert(N % 2 == 0, "elements come in pairs");
    template <typename E, int BYTES> struct WordOf {
        using type = E;
    };
    template <typename E> struct WordOf<E, 2> {
        using type = unsigned;
    };
    using Word = typename WordOf<T, sizeof(T)>::type;
    Pack<Word, N / SHARE> words;

    __device__ void load(const T* from) { words.load(reinterpret_cast<const Word*>(from)); }
    __device__ void store(T* to) const { words.store(reinterpret_cast<Word*>(to)); }
    __device__ T get(int i) const {
        if constexpr (SHARE == 1) return words.lane[i];
        else return half((unsigned short)(words.lane[i / 2] >> i % 2 * 16));
    }
    __device__ void set(int i, T value) {
        if constexpr (SHARE == 1) words.lane[i] = value;
        else
            words.lane[i / 2] = i % 2 ? (words.lane[i / 2] & 0xffff) | unsigned(value.bits) << 16
                                      : (words.lane[i / 2] & 0xffff0000) | value.bits;
    }
    // Elements i, which is even, and i + 1.
    template <typename A> __device__ void set_pair(int i, A low, A high) {
        if constexpr (SHARE == 1) words.lane[i] = T(low), words.lane[i + 1] = T(high);
        else words.lane[i / 2] = pack_halves<T>(low, high);
    }

private:
    __device__ static T half(unsigned short bits) {
        T value;
        value.bits = bits;
        return value;
    }
};

// The tile of a tensor in registers: steps -HALO to TIME - 1 of CH channels. Rows hold whole packs of time steps before
// the tile and the tile itself, columns one pack of channels a step.
template <typename T, class Place, int HALO, class Variant> struct Tile {
    static constexpr bool COLUMNS = Variant::CHANNELS_LAST;
    static constexpr int CH = Place::CH, TIME = Place::TIME, STEPS_BEFORE = HALO, PACK = 16 / int(sizeof(T)),
                         BEFORE = (HALO + PACK - 1) / PACK * PACK;
    static_assert(COLUMNS || TIME % PACK == 0, "rows are made of packs");
    Lanes<T, COLUMNS ? CH : BEFORE ? BEFORE : 2> before[COLUMNS && HALO ? HALO : 1];
    Lanes<T, COLUMNS ? CH : TIME> body[COLUMNS ? TIME : 1];

    __device__ T get(int c, int s) const {
        if (COLUMNS) return s < 0 ? before[HALO + s].get(c) : body[s].get(c);
        return s < 0 ? before[0].get(BEFORE + s) : body[0].get(s);
    }
    __device__ void set(int c, int s, T value) {
        if (COLUMNS) s < 0 ? before[HALO + s].set(c, value) : body[s].set(c, value);
        else s < 0 ? before[0].set(BEFORE + s, value) : body[0].set(s, value);
    }

    // Whether the tile at an offset can be moved in packs.
    template <class At> __device__ static bool is_whole(const At& place, int offset) {
        return At::WHOLE || (place.in_packs() && offset + TIME <= place.rest);
    }
    // Loads a whole tile, so that several loads can be in flight; `finish` completes other tiles.
    template <class At> __device__ void fetch(const Slice<const T>& from, const At& place, int offset) {
        if (!is_whole(place, offset)) return;
        if (COLUMNS) load_steps(from.at(offset), from.along_time, 0, TIME);
        else body[0].load(from.data + offset);
        fetch_before(from, place, offset);
    }
    // Steps before the first are zero.
    template <class At> __device__ void fetch_before(const Slice<const T>& from, const At& place, int offset) {
        if (HALO == 0 || !is_whole(place, offset)) return;
        if (offset <= place.begin) {
#pragma unroll
            for (int s = -HALO; s < 0; ++s)
#pragma unroll
                for (int c = 0; c < CH; ++c) set(c, s, T(acc_of<T>(0)));
        } else if (COLUMNS) {
            load_steps(from.at(offset - HALO), from.along_time, -HALO, 0);
        } else {
            before[0].load(from.data + offset - BEFORE);
        }
    }
    // In columns: the steps before the next tile.
    __device__ void advance() {
        if constexpr (COLUMNS) {
#pragma unroll
            for (int s = 0; s < HALO; ++s) before[s] = body[TIME - HALO + s];
        }
    }
    // Steps before the first and after the last are zero.
    template <class At> __device__ void finish(const Slice<const T>& from, const At& place, int offset) {
        if (!is_whole(place, offset)) load_between(from, offset, place.begin, place.rest, place.live);
    }

    // Loads element by element where packs are impossible; steps outside of [first, end) are zero.
    __device__ void load_between(const Slice<const T>& from, int offset, int first, int end, int live) {
#pragma unroll
        for (int s = -HALO; s < TIME; ++s) {
            const bool inside = offset + s >= first && offset + s < end;
            const T* step = from.at(offset + s);
            if (COLUMNS && inside && live == CH) {
                load_step(step, s);
            } else {
#pragma unroll
                for (int c = 0; c < CH; ++c)
                    set(c, s, inside && c < live ? step[c * from.along_channels] : T(acc_of<T>(0)));
            }
        }
    }

    // Whether the sequence does not cover the whole tile, so that `load_piece` must correct it.
    __device__ static bool is_cut(const Piece& by, int offset) {
        return ((Variant::HAS_CU_SEQLENS || Variant::HAS_INITIAL_STATES) && offset - HALO < by.first) ||
               (Variant::HAS_CU_SEQLENS && offset + TIME > by.end);
    }
    // Loads the steps of one sequence, and before them its initial state.
    template <class Args, class At>
    __device__ void load_piece(const Slice<const T>& from, const Args& args, const At& place, const Piece& of,
                               int offset) {
        if (Variant::HAS_CU_SEQLENS) load_between(from, offset, of.first, of.end, place.live);
        if constexpr (Variant::HAS_INITIAL_STATES) {
#pragma unroll
            for (int s = -HALO; s < (Variant::HAS_CU_SEQLENS ? TIME : 0); ++s) {
                const int column = offset + s - of.first + HALO;
                if (column < 0 || column >= HALO) continue;
#pragma unroll
                for (int c = 0; c < CH; ++c)
                    if (c < place.live) set(c, s, *args.initial_states.at(of.index, place.channel + c, column));
            }
        }
    }

    template <class At> __device__ void store(const Slice<T>& to, const At& place, int offset) const {
        T* step = to.at(offset);
        if (!is_whole(place, offset)) {
#pragma unroll
            for (int s = 0; s < TIME; ++s)
#pragma unroll
                for (int c = 0; c < CH; ++c)
                    if (offset + s < place.rest && c < place.live)
                        step[s * to.along_time + c * to.along_channels] = get(c, s);
        } else if (COLUMNS) {
#pragma unroll
            for (int s = 0; s < TIME; ++s, step += to.along_time) body[COLUMNS ? s : 0].store(step);
        } else {
            body[0].store(to.data + offset);
        }
    }

    // Fills a tile without halo with `value(c, s)`, two neighbours in memory at a time.
    template <class Value> __device__ void fill(const Value& value) {
        static_assert(HALO == 0, "a result has no halo");
        constexpr int NEXT_C = COLUMNS ? 2 : 1, NEXT_S = COLUMNS ? 1 : 2;
#pragma unroll
        for (int c = 0; c < CH; c += NEXT_C)
#pragma unroll
            for (int s = 0; s < TIME; s += NEXT_S)
                body[COLUMNS ? s : 0].set_pair(COLUMNS ? c : s, value(c, s), value(c + NEXT_C - 1, s + NEXT_S - 1));
    }

private:
    __device__ void load_steps(const T* from, long long along_time, int first, int end) {
#pragma unroll
        for (int s = -HALO; s < TIME; ++s)
            if (s >= first && s < end) load_step(from, s), from += along_time;
    }
    __device__ void load_step(const T* from, int s) {
        if (s < 0) before[HALO + s].load(from);
        else body[COLUMNS ? s : 0].load(from);
    }
};

// Taps and bias of a thread's channels, as SiLU takes them: scaled, see Scale. In rows the lanes of a group read the
// same ones; in columns the block reads them together, because neighbours are far apart for a lane.
template <typename A, int WIDTH, class Place, class Variant> struct Filter {
    using Acc = A;
    static constexpr int CH = Place::CH, ROW = WIDTH + 1;
    using Staged = Pack<A, CH>[ROW][Place::LANES];
    A tap[CH][WIDTH], bias[CH];
    A row_tap[Place::COLUMNS ? 1 : WIDTH];  // as they are given; those of columns stay in shared memory
    const Staged* staged;
    int lane;

    template <class Args> __device__ static A weight(const Args& args, long long channel, int k) {
        if (k < WIDTH) return A(*args.weight.at(channel, k));
        if constexpr (Variant::HAS_BIAS) return A(*args.bias.at(channel));
        return A(0);
    }
    template <class Args> __device__ void load(const Args& args, const Place& place) {
        lane = place.lane;
        if constexpr (Place::COLUMNS) {
            __shared__ Staged of_block;
            staged = &of_block;
            for (int i = threadIdx.x; i < ROW * Place::CHANNELS; i += Place::THREADS) {
                const int c = i / ROW, k = i % ROW;
                const long long channel = place.channel - place.lane * CH + c;
                of_block[k][c / CH].lane[c % CH] = channel < args.channels ? weight(args, channel, k) : A(0);
            }
            __syncthreads();
#pragma unroll
            for (int k = 0; k < ROW; ++k) {
                const Pack<A, CH> row = of_block[k][lane];
#pragma unroll
                for (int c = 0; c < CH; ++c) (k < WIDTH ? tap[c][k] : bias[c]) = row.lane[c];
            }
        } else {
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) tap[0][k] = row_tap[k] = place.live ? weight(args, place.channel, k) : A(0);
            bias[0] = place.live ? weight(args, place.channel, WIDTH) : A(0);
        }
        if (Variant::SILU) {
#pragma unroll
            for (int c = 0; c < CH; ++c) scale(tap[c], bias[c]);
        }
    }
    // The taps as they are given.
    __device__ void read_taps(A (&to)[CH][WIDTH]) const {
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            Pack<A, CH> row;
            if constexpr (Place::COLUMNS) row = (*staged)[k][lane];
            else row.lane[0] = row_tap[k];
#pragma unroll
            for (int c = 0; c < CH; ++c) to[c][k] = row.lane[c];
        }
    }
    // The convolution p at step s of channel c, or t = -log2(e) p for SiLU.
    template <class Tile> __device__ A at(Tile& x, int c, int s) const {
        A sum = bias[c];
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) sum = math::fma(tap[c][k], A(x.get(c, s + k - (WIDTH - 1))), sum);
        return sum;
    }

private:
    // A filter that cannot be scaled makes all results far from zero, see Far.
    __device__ static void scale(A (&tap)[WIDTH], A& bias) {
        bool fits = can_scale(bias);
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) fits = fits && can_scale(tap[k]);
        bias = fits ? scaled(bias) : math::infinity<A>();
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) tap[k] = fits ? scaled(tap[k]) : A(0);
    }
};

}  // namespace conv1d
}  // namespace baracuda
