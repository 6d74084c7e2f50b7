// Matrix products with an epilogue: the result of each cell is made of the sum of its products and of what else the
// program reads there.
//
// A program has a body, Epilogue (see body.cuh), and Weights where parts of sums have weights (weights.cuh), or Sinks
// where it also reduces cells (sinks.cuh). Macros
// name the factors, [batch, row, depth] and [batch, column, depth], and the first output. A second right factor
// multiplies the left one, too: a cell then has two sums. Each factor is contiguous along its side (SIDE) or along the
// depth, unless they are STRIDED. With TMA, the copy engine moves factors, and a result of 16-bit elements. With
// COPIED, threads copy factors for the instructions that usually take what TMA moves, whose sums no others repeat.
#pragma once

#include <baracuda/arch/cluster_dims.cuh>
#include <baracuda/map/body.cuh>
#include <baracuda/map/reduce.cuh>
#include <baracuda/matrix/spans.cuh>
#include <baracuda/matrix/weights.cuh>
#if BARACUDA_TMA
#include <baracuda/arch/tma_sm90.cuh>
#endif

namespace baracuda {

// Set by the plan at compile time.
using Element = BARACUDA_ELEMENT;
struct Schedule {
    static constexpr int BARACUDA_SCHEDULE;
};
#ifdef BARACUDA_FACTOR_BYTES  // of an element of a factor, where that is one
constexpr int FACTOR_BYTES = BARACUDA_FACTOR_BYTES;
#else
constexpr int FACTOR_BYTES = sizeof(Element);
#endif
#ifdef BARACUDA_SECOND
constexpr int PRODUCTS = 2;
#else
constexpr int PRODUCTS = 1;
#endif
// The operands, by their numbers, that are vectors along rows, or along columns.
#ifdef BARACUDA_OF_ROWS
constexpr unsigned long long OF_ROWS = BARACUDA_OF_ROWS, OF_COLUMNS = BARACUDA_OF_COLUMNS;
#else
constexpr unsigned long long OF_ROWS = 0, OF_COLUMNS = 0;
#endif
__device__ constexpr bool is_of_rows(int operand) { return OF_ROWS >> operand & 1; }
__device__ constexpr bool is_of_columns(int operand) { return OF_COLUMNS >> operand & 1; }
__device__ constexpr bool is_vector(int operand) { return is_of_rows(operand) || is_of_columns(operand); }
#ifdef BARACUDA_ROUNDED  // floats, to tf32 before they are multiplied
constexpr bool ROUNDED = true;
#else
constexpr bool ROUNDED = false;
#endif
// What a kernel does of sums of parts of the depth: makes and stores them, or adds them up.
enum class Split { NONE, SUMS, MERGE };
#ifdef BARACUDA_SPLIT
constexpr Split SPLIT = Split(BARACUDA_SPLIT);
#else
constexpr Split SPLIT = Split::NONE;
#endif
constexpr bool LEFT_SIDE = BARACUDA_LEFT_SIDE, RIGHT_SIDE = BARACUDA_RIGHT_SIDE, STRIDED = BARACUDA_STRIDED;

// What the arguments of a kernel begin with.
template <int OPERANDS_> struct WalkArgs {
    static constexpr int OPERANDS = OPERANDS_;
#if BARACUDA_TMA
    TensorMap left_map, right_map;
#ifdef BARACUDA_SECOND
    TensorMap second_map;
#endif
    TensorMap result_map;
#endif
    long long batch, rows, columns, depth;
    long long stride[OPERANDS][3];  // of each operand, along batch, rows and columns; of factors, batch, side and depth
#ifdef BARACUDA_WEIGHTS
    long long depth_stride[OPERANDS];  // of what weights are made of
#endif
#ifdef BARACUDA_SPLIT
    long long split, split_terms;  // parts of the depth, and what each has of it
#endif
};
template <class M> using ScratchOf = typename M::Value*;  // sums of parts of the depth, or a copied factor's place

template <int VALUE_> struct Size {
    static constexpr int VALUE = VALUE_;
};
template <bool FIRST, typename A, typename B> struct Choice {
    using type = A;
};
template <typename A, typename B> struct Choice<false, A, B> {
    using type = B;
};

template <class Program> struct Factors {
    using Args = typename Program::Args;
    static constexpr auto LEFT_ARRAY = &Args::BARACUDA_LEFT;
    static constexpr auto RIGHT_ARRAY = &Args::BARACUDA_RIGHT;
    static constexpr auto RESULT_ARRAY = &Args::BARACUDA_RESULT;
#ifdef BARACUDA_SECOND
    static constexpr auto SECOND_ARRAY = &Args::BARACUDA_SECOND;
#else
    static constexpr auto SECOND_ARRAY = RIGHT_ARRAY;
#endif
    using Left = ArrayOf<LEFT_ARRAY>;
    using Right = ArrayOf<RIGHT_ARRAY>;
    using Second = ArrayOf<SECOND_ARRAY>;
    using Result = ArrayOf<RESULT_ARRAY>;
};
// The type of a factor's elements: of the left one, or of the right one.
template <class Program, bool LEFT>
using FactorOf = typename Mutable<
    typename Choice<LEFT, typename Factors<Program>::Left, typename Factors<Program>::Right>::type::element_t>::type;

// Four pairs of cells of a fragment: rows 8 APART, and columns; with DOWN the rows of the fragment are columns of the
// result, whose pairs then lie along its rows. WHOLE: all of them exist.
template <bool DOWN, bool WHOLE> struct FragmentCells {
    static constexpr int PAIRS = 4, APART = 8;
    long long matrix, row, column;  // of the first cell
    long long rows, columns;        // of the result

    __device__ __forceinline__ static int row_of(int pair) { return DOWN ? pair / 2 * APART : pair % 2 * APART; }
    __device__ __forceinline__ static int column_of(int pair) { return DOWN ? pair % 2 * APART : pair / 2 * APART; }
    // How many cells of a pair exist.
    __device__ __forceinline__ int live(int pair) const {
        if (WHOLE) return 2;
        const long long r = rows - row - row_of(pair), c = columns - column - column_of(pair);
        const long long along = DOWN ? r : c;
        return (DOWN ? c : r) > 0 && along > 0 ? along > 1 ? 2 : 1 : 0;
    }

    // Where an operand's first pair is, and how far its other cells are.
    template <typename T> struct Place {
        T* first;
        long long row_step, column_step;
        __device__ __forceinline__ T* at(int pair) const {
            return first + row_of(pair) * row_step + column_of(pair) * column_step;
        }
        __device__ __forceinline__ long long step() const { return DOWN ? row_step : column_step; }
        // Whether its pairs are packs; those of all threads are, or none.
        __device__ __forceinline__ bool has_packs() const {
            return step() == 1 && ((DOWN ? column_step : row_step) & 1) == 0 && size_t(first) % (2 * sizeof(T)) == 0;
        }
    };
    template <typename T> __device__ __forceinline__ Place<T> of(T* data, const long long (&stride)[3]) const {
        return {data + matrix * stride[0] + row * stride[1] + column * stride[2], stride[1], stride[2]};
    }
    template <typename T, class Args>
    __device__ __forceinline__ void read(Pack<T, 2> (&pack)[PAIRS], const T* data, const Args& args,
                                         int operand) const {
        if (is_of_rows(operand)) return read_vector<true>(pack, data, args.stride[operand]);
        if (is_of_columns(operand)) return read_vector<false>(pack, data, args.stride[operand]);
        read_matrix(pack, data, args.stride[operand]);
    }
    template <typename T>
    __device__ __forceinline__ void read_matrix(Pack<T, 2> (&pack)[PAIRS], const T* data,
                                                const long long (&stride)[3]) const {
        const Place<const T> from = of(data, stride);
        const bool packs = from.has_packs();
#pragma unroll
        for (int i = 0; i < PAIRS; ++i) {
            const int cells = live(i);
            if (packs && cells == 2) {
                pack[i].load(from.at(i));
            } else {
                pack[i] = {};
                if (cells > 0) pack[i].lane[0] = *from.at(i);
                if (cells > 1) pack[i].lane[1] = from.at(i)[from.step()];
            }
        }
    }
    // What all cells of a row, or of a column, have in common is read once.
    template <bool BY_ROW, typename T>
    __device__ __forceinline__ void read_vector(Pack<T, 2> (&pack)[PAIRS], const T* data,
                                                const long long (&stride)[3]) const {
        constexpr int EACH = BY_ROW == DOWN ? 2 : 1;  // of a pair
        const long long first = BY_ROW ? row : column, left = (BY_ROW ? rows : columns) - first;
        const long long step = stride[BY_ROW ? 1 : 2];
        const T* const from = data + matrix * stride[0] + first * step;
        T value[2][EACH] = {};
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int i = 0; i < EACH; ++i)
                if (WHOLE || half * APART + i < left) value[half][i] = from[(half * APART + i) * step];
#pragma unroll
        for (int i = 0; i < PAIRS; ++i) {
            const int half = (BY_ROW ? row_of(i) : column_of(i)) / APART;
            pack[i].lane[0] = value[half][0];
            pack[i].lane[1] = value[half][EACH - 1];
        }
    }
    template <typename T>
    __device__ __forceinline__ void write(const Pack<T, 2> (&pack)[PAIRS], T* data,
                                          const long long (&stride)[3]) const {
        const Place<T> to = of(data, stride);
        const bool packs = to.has_packs();
#pragma unroll
        for (int i = 0; i < PAIRS; ++i) {
            const int cells = live(i);
            if (packs && cells == 2) {
                pack[i].store(to.at(i));
            } else {
                if (cells > 0) *to.at(i) = pack[i].lane[0];
                if (cells > 1) to.at(i)[to.step()] = pack[i].lane[1];
            }
        }
    }
};

// The lanes of fragments of four pairs each, with their sums.
template <class Program, class P, typename A, int FRAGMENTS> struct SumLanes {
    P (&packs)[FRAGMENTS];
    const A (&sum)[FRAGMENTS][PRODUCTS][8];
    template <class Compute> __device__ __forceinline__ void each(const Compute& compute) const {
#pragma unroll
        for (int f = 0; f < FRAGMENTS; ++f)
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                typename Program::template Reduced<ValueOf> reduced;
                int product = 0;
                reduced.each([&](auto& value) { value = sum[f][product++][i]; }, reduced);
                compute(PackLane<P>{packs[f], i / 2, i % 2}, reduced);
            }
    }
};

// Whether a kernel reduces what it makes of cells, and the body that makes it.
template <class Program> constexpr bool HAS_SINKS = Program::SINKS + Program::BANDS > 0;
template <class Program, bool SINKS = HAS_SINKS<Program>> struct CellsBody {
    using type = typename Program::Epilogue;
};
template <class Program> struct CellsBody<Program, true> {
    using type = typename Program::Sinks;
};

// What a thread reads and makes of the cells of a fragment.
template <class Program, class Cells>
using FragmentPacks = Packs<typename CellsBody<Program>::type, 2, Cells::PAIRS>;

template <class Packs, class Cells, class Args>
__device__ __forceinline__ void read_fragment(Packs& packs, const Cells& cells, const Args& args) {
    packs.reads(args, [&](auto& pack, const auto* data, int operand) { cells.read(pack, data, args, operand); });
}

// Makes the cells of fragments of their sums, and of `packs` that have been read: what is the same for all of them is
// computed once.
template <class Program, class P, typename A, int FRAGMENTS>
__device__ __forceinline__ void compute_fragments(P (&packs)[FRAGMENTS], const A (&sum)[FRAGMENTS][PRODUCTS][8],
                                                  const typename Program::Args& args) {
    packs[0].compute(args, SumLanes<Program, P, A, FRAGMENTS>{packs, sum});
}
// HELD: the result is left to the caller; all else is stored.
template <class Program, bool HELD, class P, class Cells>
__device__ __forceinline__ void store_fragment(const P& packs, const Cells& cells, const typename Program::Args& args) {
    packs.writes(args, [&](const auto& pack, auto* data, int operand) {
        if (!HELD || operand != Factors<Program>::Result::OPERAND) cells.write(pack, data, args.stride[operand]);
    });
}
template <class Program, class Cells, class P> __device__ __forceinline__ auto result_of(const P& packs) {
    using Result = typename Factors<Program>::Result;
    struct {
        Pack<typename Result::element_t, 2> pair[Cells::PAIRS];
    } result;
#pragma unroll
    for (int i = 0; i < Cells::PAIRS; ++i) result.pair[i] = packs_out<Result>(packs)[i];
    return result;
}
// Where sums of parts of the depth are, and their strides: those of each part are a matrix.
template <typename A, class Args> struct SumsOfParts {
    A* data = nullptr;
    long long stride[3];
    __device__ __forceinline__ explicit SumsOfParts(const Args& args)
        : stride{args.rows * args.columns, args.columns, 1} {
        args.parts.each([&](auto* memory) { data = memory; }, args.parts);
    }
};
template <class Cells, typename A, class Args>
__device__ __forceinline__ void keep_sums(const A (&sum)[8], const Cells& cells, const Args& args) {
    Pack<A, 2> pack[Cells::PAIRS];
#pragma unroll
    for (int i = 0; i < 8; ++i) pack[i / 2].lane[i % 2] = sum[i];
    const SumsOfParts<A, Args> to(args);
    cells.write(pack, to.data, to.stride);
}

template <class Program, bool HELD, class Cells, typename A>
__device__ __forceinline__ auto finish(const A (&sum)[1][PRODUCTS][8], const Cells& cells,
                                       const typename Program::Args& args) {
    if constexpr (SPLIT == Split::SUMS) {
        keep_sums(sum[0][0], cells, args);
    } else {
        FragmentPacks<Program, Cells> packs[1];
        read_fragment(packs[0], cells, args);
        compute_fragments<Program>(packs, sum, args);
        store_fragment<Program, HELD>(packs[0], cells, args);
        if constexpr (HELD) return result_of<Program, Cells>(packs[0]);
    }
}

// The registers that a thread takes for what it reads of a fragment; vectors along rows are the same for fragments
// beside each other.
template <auto... READS, auto... WRITES, class... Places>
Size<(0 + ... +
      (!ArrayOf<READS>::PRESENT || is_of_rows(ArrayOf<READS>::OPERAND)
           ? 0
           : int(sizeof(typename ArrayOf<READS>::element_t)) * (is_of_columns(ArrayOf<READS>::OPERAND) ? 1 : 2)))>
registers_of(const Body<Reads<READS...>, Writes<WRITES...>, Places...>&);
template <auto... READS, auto... WRITES, class... Places>
Size<sizeof...(READS)> arrays_read(const Body<Reads<READS...>, Writes<WRITES...>, Places...>&);
template <class Program>
constexpr int ARRAYS_READ = decltype(arrays_read(*static_cast<typename CellsBody<Program>::type*>(nullptr)))::VALUE;
template <class Program>
constexpr int FRAGMENT_REGISTERS =
    decltype(registers_of(*static_cast<typename CellsBody<Program>::type*>(nullptr)))::VALUE;

}  // namespace baracuda

#include <baracuda/matrix/sinks.cuh>
#ifdef BARACUDA_MADE
#include <baracuda/matrix/product_made.cuh>
#elif BARACUDA_PACK
#include <baracuda/matrix/product_pack.cuh>
#elif BARACUDA_SPLIT > 1
#include <baracuda/matrix/product_merge.cuh>
#elif BARACUDA_TMA || defined(BARACUDA_COPIED)
#include <baracuda/matrix/product_sm90.cuh>
#else
#include <baracuda/matrix/product_mma.cuh>
#endif
