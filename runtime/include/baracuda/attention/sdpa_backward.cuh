// Gradients of attention from the saved probabilities. Five kernels, `scores` and `softmax` first:
//
//     dP = dy v^T,  dS = attn (dP - rowsum(attn dP)),  dq = scale dS k,  dk = scale dS^T q,  dv = attn^T dy
//
// One block sums over the heads that share keys and values, in order: no atomics, no zeroing.
#pragma once

#include <baracuda/attention/sdpa.cuh>
#include <baracuda/attention/sdpa_backward_fused.cuh>

namespace baracuda {

// dscores = dP = dy v^T.
//
// Block -> parts of 64 queries x 64 keys of a head, thread -> a few rows and columns of it. Memory traffic: each part's
// rows of dy and v once, and dP.
template <typename T, class Schedule, class Variant, class Args>
__device__ void sdpa_backward_scores(const Args& args) {
    using A = acc_of<T>;
    Product<A, Schedule::THREADS> product;
    const long long queries = args.query_len, keys = args.key_len;
    const Strided<A, 4> dscores = dense(args.dscores, args.num_heads, queries, keys);
    product.for_each_part(args.batch_size, args.num_heads, queries, keys, [&](const Part& part) {
        product.clear();
        product.add(over_columns(args.dy, part.batch, part.head),
                    over_columns(args.v, part.batch, kv_head(args, part.head)), part, args.d_v);
        A* const to = dscores.at(part.batch, part.head);
        product.each(part, [&](long long query, long long key, A value) { to[query * keys + key] = value; });
    });
}

// dscores = dS = attn (dP - rowsum(attn dP)), which is the gradient of the additive mask too.
//
// LANES threads -> a row, each thread every LANES-th key of it. Memory traffic: a row of attn and dP read twice and of
// dS written.
template <typename T, class Schedule, class Variant, class Args>
__device__ void sdpa_backward_softmax(const Args& args) {
    using A = acc_of<T>;
    using Row = QueryRow<Schedule>;
    const long long keys = args.key_len;
    const Strided<A, 4> dscores = dense(args.dscores, args.num_heads, args.query_len, keys);
    int phase = 0;
    for_each_query<Schedule>(args, [&](long long batch, long long head, long long query, int lane) {
        A* const row = dscores.at(batch, head, query);
        const T* const attn = args.attn.at(batch, head, query);
        const long long step = args.attn.stride[3];
        A sum = 0;
        for (long long key = lane; key < keys; key += Row::LANES) sum = math::fma(A(attn[key * step]), row[key], sum);
        sum = reduce_row<Row, Sum<A>>(sum, phase);
        T* dmask = nullptr;
        if constexpr (Variant::HAS_DMASK) dmask = args.dmask.at(batch, head, query);
        for (long long key = lane; key < keys; key += Row::LANES) {
            const A gradient = A(attn[key * step]) * (row[key] - sum);
            row[key] = gradient;
            if constexpr (Variant::HAS_DMASK) dmask[key * args.dmask.stride[3]] = T(gradient);
        }
    });
}

// dq = scale dS k.
//
// Block -> parts of 64 queries x 64 components of a head, thread -> a few rows and columns of it. Memory traffic: each
// part's rows of dS and columns of k once, and dq.
template <typename T, class Schedule, class Variant, class Args> __device__ void sdpa_backward_query(const Args& args) {
    using A = acc_of<T>;
    Product<A, Schedule::THREADS> product;
    const long long queries = args.query_len, keys = args.key_len;
    const Strided<const A, 4> dscores = dense<const A>(args.dscores, args.num_heads, queries, keys);
    product.for_each_part(args.batch_size, args.num_heads, queries, args.d_k, [&](const Part& part) {
        product.clear();
        product.add(over_columns(dscores, part.batch, part.head),
                    over_rows(args.k, part.batch, kv_head(args, part.head)), part, keys);
        T* const dq = args.dq.at(part.batch, part.head);
        product.each(part, [&](long long query, long long column, A value) {
            dq[query * args.dq.stride[2] + column * args.dq.stride[3]] = T(A(args.scale) * value);
        });
    });
}

// Shared by `key` and `value`: gradient of a head = factor * sum over its group's heads of weights^T x.
template <typename T, class Schedule, typename W, class Args>
__device__ void sum_over_queries(const Args& args, const Strided<const W, 4>& weights, const Strided<const T, 4>& x,
                                 const Strided<T, 4>& gradient, long long size, acc_of<T> factor) {
    using A = acc_of<T>;
    Product<A, Schedule::THREADS> product;
    product.for_each_part(args.batch_size, args.num_kv_heads, args.key_len, size, [&](const Part& part) {
        const long long group = args.num_heads / args.num_kv_heads;
        product.clear();
        for (long long head = part.head * group; head < (part.head + 1) * group; ++head)
            product.add(over_rows(weights, part.batch, head), over_rows(x, part.batch, head), part, args.query_len);
        T* const to = gradient.at(part.batch, part.head);
        product.each(part, [&](long long key, long long column, A value) {
            to[key * gradient.stride[2] + column * gradient.stride[3]] = T(factor * value);
        });
    });
}

// dk = scale dS^T q.
//
// Block -> parts of 64 keys x 64 components of a head of keys, thread -> a few rows and columns of it. Memory traffic:
// each part's columns of dS and q once for every head of the group, and dk.
template <typename T, class Schedule, class Variant, class Args> __device__ void sdpa_backward_key(const Args& args) {
    const auto dscores = dense<const acc_of<T>>(args.dscores, args.num_heads, args.query_len, args.key_len);
    sum_over_queries<T, Schedule>(args, dscores, args.q, args.dk, args.d_k, acc_of<T>(args.scale));
}

// dv = attn^T dy.
//
// Block -> parts of 64 keys x 64 components of a head of keys, thread -> a few rows and columns of it. Memory traffic:
// each part's columns of attn and dy once for every head of the group, and dv.
template <typename T, class Schedule, class Variant, class Args> __device__ void sdpa_backward_value(const Args& args) {
    sum_over_queries<T, Schedule>(args, args.attn, args.dy, args.dv, args.d_v, acc_of<T>(1));
}

}  // namespace baracuda
