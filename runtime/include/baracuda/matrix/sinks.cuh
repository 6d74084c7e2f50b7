// Reductions of what a kernel makes of a product: over columns, PART of them at a time, and over rows, BAND of them.
// The body Sinks makes cells and the terms of both.
//
// A thread has 16 columns of a part, in fragments beside each other, of two rows. It reduces the first half of them and
// the second one, each in order, and combines the two; then threads of a quad combine what they have.
//
// Of a band a thread has two rows, which it combines for each column; then the eight threads that share columns combine
// what they have, neighbours first. So bits depend neither on the tile nor on the kernel.
#pragma once

#include <baracuda/map/reduce.cuh>

namespace baracuda {

constexpr int PART = 64, BAND = 16;

// What is reduced of two rows.
template <class M> struct OfRows {
    typename M::Value row[2];
};
template <class M> M monoid_of(const OfRows<M>&);
template <class Program> using RowSums = typename Program::template Reduced<OfRows>;

// What is reduced of the columns that a thread has of two fragments.
template <class M> struct OfColumns {
    typename M::Value column[8];
};
template <class M> M monoid_of(const OfColumns<M>&);
template <class Program> using ColumnSums = typename Program::template Reduced<OfColumns>;

// The terms of a phase: 1, or 2, which knows what 1 reduced of columns. Bands are reduced in phase 1.
constexpr int OF_BANDS = 3;
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

// A lane gets what the eight that share its columns have of one of these: halves of what is left are exchanged.
template <class Monoid, typename V> __device__ __forceinline__ V reduce_band(V (&column)[8]) {
#pragma unroll
    for (int left = 4, away = 4; left > 0; left /= 2, away *= 2) {
        const bool second = threadIdx.x & away;
#pragma unroll
        for (int c = 0; c < left; ++c) {
            const V own = second ? column[left + c] : column[c], given = second ? column[c] : column[left + c];
            column[c] = Monoid::combine(own, __shfl_xor_sync(ALL_LANES, given, away));
        }
    }
    return column[0];
}

// The lane of what is stored of a band: of one column.
template <class Program, class P> struct ColumnLane {
    P& packs;
    const typename Program::template Reduced<ValueOf>& reduced;
    template <class Compute> __device__ __forceinline__ void each(const Compute& compute) const {
        compute(PackLane<P>{packs, 0, 0}, reduced);
    }
};

// Stores what belongs to a band, one of 32 columns in each lane.
template <class Program, class Cells>
__device__ __forceinline__ void store_band(ColumnSums<Program>& columns, const Cells (&cells)[2],
                                           const typename Program::Args& args) {
    typename Program::template Reduced<ValueOf> reduced;
    each_of_phase<Program, OF_BANDS>(
        [](auto& value, auto& of) {
            using Monoid = decltype(monoid_of(of));
            value = reduce_band<Monoid>(of.column);
        },
        reduced, columns);
    Packs<typename Program::Bands, 1, 1> packs;
    packs.compute(args, ColumnLane<Program, decltype(packs)>{packs, reduced});
    const int lane = threadIdx.x % 32, within = (lane & 4) * 4 + (lane & 8) + (lane >> 4);
    const long long column = cells[0].column + within, row = cells[0].row - lane / 4;
    packs.writes(args, [&](const auto& pack, auto* data, int operand) {
        const long long* const stride = args.stride[operand];
        if (row < cells[0].rows && column < cells[0].columns)
            data[cells[0].matrix * stride[0] + row / BAND * stride[1] + column * stride[2]] = pack[0].lane[0];
    });
}

// The lanes of fragments, each of which adds its terms to those of its row, and of its column.
template <class Program, int PHASE, class P, typename A, class Cells, int FRAGMENTS> struct SinkLanes {
    P (&packs)[FRAGMENTS];
    const A (&sum)[FRAGMENTS][8];
    const Cells (&cells)[FRAGMENTS];
    RowSums<Program>& reduced;
    ColumnSums<Program>& columns;
    template <class Compute> __device__ __forceinline__ void each(const Compute& compute) const {
#pragma unroll
        for (int f = 0; f < FRAGMENTS; ++f)
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int row = i / 2 % 2, column = 4 * f + i / 4 * 2 + i % 2;
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
                if (PHASE == 1)
                    each_of_phase<Program, OF_BANDS>(
                        [&](auto& of, const auto& value) {
                            using Monoid = decltype(monoid_of(of));
                            of.column[column] = Monoid::combine(of.column[column], value);
                        },
                        columns, term);
            }
    }
};

// Reduces what a thread has of fragments beside each other; `keep(packs)` gets the cells.
template <class Program, int PHASE, typename A, class Cells, int FRAGMENTS, class Keep>
__device__ __forceinline__ void reduce_fragments(RowSums<Program>& reduced, const A (&sum)[FRAGMENTS][8],
                                                 const Cells (&cells)[FRAGMENTS], const typename Program::Args& args,
                                                 const Keep& keep) {
    using Of = Packs<typename SinksOf<Program, PHASE>::type, 2, Cells::PAIRS>;
    Of packs[FRAGMENTS];
    ColumnSums<Program> columns;
#pragma unroll
    for (int f = 0; f < FRAGMENTS; ++f) read_fragment(packs[f], cells[f], args);
    each_of_phase<Program, PHASE>(
        [](auto& of) {
            using Monoid = decltype(monoid_of(of));
            of.row[0] = of.row[1] = Monoid::none();
        },
        reduced);
    each_of_phase<Program, OF_BANDS>(
        [](auto& of) {
            using Monoid = decltype(monoid_of(of));
#pragma unroll
            for (int c = 0; c < 4 * FRAGMENTS; ++c) of.column[c] = Monoid::none();
        },
        columns);
    packs[0].compute(args, SinkLanes<Program, PHASE, Of, A, Cells, FRAGMENTS>{packs, sum, cells, reduced, columns});
    if constexpr (PHASE == 1) {
        keep(packs);
        if constexpr (Program::BANDS > 0) store_band<Program>(columns, cells, args);
    }
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
template <class Program, int PHASE, typename A, class Cells, class Keep>
__device__ __forceinline__ void reduce_phase(RowSums<Program>& reduced, const A (&sum)[2][2][8],
                                             const Cells (&cells)[2][2], const typename Program::Args& args,
                                             const Keep& keep) {
    RowSums<Program> second = reduced;
    reduce_fragments<Program, PHASE>(reduced, sum[0], cells[0], args, [&](const auto& packs) { keep(packs, 0); });
    reduce_fragments<Program, PHASE>(second, sum[1], cells[1], args, [&](const auto& packs) { keep(packs, 1); });
    combine<Program, PHASE>(reduced, second);
    reduce_quad<Program, PHASE>(reduced);
}
template <class Program, typename A, class Cells, class Keep>
__device__ __forceinline__ void reduce_part(const A (&sum)[2][2][8], const Cells (&cells)[2][2],
                                            const typename Program::Args& args, const Keep& keep) {
    RowSums<Program> reduced;
    reduce_phase<Program, 1>(reduced, sum, cells, args, keep);
    if constexpr (Program::SINKS > 1) reduce_phase<Program, 2>(reduced, sum, cells, args, keep);
    if constexpr (Program::SINKS > 0) store_part<Program>(reduced, cells[0][0], args);
}

}  // namespace baracuda
