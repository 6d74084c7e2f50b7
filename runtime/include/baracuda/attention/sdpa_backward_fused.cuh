// Gradients of attention from the saved probabilities, of 16-bit types and by tiles. `fused` first, which stores dS
// rounded to T; then the sums over queries.
#pragma once

#include <baracuda/matrix/matmul.cuh>
#include <baracuda/attention/sdpa_fused.cuh>

namespace baracuda {

// Runs the forward tile code with dP = dy v^T as scores and dq = dS k as output.
template <class Plain> struct SdpaBackwardVariant : Plain {
    static constexpr bool BAND = false, SOFTCAP = false, HAS_ALIBI_SLOPES = false, HAS_MASK = false;
    static constexpr int DK = Plain::DV, DV = Plain::DK;
};

// dS = attn (dP - rowsum(attn dP)), dq = scale dS k.
//
// Block -> a batch, a head and BLOCK_Q queries; warp -> its share of these rows, all columns; lane -> the elements of
// Mma's sums. Memory traffic: dy and dq once, keys once, values and probabilities twice for each block, and dS.
template <typename T, class Schedule, class Plain, class Args> __device__ void sdpa_backward_fused(const Args& args) {
    using Variant = SdpaBackwardVariant<Plain>;
    using Fused = SdpaFused<T, Schedule, Variant>;
    using A = typename Fused::A;
    constexpr int BLOCK_Q = Schedule::BLOCK_Q, BLOCK_K = Schedule::BLOCK_K;
    using Weights = SharedTile<T, BLOCK_Q, BLOCK_K>;
    struct Shared {
        typename Fused::Shared rows;
        T attn[2][BLOCK_Q * BLOCK_K];
    };
    DYN_SHARED(Shared, shared);
    static_assert(reserves(sizeof(Shared)), "the launch reserves Shared");

    const long long queries = args.query_len, keys = args.key_len, tiles = (queries + BLOCK_Q - 1) / BLOCK_Q;
    if (blockIdx.x >= tiles * args.num_heads * args.batch_size) return;
    const unsigned which = blockIdx.x / unsigned(tiles), heads = unsigned(args.num_heads);
    const long long batch = which / heads, head = which % heads, kv_head = head / (heads / unsigned(args.num_kv_heads));
    const long long first_row = blockIdx.x % unsigned(tiles) * BLOCK_Q;
    const int rows = int(min((long long)BLOCK_Q, queries - first_row));
    const Strided<T, 4> dscores = dense(args.rounded, args.num_heads, queries, keys);

    const T* const attn = args.attn.at(batch, head, first_row);
    const T* const k = args.k.at(batch, kv_head);
    const T* const v = args.v.at(batch, kv_head);
    const auto load = [&](long long key, int stage, bool with_keys) {
        if (key < keys) {
            const long long left = keys - key;
            Fused::copy(typename Fused::KTile{shared->rows.k[stage]}, v + key * args.v.stride[2], args.v.stride, left,
                        args.d_v);
            Fused::copy(Weights{shared->attn[stage]}, attn + key * args.attn.stride[3], args.attn.stride, rows, left);
            if (with_keys)
                Fused::copy(typename Fused::VTile{shared->rows.v[stage]}, k + key * args.k.stride[2], args.k.stride,
                            left, args.d_k);
        }
        cp_async_commit_group();
    };
    const auto arrive = [&] {
        cp_async_wait_group<0>();
        __syncthreads();  // the copies have arrived, and the other buffer is free
    };

    Fused fused(args.scale);
    const typename Fused::QTile dy{shared->rows.q};
    Fused::copy(dy, args.dy.at(batch, head, first_row), args.dy.stride, rows, args.d_v);
    load(0, 0, false);
    arrive();
    fused.load_query_fragments(dy);
    int stage = 0;
    for (long long key = 0; key < keys; key += BLOCK_K, stage ^= 1) {
        arrive();
        load(key + BLOCK_K, stage ^ 1, false);
        fused.multiply_keys(dy, {shared->rows.k[stage]});
        Fused::each_row([&](int m, int side) {
            fused.each_beside(Weights{shared->attn[stage]}, m, side, [&](A& dp, A weight) {
                fused.total[m][side] = math::fma(weight, dp, fused.total[m][side]);
            });
        });
    }
    Fused::each_row([&](int m, int side) {
        A& mean = fused.total[m][side];
        mean += __shfl_xor_sync(ALL_LANES, mean, 1);
        mean += __shfl_xor_sync(ALL_LANES, mean, 2);
    });

    __syncthreads();  // values and probabilities are used
    load(0, 0, true);
    stage = 0;
    for (long long key = 0; key < keys; key += BLOCK_K, stage ^= 1) {
        arrive();
        load(key + BLOCK_K, stage ^ 1, true);
        fused.multiply_keys(dy, {shared->rows.k[stage]});
        Fused::each_row([&](int m, int side) {
            fused.each_beside(Weights{shared->attn[stage]}, m, side,
                              [&](A& dp, A weight) { dp = weight * (dp - fused.total[m][side]); });
        });
        const int here = int(min(keys - key, (long long)BLOCK_K));
        fused.template store<Variant::PACKED>(dscores.at(batch, head, first_row, key), keys, 1, rows, here);
        if constexpr (Plain::HAS_DMASK)
            fused.template store<false>(args.dmask.at(batch, head, first_row, key), args.dmask.stride[2],
                                        args.dmask.stride[3], rows, here);
        fused.add_values({shared->rows.v[stage]});
    }
    fused.finish(args.dq, batch, head, first_row, rows, args.d_k, A(args.scale));
}

// gradient = factor * sum over the heads of a group and their queries of weights^T x.
//
// Block -> a batch, a head of keys and KEYS of these; warp -> its share of the keys, all columns; lane -> the elements
// of Mma's sums. Memory traffic: the gradient and each weight once, and x once for each block.
template <typename T, class Schedule, bool PACKED, int D, class Args>
__device__ void fused_sum_over_queries(const Args& args, const Strided<const T, 4>& weights,
                                       const Strided<const T, 4>& x, const Strided<T, 4>& gradient, long long size,
                                       acc_of<T> factor) {
    using M = Mma<T>;
    constexpr int KEYS = Schedule::KV_BLOCK, STREAM = Schedule::STREAM, WARP_KEYS = KEYS / (Schedule::THREADS / 32);
    constexpr int PARTS = WARP_KEYS / M::ROWS;
    static_assert(PARTS * M::ROWS == WARP_KEYS, "warps own whole fragments");
    using Weights = SharedTile<T, STREAM, KEYS>;
    using Rows = SharedTile<T, STREAM, D>;
    struct Shared {
        T weights[2][STREAM * KEYS], x[2][STREAM * D];
    };
    DYN_SHARED(Shared, shared);
    static_assert(reserves(sizeof(Shared)), "the launch reserves Shared");

    const long long queries = args.query_len, keys = args.key_len, tiles = (keys + KEYS - 1) / KEYS;
    if (blockIdx.x >= tiles * args.num_kv_heads * args.batch_size) return;
    const unsigned which = blockIdx.x / unsigned(tiles), kv_heads = unsigned(args.num_kv_heads);
    const long long batch = which / kv_heads, kv_head = which % kv_heads, group = args.num_heads / kv_heads;
    const long long first_key = blockIdx.x % unsigned(tiles) * KEYS, left = keys - first_key;
    const long long steps = (queries + STREAM - 1) / STREAM;
    const auto load = [&](long long step, int stage) {
        if (step < steps * group) {
            const long long head = kv_head * group + step / steps, row = step % steps * STREAM;
            copy_tile<Schedule::THREADS, PACKED>(Weights{shared->weights[stage]},
                                                 weights.at(batch, head, row, first_key), weights.stride, queries - row,
                                                 left);
            copy_tile<Schedule::THREADS, PACKED>(Rows{shared->x[stage]}, x.at(batch, head, row), x.stride,
                                                 queries - row, size);
        }
        cp_async_commit_group();
    };
    typename M::Sum sum[PARTS][D / 8] = {};
    const int top = int(threadIdx.x / 32) * WARP_KEYS;
    load(0, 0);
    int stage = 0;
    for (long long step = 0; step < steps * group; ++step, stage ^= 1) {
        cp_async_wait_group<0>();
        __syncthreads();  // the copies have arrived, and the other buffer is free
        load(step + 1, stage ^ 1);
        const Weights of{shared->weights[stage]};
        const Rows row{shared->x[stage]};
        const int lane = opaque(M::lane());
#pragma unroll
        for (int q = 0; q < STREAM; q += M::DEPTH) {
            typename M::Left weight[PARTS];
#pragma unroll
            for (int part = 0; part < PARTS; ++part)
                weight[part] = M::left_transposed(of, top + part * M::ROWS, q, lane);
#pragma unroll
            for (int n = 0; n < D / 8; n += 2) {
                const typename M::Right right = M::right(row, q, n * 8, lane);
#pragma unroll
                for (int part = 0; part < PARTS; ++part) M::multiply(&sum[part][n], weight[part], right);
            }
        }
    }
#pragma unroll
    for (int part = 0; part < PARTS; ++part)
#pragma unroll
        for (int i = 0; i < M::VALUES; ++i) {
            const int key = top + part * M::ROWS + M::row(i);
            if (key >= left) continue;
            T* const to = gradient.at(batch, kv_head, first_key + key);
#pragma unroll
            for (int n = 0; n < D / 8; ++n)
                if (const int col = n * 8 + M::col(i); col < size)
                    to[col * gradient.stride[3]] = T(factor * sum[part][n].value[i]);
        }
}

// dk = scale dS^T q, by `fused_sum_over_queries`.
template <typename T, class Schedule, class Variant, class Args> __device__ void sdpa_backward_fused_key(
    const Args& args) {
    const auto dscores = dense<const T>(args.rounded, args.num_heads, args.query_len, args.key_len);
    fused_sum_over_queries<T, Schedule, Variant::PACKED, Variant::DK>(args, dscores, args.q, args.dk, args.d_k,
                                                                      acc_of<T>(args.scale));
}

// dv = attn^T dy, by `fused_sum_over_queries`.
template <typename T, class Schedule, class Variant, class Args> __device__ void sdpa_backward_fused_value(
    const Args& args) {
    fused_sum_over_queries<T, Schedule, Variant::PACKED, Variant::DV>(args, args.attn, args.dy, args.dv, args.d_v,
                                                                      acc_of<T>(1));
}

}  // namespace baracuda
