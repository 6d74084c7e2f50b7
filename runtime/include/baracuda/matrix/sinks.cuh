// Reductions over the columns of a product, PART of them at a time: a kernel that makes them stores nothing of every
// element.
//
// A thread has 16 columns of a part, in fragments beside each other, of two rows. It reduces the first half of them and
// the second one, each in order, and combines the two; then threads of a quad combine what they have. So bits do not
// depend on the tile, nor on the kernel.
#pragma once

#include <baracuda/map/reduce.cuh>

namespace baracuda {

constexpr int PART = 64;

// What is reduced of two rows.
template <class M> struct OfRows {
    typename M::Value row[2];
};
template <class M> M monoid_of(const OfRows<M>&);
template <class Program> using RowSums = typename Program::template Reduced<OfRows>;

// The terms of a phase: 1, or 2, which knows what 1 reduced.
template <class Program, int PHASE> struct SinksOf {
    using type = typename Program::Sinks;
};
template <class Program> struct SinksOf<Program, 2> {
    using type = typename Program::LateSinks;
};

// f(parts...) of each reduction of a phase; of phase 0, the product.
template <class Program, int PHASE, class F, class First, class... Lists>
__device__ __forceinline__ void each_of_phase(const F& f, First& first, Lists&... lists) {
    int slot = 0;
    first.each(
        [&](auto&... parts) {
            if ((Program::PHASES >> 4 * slot++ & 15) == PHASE) f(parts...);
        },
        first, lists...);
}

// The lanes of fragments, each of which adds its terms to those of its row.
template <class Program, int PHASE, class P, typename A, class Cells, int FRAGMENTS> struct SinkLanes {
    P (&packs)[FRAGMENTS];
    const A (&sum)[FRAGMENTS][8];
    const Cells (&cells)[FRAGMENTS];
    RowSums<Program>& reduced;
    template <class Compute> __device__ __forceinline__ void each(const Compute& compute) const {
#pragma unroll
        for (int f = 0; f < FRAGMENTS; ++f)
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int row = i / 2 % 2;
                typename Program::template Reduced<ValueOf> known, term;
                known.each([&](auto& value, const auto& of) { value = of.row[row]; }, known, reduced);
                each_of_phase<Program, 0>([&](auto& value) { value = sum[f][i]; }, known);
                compute(PackLane<P>{packs[f], i / 2, i % 2}, known, term);
                if (cells[f].live(i / 2) <= i % 2) continue;
                each_of_phase<Program, PHASE>(
                    [&](auto& of, const auto& value) {
                        using Monoid = decltype(monoid_of(of));
                        of.row[row] = Monoid::combine(of.row[row], value);
                    },
                    reduced, term);
            }
    }
};

// Reduces the columns that a thread has of fragments beside each other.
template <class Program, int PHASE, typename A, class Cells, int FRAGMENTS>
__device__ __forceinline__ void reduce_fragments(RowSums<Program>& reduced, const A (&sum)[FRAGMENTS][8],
                                                 const Cells (&cells)[FRAGMENTS], const typename Program::Args& args) {
    using Of = Packs<typename SinksOf<Program, PHASE>::type, 2, Cells::PAIRS>;
    Of packs[FRAGMENTS];
#pragma unroll
    for (int f = 0; f < FRAGMENTS; ++f) read_fragment(packs[f], cells[f], args);
    each_of_phase<Program, PHASE>(
        [](auto& of) {
            using Monoid = decltype(monoid_of(of));
            of.row[0] = of.row[1] = Monoid::none();
        },
        reduced);
    packs[0].compute(args, SinkLanes<Program, PHASE, Of, A, Cells, FRAGMENTS>{packs, sum, cells, reduced});
}

template <class Program, int PHASE>
__device__ __forceinline__ void combine(RowSums<Program>& first, const RowSums<Program>& second) {
    each_of_phase<Program, PHASE>(
        [](auto& of, const auto& other) {
            using Monoid = decltype(monoid_of(of));
#pragma unroll
            for (int row = 0; row < 2; ++row) of.row[row] = Monoid::combine(of.row[row], other.row[row]);
        },
        first, second);
}

// All lanes of a quad get what they have together.
template <class Program, int PHASE> __device__ __forceinline__ void reduce_quad(RowSums<Program>& reduced) {
    each_of_phase<Program, PHASE>(
        [](auto& of) {
            using Monoid = decltype(monoid_of(of));
#pragma unroll
            for (int away = 1; away < 4; away *= 2)
#pragma unroll
                for (int row = 0; row < 2; ++row)
                    of.row[row] = Monoid::combine(of.row[row], __shfl_xor_sync(ALL_LANES, of.row[row], away));
        },
        reduced);
}

// The lanes of what is stored of a part: one of each row.
template <class Program, class P> struct RowLanes {
    P& packs;
    const RowSums<Program>& reduced;
    template <class Compute> __device__ __forceinline__ void each(const Compute& compute) const {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            typename Program::template Reduced<ValueOf> known;
            known.each([&](auto& value, const auto& of) { value = of.row[row]; }, known, reduced);
            compute(PackLane<P>{packs, 0, row}, known);
        }
    }
};

// Stores what belongs to a part, in one lane of each quad. `cells` are those of its first fragment.
template <class Program, class Cells>
__device__ __forceinline__ void store_part(const RowSums<Program>& reduced, const Cells& cells,
                                           const typename Program::Args& args) {
    if (threadIdx.x % 4 != 0) return;
    Packs<typename Program::Epilogue, 2, 1> packs;
    packs.compute(args, RowLanes<Program, decltype(packs)>{packs, reduced});
    packs.writes(args, [&](const auto& pack, auto* data, int operand) {
        const long long* const stride = args.stride[operand];
        auto* const to = data + cells.matrix * stride[0] + cells.row * stride[1] + cells.column / PART * stride[2];
#pragma unroll
        for (int row = 0; row < 2; ++row)
            if (cells.row + row * Cells::APART < cells.rows) to[row * Cells::APART * stride[1]] = pack[0].lane[row];
    });
}

// A part of which a thread has four fragments.
template <class Program, int PHASE, typename A, class Cells>
__device__ __forceinline__ void reduce_phase(RowSums<Program>& reduced, const A (&sum)[2][2][8],
                                             const Cells (&cells)[2][2], const typename Program::Args& args) {
    RowSums<Program> second = reduced;
    reduce_fragments<Program, PHASE>(reduced, sum[0], cells[0], args);
    reduce_fragments<Program, PHASE>(second, sum[1], cells[1], args);
    combine<Program, PHASE>(reduced, second);
    reduce_quad<Program, PHASE>(reduced);
}
template <class Program, typename A, class Cells>
__device__ __forceinline__ void reduce_part(const A (&sum)[2][2][8], const Cells (&cells)[2][2],
                                            const typename Program::Args& args) {
    RowSums<Program> reduced;
    reduce_phase<Program, 1>(reduced, sum, cells, args);
    if constexpr (Program::SINKS > 1) reduce_phase<Program, 2>(reduced, sum, cells, args);
    store_part<Program>(reduced, cells[0][0], args);
}

}  // namespace baracuda
