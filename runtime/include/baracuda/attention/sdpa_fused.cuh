// Attention that stores its probabilities, of 16-bit types and by tiles: scores stay in registers. They are computed
// twice, first for each row's maximum and sum, then for the probabilities.
#pragma once

#include <baracuda/attention/flash_forward.cuh>

namespace baracuda {

// The first rows and columns of `tile` from a matrix, of whose tensor `stride` are the strides; the rest becomes zero.
// PACKED copies are asynchronous, and the caller commits and awaits them. A barrier must follow.
template <int THREADS, bool PACKED, typename T, int ROWS, int COLS>
__device__ __forceinline__ void copy_tile(SharedTile<T, ROWS, COLS> tile, const T* from, const long long* stride,
                                          long long rows, long long cols) {
    const int thread = opaque(threadIdx.x);
    if constexpr (PACKED) {
        copy_rows<THREADS, true>(tile, from, stride[2], rows, cols, thread);
    } else {
#pragma unroll 4
        for (int place = thread; place < ROWS * COLS; place += THREADS) {
            const int row = place / COLS, col = place % COLS;
            *tile.at(row, col) = row < rows && col < cols ? from[row * stride[2] + col * stride[3]] : T{};
        }
    }
}

template <class Plain> struct SdpaVariant : Plain {
    static constexpr bool BAND = Plain::IS_CAUSAL, SOFTCAP = false, HAS_ALIBI_SLOPES = false;
};

template <typename T, class Schedule, class Variant> struct SdpaFused : FlashForward<T, Schedule, Variant> {
    using Flash = FlashForward<T, Schedule, Variant>;
    using A = typename Flash::A;
    using Flash::ROW_TILES, Flash::SIDES, Flash::S_TILES, Flash::O_TILES;
    using Flash::score, Flash::largest, Flash::total, Flash::unit;
    static constexpr A FAR = 4096;  // from here on the rounding of a base would show

    using Flash::Flash;

    template <class Tile>
    __device__ __forceinline__ static void copy(Tile tile, const T* from, const long long* stride, long long rows,
                                                long long cols) {
        copy_tile<Schedule::THREADS, Variant::PACKED>(tile, from, stride, rows, cols);
    }

    // change(m, side) for each of the thread's rows.
    template <class Change> __device__ __forceinline__ static void each_row(const Change& change) {
#pragma unroll
        for (int m = 0; m < ROW_TILES; ++m)
#pragma unroll
            for (int side = 0; side < SIDES; ++side) change(m, side);
    }
    // use(score, column beyond column()) for each of the thread's scores of a row.
    template <class Use> __device__ __forceinline__ void each_of_row(int m, int side, const Use& use) {
#pragma unroll
        for (int n = 0; n < S_TILES; ++n)
#pragma unroll
            for (int j = 0; j < 2; ++j) use(score[m][n].value[2 * side + j], n * 8 + j);
    }

    // use(score, the element of `tile` in its place) for each of the thread's scores of a row.
    template <class Tile, class Use>
    __device__ __forceinline__ void each_beside(Tile tile, int m, int side, const Use& use) {
        const unsigned thread = reload_thread_index();
#pragma unroll
        for (int n = 0; n < S_TILES; ++n) {
            Pack<T, 2> two;
            two.load(tile.at(Flash::row(m, side, thread), n * 8 + Flash::column(thread)));
            use(score[m][n].value[2 * side], A(two.lane[0]));
            use(score[m][n].value[2 * side + 1], A(two.lane[1]));
        }
    }

    // Products become scores, -infinity where they are masked. `mask` begins where the block and the tile do, and has
    // `rows` and `keys`.
    __device__ __forceinline__ void change_scores(const T* mask, long long row_stride, long long col_stride, int rows,
                                                  int keys, long long distance, bool hides) {
        constexpr long long REACH = Schedule::BLOCK_Q + Schedule::BLOCK_K;
        const unsigned thread = reload_thread_index();
        const int seen =
            int(max(-REACH, min(distance, REACH)));  // the block's first row attends to columns up to this one
        each_row([&](int m, int side) {
            const int row = Flash::row(m, side, thread), left = Flash::column(thread);
            const int last = Variant::BAND ? min(keys - 1, seen + row) : keys - 1;
            each_of_row(m, side, [&](A& s, int beyond) {
                s *= this->before;
                const int col = left + beyond;
                if constexpr (Variant::HAS_MASK)
                    if (row < rows && col < keys) s += A(mask[row * row_stride + col * col_stride]);
                if (hides && col > last) s = -math::infinity<A>();
            });
        });
    }

    // Updates each row's maximum and sum by a tile's scores.
    __device__ __forceinline__ void update_softmax() {
        each_row([&](int m, int side) {
            A high = largest[m][side];
            each_of_row(m, side, [&](A& s, int) { high = max_number(high, s); });
            high = max_number(high, __shfl_xor_sync(ALL_LANES, high, 1));
            high = max_number(high, __shfl_xor_sync(ALL_LANES, high, 2));
            total[m][side] *= quick_exp2((largest[m][side] - finite_or_zero(high)) * unit);
            largest[m][side] = high;
            to_powers(m, side);
            each_of_row(m, side, [&](A& s, int) { total[m][side] += s; });
        });
    }

    // Sums become the factors of their rows' exponentials: 1 for a row that attends to no key.
    __device__ __forceinline__ void invert_totals() {
        each_row([&](int m, int side) {
            A& sum = total[m][side];
            sum += __shfl_xor_sync(ALL_LANES, sum, 1);
            sum += __shfl_xor_sync(ALL_LANES, sum, 2);
            sum = sum == A(0) ? A(1) : A(1) / sum;
        });
    }

    __device__ __forceinline__ void to_probabilities() {
        each_row([&](int m, int side) {
            to_powers(m, side);
            each_of_row(m, side, [&](A& s, int) { s *= total[m][side]; });
        });
    }

    // Stores a tile's probabilities or dS; PAIRS: rows of the array are whole packs.
    template <bool PAIRS>
    __device__ __forceinline__ void store(T* attn, long long row_stride, long long col_stride, int rows,
                                          int keys) const {
        const unsigned thread = reload_thread_index();
        each_row([&](int m, int side) {
            const int row = Flash::row(m, side, thread), left = Flash::column(thread);
            T* const to = attn + row * row_stride;
#pragma unroll
            for (int n = 0; n < S_TILES; ++n) {
                const A* const value = score[m][n].value + 2 * side;
                const Pack<T, 2> both = {T(value[0]), T(value[1])};
                const int col = left + n * 8;
                if constexpr (PAIRS) {
                    if (row < rows && col < keys) both.store(to + col);
                } else {
                    if (row < rows && col < keys) to[col * col_stride] = both.lane[0];
                    if (row < rows && col + 1 < keys) to[(col + 1) * col_stride] = both.lane[1];
                }
            }
        });
    }

    // Stores the block's rows of a result.
    __device__ __forceinline__ void finish(const Strided<T, 4>& to, long long batch, long long head,
                                           long long first_row, int rows, long long cols, A factor) const {
        each_row([&](int m, int side) {
            const int row = Flash::row(m, side);
            if (row >= rows) return;
            T* const y = to.at(batch, head, first_row + row);
#pragma unroll
            for (int n = 0; n < O_TILES; ++n)
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    const int col = n * 8 + Flash::column() + j;
                    if (col < cols) y[col * to.stride[3]] = T(factor * this->out[m][n].value[2 * side + j]);
                }
        });
    }

private:
    // Scores of a row become exponentials relative to its maximum.
    __device__ __forceinline__ void to_powers(int m, int side) {
        const A from = finite_or_zero(largest[m][side]), base = from * unit;
        if (math::abs(base) > FAR) each_of_row(m, side, [&](A& s, int) { s = quick_exp2((s - from) * unit); });
        else each_of_row(m, side, [&](A& s, int) { s = quick_exp2(math::fma(s, unit, -base)); });
    }
};

// attn = softmax(scale q k^T + mask), y = attn v.
//
// Block -> a batch, a head and BLOCK_Q queries, those first that see most keys; warp -> its share of these rows, all
// columns; lane -> the elements of Mma's sums. Memory traffic: each query and result once, keys twice and values once
// for each block, 16 bytes a lane if PACKED. Probabilities are rounded to T before the product. Tiles of keys that
// no row of the block attends to are not read, but their values are.
template <typename T, class Schedule, class Plain, class Args> __device__ void sdpa_fused(const Args& args) {
    using Variant = SdpaVariant<Plain>;
    using Fused = SdpaFused<T, Schedule, Variant>;
    using Shared = typename Fused::Shared;
    constexpr int BLOCK_Q = Schedule::BLOCK_Q, BLOCK_K = Schedule::BLOCK_K;
    static_assert(Schedule::STAGES == 2, "a tile is read while one is worked on");
    DYN_SHARED(Shared, shared);
    static_assert(reserves(sizeof(Shared)), "the launch reserves Shared");

    const long long queries = args.query_len, keys = args.key_len, tiles = (queries + BLOCK_Q - 1) / BLOCK_Q;
    if (blockIdx.x >= tiles * args.num_heads * args.batch_size) return;
    const unsigned which = blockIdx.x / unsigned(tiles), heads = unsigned(args.num_heads);
    const long long batch = which / heads, head = which % heads, kv_head = head / (heads / unsigned(args.num_kv_heads));
    const long long nth = blockIdx.x % unsigned(tiles), first_row = (Variant::BAND ? tiles - 1 - nth : nth) * BLOCK_Q;
    const int rows = int(min((long long)BLOCK_Q, queries - first_row));
    const Band band = Band::of(queries, keys, args.bottom_right, Variant::BAND, -1, -1);
    const long long seen_end = band.end(first_row + rows - 1), common_end = band.end(first_row);

    const T* const k = args.k.at(batch, kv_head);
    const T* const v = args.v.at(batch, kv_head);
    const auto load_keys = [&](long long key, int stage) {
        if (key >= seen_end) return;
        Fused::copy(typename Fused::KTile{shared->k[stage]}, k + key * args.k.stride[2], args.k.stride, keys - key,
                    args.d_k);
    };
    const auto load_values = [&](long long key, int stage) {
        if (key >= keys) return;
        Fused::copy(typename Fused::VTile{shared->v[stage]}, v + key * args.v.stride[2], args.v.stride, keys - key,
                    args.d_v);
    };

    Fused fused(args.scale);
    const typename Fused::QTile q{shared->q};
    const auto scores_of = [&](long long key, int stage) {
        fused.multiply_keys(q, {shared->k[stage]});
        const bool hides = key + BLOCK_K > common_end;
        if (PLAIN_SCORES<Variant> && !hides && fused.before == 1) return;
        const T* mask = nullptr;
        long long row_stride = 0, col_stride = 0;
        if constexpr (Variant::HAS_MASK)
            mask = args.mask.at(batch, head, first_row, key), row_stride = args.mask.stride[2],
            col_stride = args.mask.stride[3];
        fused.change_scores(mask, row_stride, col_stride, rows, int(min(keys - key, (long long)BLOCK_K)),
                            first_row + band.shift - key, hides);
    };

    Fused::copy(q, args.q.at(batch, head, first_row), args.q.stride, rows, args.d_k);
    load_keys(0, 0);
    cp_async_commit_group();
    cp_async_wait_group<0>();
    __syncthreads();  // queries have arrived
    fused.load_query_fragments(q);
    int stage = 0;
    for (long long key = 0; key < seen_end; key += BLOCK_K, stage ^= 1) {
        cp_async_wait_group<0>();
        __syncthreads();  // the copies have arrived, and the other buffer is free
        load_keys(key + BLOCK_K, stage ^ 1);
        cp_async_commit_group();
        scores_of(key, stage);
        fused.update_softmax();
    }
    fused.invert_totals();

    __syncthreads();  // keys are used
    load_keys(0, 0);
    load_values(0, 0);
    cp_async_commit_group();
    stage = 0;
    for (long long key = 0; key < keys; key += BLOCK_K, stage ^= 1) {
        cp_async_wait_group<0>();
        __syncthreads();  // the copies have arrived, and the other buffer is free
        load_keys(key + BLOCK_K, stage ^ 1);
        load_values(key + BLOCK_K, stage ^ 1);
        cp_async_commit_group();
        if (key < seen_end) {
            scores_of(key, stage);
            fused.to_probabilities();
        } else {
            fused.each_score(
                [&](typename Fused::A& s, int m, int side, int) { s = 0 * fused.total[m][side]; });  // or NaN
        }
        fused.template store<Variant::PACKED>(args.attn.at(batch, head, first_row, key), args.attn.stride[2],
                                              args.attn.stride[3], rows, int(min(keys - key, (long long)BLOCK_K)));
        fused.add_values({shared->v[stage]});
    }

    fused.finish(args.y, batch, head, first_row, rows, args.d_v, typename Fused::A(1));
}

}  // namespace baracuda
