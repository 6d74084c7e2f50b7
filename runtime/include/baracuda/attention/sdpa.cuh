// Attention that stores its probabilities: attn = softmax(scale q k^T + mask), y = attn v. Three kernels, launched in
// order.
//
// Every key takes part in the sums, also with weight zero: a NaN or an infinity in v reaches each query of its head, as
// 0 * NaN does in a plain softmax(s) v. In k and in the mask it reaches only queries that attend to the key.
#pragma once

#include <baracuda/attention/scores.cuh>
#include <baracuda/matrix/matmul.cuh>
#include <baracuda/row/row.cuh>
#include <baracuda/attention/sdpa_fused.cuh>

namespace baracuda {

// The head of keys and values of a head of queries.
template <class Args> __device__ long long kv_head(const Args& args, long long head) {
    return head / (args.num_heads / args.num_kv_heads);
}

// body(batch, head, query, lane) for every row of the scores that falls to this thread: LANES threads, a warp or the
// whole block, share a row.
template <class Schedule, class Args, class Body> __device__ void for_each_query(const Args& args, Body body) {
    constexpr int LANES = Schedule::LANES, ROWS = Schedule::THREADS / LANES;
    const long long queries = args.query_len, heads = args.num_heads, rows = args.batch_size * heads * queries;
    for (long long first = (long long)blockIdx.x * ROWS; first < rows; first += (long long)gridDim.x * ROWS) {
        const long long row = first + threadIdx.x / LANES, matrix = row / queries;
        if (row < rows) body(matrix / heads, matrix % heads, row % queries, int(threadIdx.x % LANES));
    }
}
template <class Schedule> using QueryRow = Tile<Schedule::LANES, Schedule::THREADS / Schedule::LANES, 1, true>;

// scores = scale q k^T + mask, and -infinity for keys that are causally masked. Nothing is rounded to T, so f16 does
// not overflow.
//
// Block -> parts of 64 queries x 64 keys of a head, thread -> a few rows and columns of it. Memory traffic: each part's
// rows of q and k once, and the scores.
template <typename T, class Schedule, class Variant, class Args> __device__ void sdpa_scores(const Args& args) {
    using A = acc_of<T>;
    Product<A, Schedule::THREADS> product;
    const long long queries = args.query_len, keys = args.key_len;
    const Band band = Band::of(queries, keys, args.bottom_right != 0, args.is_causal != 0, -1, -1);
    const Strided<A, 4> scores = dense(args.scores, args.num_heads, queries, keys);
    product.for_each_part(args.batch_size, args.num_heads, queries, keys, [&](const Part& part) {
        const long long last = min(part.row + product.SIDE, queries) - 1;
        product.clear();
        if (part.column < band.end(last))  // else the part is masked
            product.add(over_columns(args.q, part.batch, part.head),
                        over_columns(args.k, part.batch, kv_head(args, part.head)), part, args.d_k);
        A* const to = scores.at(part.batch, part.head);
        const T* mask = nullptr;
        if constexpr (Variant::HAS_MASK) mask = args.mask.at(part.batch, part.head);
        product.each(part, [&](long long query, long long key, A value) {
            value *= A(args.scale);
            if constexpr (Variant::HAS_MASK) value += A(mask[query * args.mask.stride[2] + key * args.mask.stride[3]]);
            to[query * keys + key] = band.sees(query, key) ? value : -math::infinity<A>();
        });
    });
}

// Probabilities of each row of scores, in place for `output` and rounded to T for the caller. A row that attends to no
// key, or whose scores are all -infinity, becomes zero.
//
// LANES threads -> a row, each thread every LANES-th key of it. Memory traffic: a row read three times (its largest
// score, its sum, its probabilities) and written twice.
template <typename T, class Schedule, class Variant, class Args> __device__ void sdpa_softmax(const Args& args) {
    using A = acc_of<T>;
    using Row = QueryRow<Schedule>;
    const long long keys = args.key_len;
    const Strided<A, 4> scores = dense(args.scores, args.num_heads, args.query_len, keys);
    int phase = 0;
    for_each_query<Schedule>(args, [&](long long batch, long long head, long long query, int lane) {
        A* const row = scores.at(batch, head, query);
        A largest = -math::infinity<A>(), sum = 0;
        for (long long key = lane; key < keys; key += Row::LANES) largest = math::maximum(largest, row[key]);
        largest = reduce_row<Row, Max<A>>(largest, phase);
        const A base = largest == -math::infinity<A>() ? A(0) : largest;  // then every power below is 0, not NaN
        for (long long key = lane; key < keys; key += Row::LANES) sum += math::exp(row[key] - base);
        sum = reduce_row<Row, Sum<A>>(sum, phase);
        const A total = sum == A(0) ? A(1) : sum;
        T* const attn = args.attn.at(batch, head, query);
        for (long long key = lane; key < keys; key += Row::LANES) {
            const A probability = math::exp(row[key] - base) / total;
            row[key] = probability;
            attn[key * args.attn.stride[3]] = T(probability);
        }
    });
}

// y = probabilities v, from probabilities that were not rounded to T.
//
// Block -> parts of 64 queries x 64 components of a head, thread -> a few rows and columns of it. Memory traffic: each
// part's rows of probabilities and columns of v once, and y.
template <typename T, class Schedule, class Variant, class Args> __device__ void sdpa_output(const Args& args) {
    using A = acc_of<T>;
    Product<A, Schedule::THREADS> product;
    const long long keys = args.key_len;
    const Strided<const A, 4> scores = dense<const A>(args.scores, args.num_heads, args.query_len, keys);
    product.for_each_part(args.batch_size, args.num_heads, args.query_len, args.d_v, [&](const Part& part) {
        product.clear();
        product.add(over_columns(scores, part.batch, part.head),
                    over_rows(args.v, part.batch, kv_head(args, part.head)), part, keys);
        T* const y = args.y.at(part.batch, part.head);
        product.each(part, [&](long long query, long long column, A value) {
            y[query * args.y.stride[2] + column * args.y.stride[3]] = T(value);
        });
    });
}

}  // namespace baracuda
