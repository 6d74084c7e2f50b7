// Reductions of a map: what a term is, how two values become one, and in which order a block's threads do so.
#pragma once

#include <baracuda/map/map.cuh>

namespace baracuda {

// Compensated summation: the error does not grow with the number of terms.
template <typename A> struct Compensated {
    A high = 0, low = 0;

    __device__ void add(A term) {
        const A sum = high + term, seen = sum - high;
        low += (high - (sum - seen)) + (term - seen);
        high = sum;
    }
    // Once the sum is infinite or NaN, `low` means nothing.
    __device__ A total() const { return low - low == A(0) ? high + low : high; }
};

// A sum of terms. GUARDED: a term counts only if its cell exists; without, it is 0 where all inputs are 0.
template <typename A, bool GUARDED_ = true> struct Sum {
    static constexpr bool GUARDED = GUARDED_;
    using Value = A;
    using Part = Compensated<A>;  // of a thread
    __device__ static Value none() { return 0; }
    __device__ static Value combine(Value a, Value b) { return a + b; }
};

// What a walk has of each reduction M.
template <class M> using ValueOf = typename M::Value;
template <class M> using PartsOf = typename M::Value*;  // [splits, output cells]

// The terms of N lanes at each of STEPS units that a thread takes at a time.
template <int STEPS, int N> struct Step {
    template <class M> struct Terms {
        static_assert((STEPS & (STEPS - 1)) == 0 && (N & (N - 1)) == 0, "terms pair up");
        typename M::Value of[STEPS][N];

        __device__ void set(int step, int lane, typename M::Value term, bool exists) {
            of[step][lane] = !M::GUARDED || exists ? term : M::none();
        }
        // Pairwise reduction of the steps, as far as pairs are complete once the GROUP steps at `from` are.
        template <int GROUP> __device__ void pair_up(int from) {
#pragma unroll
            for (int half = 1; half < STEPS; half *= 2)
#pragma unroll
                for (int s = half; s < STEPS; s += 2 * half) {
                    if (s + half <= from || s + half > from + GROUP) continue;
#pragma unroll
                    for (int i = 0; i < N; ++i) of[s - half][i] = M::combine(of[s - half][i], of[s][i]);
                }
        }
        __device__ void pair_up_lanes() {
#pragma unroll
            for (int half = N / 2; half > 0; half /= 2)
#pragma unroll
                for (int i = 0; i < half; ++i) of[0][i] = M::combine(of[0][i], of[0][i + half]);
        }
    };
};

// The OUTPUTS values of a thread's owner.
template <int OUTPUTS> struct Owned {
    // Those of the terms that a thread has seen.
    template <class M> struct Parts {
        typename M::Part of[OUTPUTS];

        // A step's pairs. Rows: one for the only output; columns: one for each.
        template <class Terms> __device__ void add(Terms& terms) {
            if (OUTPUTS == 1) terms.pair_up_lanes();
#pragma unroll
            for (int i = 0; i < OUTPUTS; ++i) of[i].add(terms.of[0][i]);
        }
        // Parts of splits, `pitch` apart; each slice adds every slices-th.
        template <class Share>
        __device__ void add_splits(const typename M::Value* split, long long splits, long long pitch,
                                   const Share& share) {
#pragma unroll 4
            for (long long s = share.slice; s < splits; s += share.slices) of[0].add(split[s * pitch]);
        }
    };
    template <class M> struct Values {
        typename M::Value of[OUTPUTS];

        // The slices of an owner pairwise; slice 0 gets the value. Neighbouring owners are contiguous in scratch.
        template <class Share> __device__ void reduce_slices(const Parts<M>& parts, const Share& share) {
            // Aligned, so that 16-byte reads of one touch no other.
            struct alignas(16) Scratch {
                typename M::Value of[OUTPUTS][Share::THREADS];
            };
            __shared__ Scratch scratch;
#pragma unroll
            for (int i = 0; i < OUTPUTS; ++i) of[i] = parts.of[i].total();
            for (int half = share.slices / 2; half > 0; half /= 2) {
                __syncthreads();  // the last values have been read
                if (share.slice >= half && share.slice < 2 * half) {
#pragma unroll
                    for (int i = 0; i < OUTPUTS; ++i)
                        scratch.of[i][(share.slice - half) * share.owners + share.owner] = of[i];
                }
                __syncthreads();
                if (share.slice < half) {
#pragma unroll
                    for (int i = 0; i < OUTPUTS; ++i)
                        of[i] = M::combine(of[i], scratch.of[i][share.slice * share.owners + share.owner]);
                }
            }
        }
        template <class I> __device__ void write(typename M::Value* split, I cell_stride, int live) const {
#pragma unroll
            for (int i = 0; i < OUTPUTS; ++i)
                if (i < live) split[i * cell_stride] = of[i];
        }
    };
};

}  // namespace baracuda
