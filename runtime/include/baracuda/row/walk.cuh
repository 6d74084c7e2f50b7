// Walks along the rows of a problem. A program says what is computed, in passes: what a sum over a row gives can be
// read one pass after its terms are added.
#pragma once

#include <baracuda/row/operands.cuh>

namespace baracuda {

// Set by the plan at compile time: the schedule, and the layout of the caller's arrays.
using T = BARACUDA_ELEMENT;
using acc_t = acc_of<T>;
struct Schedule {
    static constexpr int BARACUDA_SCHEDULE;
};
using ScheduledTile = TileOf<Schedule>;
constexpr Layout LAYOUT = Layout::BARACUDA_LAYOUT;
constexpr int ROW_AXES = BARACUDA_ROW_AXES;  // maximum number of axes that rows lie along
// Other layouts take more registers, and all but packed ones where rows are meant to stay in shared memory.
constexpr int BLOCKS_PER_SM =
    LAYOUT <= (Schedule::STAGED ? Layout::PACKED : Layout::DENSE) ? Schedule::BLOCKS_PER_SM : 1;

// A number that the compiler does not know anything of: it would compute addresses ahead, and spill them.
__device__ inline int opaque(int number) {
#ifndef BARACUDA_HOST
    asm volatile("" : "+r"(number));
#endif
    return number;
}

template <int NUMBER> struct Pass {};

// e^(x - top), a term of a sum whose terms are below the largest; 0 of -infinity, also where nothing is larger.
__device__ inline acc_t exp_below(acc_t x, acc_t top) {
    return math::exp_term<T>(x - math::maximum(top, -math::largest<acc_t>()));
}

// A sum of e^(x - top), where number TOP of those that are reduced together is the largest x. Each thread, warp and
// block adds what is below its own, so nobody waits for that of the row. Where the largest is infinite, x - top is NaN.
template <int TOP_> struct Below {
    template <typename A> struct Sum : baracuda::Sum<A> {
        static constexpr int TOP = TOP_;
        template <int N> __device__ static A rescaled(A sum, const A (&from)[N], const A (&to)[N]) {
            return sum * exp_below(from[TOP], to[TOP]);
        }
        template <int N> __device__ static A of(const A (&value)[N], int i, const Space& space) {
            return space.cols ? value[i] + (value[TOP] - value[TOP]) : value[i];
        }
    };
};

// Element i of pack k of a row, as a pass sees it: registers of what is read, stored and summed. A pass over misaligned
// packs visits elements once more, without SUMS.
// Without PLACED no column of the pack is one that the program compares with.
template <bool SUMS_, bool PLACED, typename I, class Elements, class Columns, class Stored, class Sums> struct Element {
    static constexpr bool SUMS = SUMS_;
    Elements& elements;
    Columns& columns;
    Stored& stored;
    Sums& sums;
    int k, i;
    I col;
    long long row;
    // Whether this is the column of a row's place; half of that is known of a row.
    __device__ bool at(i64 place) const {
        return PLACED && math::subtract(I(place), I(col - i)) == i && place == I(place);
    }
};

// Whether a column is among those of a pack that begins at column `col`.
template <typename I> __device__ bool in_pack(i64 place, I col) {
    const auto away = math::subtract(I(place), col);
    return away >= 0 && away < I(16 / sizeof(T)) && place == I(place);
}

// What a thread has of a row, and then the row's value. With column sums, `reduced` holds those of all rows between the
// walks of wide ones.
template <template <typename> class Op_> struct Part {
    using Op = Op_<acc_t>;
    acc_t& value;
    acc_t* reduced = nullptr;
};

// The row at hand, as one of its threads sees it.
template <class Tile, Walk WALK> struct Row {
    const Space& space;
    int& phase;
    long long index;
    bool live;  // whether there is such a row
    int lane;
    bool leads;  // whether this thread has the row's own values, one of all that share it

    template <class Tensor, typename A> __device__ void store(const Tensor& tensor, A value) const {
        if (WALK != Walk::STRIP && live && leads) tensor.at(space, index) = typename Tensor::element_t(value);
    }
    // The element at a column, or `outside` if there is none.
    template <class O, class Args> __device__ acc_t element(const Args& args, i64 col, acc_t outside) const {
        if (!live || col < 0 || col >= space.cols) return outside;
        const auto& tensor = O::of(args);
        return acc_t(tensor.row(space, index)[column_offset<LAYOUT>(col, space, tensor.col_stride)]);
    }
    // Of one thread, the others have 0: other threads, which may overwrite it, wait for the sum.
    template <class O, class Args> __device__ acc_t own(const Args& args, i64 col, acc_t outside) const {
        return leads ? element<O>(args, col, outside) : acc_t(0);
    }
    // Reduces what each thread has of the row, in one exchange.
    template <class... Parts> __device__ void reduce(Parts... part) const {
        if constexpr (WALK == Walk::STRIP) {
            ((part.value = part.reduced[index]), ...);
        } else {
            acc_t values[] = {part.value...};
            reduce_row<Tile, typename Parts::Op...>(values, phase);
            int i = 0;
            ((part.value = Parts::Op::of(values, i++, space)), ...);
            if (WALK == Walk::REDUCE && lane == 0) ((part.reduced[index] = part.value), ...);
        }
    }
};

// What every program has, and a bit for each pass: AGAIN, it looks at each tile a second time, `again`, for sums below
// the largest number so far, and `rescale` scales those of earlier tiles; LARGEST, at first it asks for the `largest`
// elements only; PLACED, it compares columns with places, which may be `near` a pack.
template <class Arguments_> struct RowProgram {
    using Arguments = Arguments_;
    static constexpr unsigned AGAIN = 0, LARGEST = 0, PLACED = 0;
    const Arguments& args;
    __device__ explicit RowProgram(const Arguments& args) : args(args) {}
};

// Block b works on rows b * ROWS to (b + 1) * ROWS; a persistent block goes on with rows (b + blocks) * ROWS, ...
// LANES threads share a row; thread t of them owns packs t, t + LANES, ... of VEC columns. A row that fits in the tile
// stays in registers: each tensor is read once and written once. A persistent block prefetches the next packed row into
// shared memory. Dense rows may be misaligned: threads own the same columns, and recompute what they store in aligned
// packs.
template <class Program, class Tile, Walk WALK> struct RowWalk {
    using Arguments = typename Program::Arguments;
    using index_t = typename ColumnIndex<Tile::WIDE>::type;
    static constexpr int LAST = Program::PASSES - 1;
    static constexpr bool SUMS = Program::Sums::SIZE > 0;
    static constexpr bool IN_REGISTERS = WALK == Walk::REGISTERS || WALK == Walk::STRIP;
    static constexpr bool PREFETCH = IN_REGISTERS && Tile::PERSISTENT && LAYOUT == Layout::PACKED;
    static constexpr bool MISALIGNED = LAYOUT == Layout::DENSE;  // aligned packs differ from the packs of columns
    // A misaligned row that is walked once is read by packs of what is stored, and not by those of its columns, too: of
    // a row in place they are another thread's.
    static constexpr bool READ_FIRST = IN_REGISTERS && (LAST > 0 || SUMS || !MISALIGNED);
    // Every block has its own rows: no loop.
    static constexpr bool SINGLE_ITERATION = !SUMS && ROW_AXES == 1 && !Tile::PERSISTENT;
    // Values of columns stay in registers.
    static constexpr bool ROW_INVARIANT = SUMS && IN_REGISTERS;
    static constexpr int VEC = 16 / sizeof(T), CHUNKS = WALK == Walk::STRIP ? 1 : Tile::CHUNKS;
    static constexpr index_t CHUNK_STRIDE = index_t(Tile::LANES) * VEC, TILE = CHUNK_STRIDE * CHUNKS;
    // The last packs of a packed row may stay in shared memory, from where every look takes them.
    static constexpr int STAGED = IN_REGISTERS && LAYOUT == Layout::PACKED ? Tile::STAGED : 0, HELD = CHUNKS - STAGED;
    using Inputs = InputsOver<typename Program::Tensors, Over::ELEMENTS>;
    using ColumnInputs = InputsOver<typename Program::Tensors, Over::COLUMNS>;
    using RowInputs = InputsOver<typename Program::Tensors, Over::ROWS>;
    using Stores = typename Program::Stores;
    // What a thread holds: of a row, of columns, of column sums.
    using Elements = Slices<Inputs, VEC, CHUNKS>;
    using Columns = Slices<ColumnInputs, VEC, CHUNKS>;
    using Sums = SumsOf<typename Program::Sums, acc_t, VEC, CHUNKS>;
    using Ahead = Prefetches<Inputs, VEC, PREFETCH ? CHUNKS : STAGED, Tile::THREADS>;
    struct Position : Row<Tile, WALK>, RowValues<RowInputs>, RowsOf<Inputs> {
        RowsOf<Stores> to;
        index_t cols;  // where the row ends for this block
    };

    const Arguments& args;
    const int lane;
    // The block's columns: all of the row, an even share in a cluster, or one strip.
    const ColumnRange<index_t> columns;

    __device__ explicit RowWalk(const Arguments& args)
        : args(args),
          lane(threadIdx.x % Tile::LANES),
          columns(WALK == Walk::STRIP ? ColumnRange<index_t>::of(blockIdx.x, TILE, args.space.cols)
                                      : block_columns<Tile, VEC, index_t>(args.space.cols)) {}

    __device__ index_t column(index_t tile, int k) const { return tile + k * CHUNK_STRIDE + lane * VEC; }

    __device__ void run() const {
        const long long block = WALK == Walk::STRIP ? blockIdx.y
                                : SINGLE_ITERATION  ? (blockIdx.x + (long long)blockIdx.y * gridDim.x) / Tile::CLUSTER
                                                    : blockIdx.x / Tile::CLUSTER;
        const long long blocks = WALK == Walk::STRIP ? gridDim.y : gridDim.x / Tile::CLUSTER;
        int phase = 0;
        Program program(args);
        Columns of_columns;
        Sums sums;
        if constexpr (ROW_INVARIANT) read_columns(of_columns);
        DYN_SHARED(unsigned char, shared);
        const Ahead ahead(shared);
        static_assert(!(PREFETCH || STAGED) || reserves(Ahead::SHARED_BYTES), "the launch reserves the packs");
        const long long row_in_block = threadIdx.x / Tile::LANES;
        if constexpr (Tile::CLUSTER > 1) ClusterExchange<Tile>::init();
        if constexpr (PREFETCH) fetch(ahead, block * Tile::ROWS + row_in_block);
        RowValues<RowInputs> inputs = read_inputs(block * Tile::ROWS + row_in_block);
        for (long long first = block * Tile::ROWS; first < args.space.rows; first += blocks * Tile::ROWS) {
            const long long row = first + row_in_block;
            [[maybe_unused]] const long long next = row + blocks * Tile::ROWS;
            const RowValues<RowInputs> current = inputs;
            inputs = read_inputs(next);
            const Position at = position(row, phase, current);
            Elements elements;
            if constexpr (PREFETCH) {
                take(ahead, at, elements);
                fetch(ahead, next);
            } else {
                read_row(ahead, at, elements);
            }
            passes<0>(program, at, elements, of_columns, sums);
            if constexpr (SINGLE_ITERATION) break;
        }
        if constexpr (Tile::CLUSTER > 1) ClusterExchange<Tile>::wait_for_init(phase);  // where there was no row
        if constexpr (SUMS) store_sums(sums, block);
    }

    __device__ RowValues<RowInputs> read_inputs(long long row) const {
        RowValues<RowInputs> values = {};
        if (row >= args.space.rows) return values;
        for_each(RowInputs(), [&](auto tensor) {
            using O = decltype(tensor);
            if constexpr (O::PRESENT) value_of_row<O>(values) = O::of(args).at(args.space, row);
        });
        return values;
    }

    // Where a row lies of some tensors.
    template <class Tensors> __device__ RowsOf<Tensors> rows_of(long long row) const {
        RowsOf<Tensors> at;
        for_each(Tensors(), [&](auto tensor) {
            using O = decltype(tensor);
            row_of<O>(at).data = O::of(args).row(args.space, row);
        });
        return at;
    }

    // Whether this block has the first columns; those of a cluster may all have none.
    __device__ bool leads() const {
        if constexpr (Tile::CLUSTER > 1) return cluster_rank() == 0;
        return columns.first == 0;
    }
    __device__ Position position(long long row, int& phase, const RowValues<RowInputs>& inputs) const {
        const bool live = row < args.space.rows;
        const index_t cols = live ? IN_REGISTERS ? columns.end : index_t(args.space.cols) : 0;
        return {{args.space, phase, row, live, lane, lane == 0 && leads()},
                inputs,
                rows_of<Inputs>(row),
                rows_of<Stores>(row),
                cols};
    }

    // Values of columns that are the same for each row.
    __device__ void read_columns(Columns& of_columns) const {
        for_each(ColumnInputs(), [&](auto tensor) {
            using O = decltype(tensor);
            if constexpr (O::PRESENT)
                read<LAYOUT>(packs<O>(of_columns), O::of(args).data, O::of(args).col_stride, args.space,
                             column(columns.first, 0), CHUNK_STRIDE, {columns.end}, false);
        });
    }

    // Of a staged row, pack k from shared memory.
    __device__ void take_pack(int k, Elements& elements) const {
        if (k >= HELD) {
            DYN_SHARED(unsigned char, shared);
            const Ahead ahead(shared);
            for_each(Inputs(), [&](auto tensor) {
                using O = decltype(tensor);
                if constexpr (O::PRESENT) prefetch_of<O>(ahead).read(k - HELD, packs<O>(elements)[k]);
            });
        }
    }

    // Reads what stays of a row: its packs in registers, then those in shared memory.
    __device__ void read_row(const Ahead& ahead, const Position& at, Elements& elements) const {
        if constexpr (STAGED > 0) {
            for_each(Inputs(), [&](auto tensor) {
                using O = decltype(tensor);
                if constexpr (O::PRESENT) {
#pragma unroll
                    for (int k = 0; k < HELD; ++k)
                        if (column(columns.first, k) < at.cols)
                            packs<O>(elements)[k].load(row_of<O>(at).data + column(columns.first, k));
                }
            });
            fetch<HELD>(ahead, at.index);
            cp_async_wait_all();
        } else if constexpr (READ_FIRST) {
            read_tile<Inputs, false>(at, columns.first, elements);
        }
    }

    // Starts to copy a row to shared memory, from a thread's pack FIRST on.
    template <int FIRST = 0> __device__ void fetch(const Ahead& ahead, long long row) const {
        if (row >= args.space.rows) return;
        const RowsOf<Inputs> at = rows_of<Inputs>(row);
#pragma unroll
        for (int k = FIRST; k < CHUNKS; ++k) {
            if (column(columns.first, k) >= columns.end) continue;
            for_each(Inputs(), [&](auto tensor) {
                using O = decltype(tensor);
                if constexpr (O::PRESENT)
                    prefetch_of<O>(ahead).fetch(k - FIRST, row_of<O>(at).data + column(columns.first, k));
            });
        }
    }
    // Takes it from there.
    __device__ void take(const Ahead& ahead, const Position& at, Elements& elements) const {
        cp_async_wait_all();
#pragma unroll
        for (int k = 0; k < CHUNKS; ++k) {
            if (column(columns.first, k) >= at.cols) continue;
            for_each(Inputs(), [&](auto tensor) {
                using O = decltype(tensor);
                if constexpr (O::PRESENT) prefetch_of<O>(ahead).read(k, packs<O>(elements)[k]);
            });
        }
    }

    // Reads a tile of the row. SHIFTED ones begin at aligned packs of what is stored: a thread discards columns before
    // the block's own, and of a tensor that is updated reads no others than it stores.
    template <class Read, bool SHIFTED>
    __device__ void read_tile(const Position& at, index_t tile, Elements& elements) const {
        for_each(Read(), [&](auto tensor) {
            using O = decltype(tensor);
            if constexpr (O::OVER == Over::ELEMENTS && O::PRESENT) {
                const index_t first = SHIFTED ? columns.first : 0;
                // Where the row lies is asked again after other passes: no registers hold it until then.
                const auto* const row =
                    SHIFTED && IN_REGISTERS ? O::of(args).row(args.space, at.index) : row_of<O>(at).data;
                // Whole packs around a row, unless other blocks may be updating theirs.
                const bool overread = MISALIGNED && !O::UPDATED && O::of(args).overreadable(at.index);
                const ReadColumns<index_t> part{at.cols, O::UPDATED ? first : 0, O::UPDATED ? 0 : first};
                read<SHIFTED && O::UPDATED ? Layout::STRIDED : LAYOUT>(packs<O>(elements), row, O::of(args).col_stride,
                                                                       args.space, column(tile, 0), CHUNK_STRIDE, part,
                                                                       overread);
            }
        });
    }

    // The passes from number PASS on.
    template <int PASS>
    __device__ void passes(Program& program, const Position& at, Elements& elements, Columns& of_columns,
                           Sums& sums) const {
        program.before(Pass<PASS>(), at);
        if constexpr (PASS < LAST) {
            if constexpr (WALK != Walk::STRIP) walk<PASS, false>(program, at, elements, of_columns, sums);
            passes<PASS + 1>(program, at, elements, of_columns, sums);
        } else if constexpr (WALK != Walk::REDUCE) {
            if constexpr (SUMS) walk<PASS, false>(program, at, elements, of_columns, sums);
            if constexpr (Stores::SIZE > 0 && (!SUMS || MISALIGNED)) {
                constexpr bool UPDATES = any_updated(Stores());
                // In-place outputs: all threads have read before any of them stores.
                if constexpr (MISALIGNED && UPDATES) Tile::whole_row_barrier();
                else if constexpr (MISALIGNED && SUMS) Tile::row_barrier();
                Columns others;  // than those of the sums
                walk<PASS, MISALIGNED>(program, at, elements, others, sums);
            }
        }
    }

    // Keeps packed what pass PASS reads and registers hold.
    template <int PASS> __device__ void keep(Elements& elements, Columns& of_columns) const {
        for_each(decltype(Program::reads(Pass<PASS>()))(), [&](auto tensor) {
            using O = decltype(tensor);
            if constexpr (O::PRESENT && O::OVER == Over::ELEMENTS) keep_packed<HELD>(packs<O>(elements));
            if constexpr (O::PRESENT && O::OVER == Over::COLUMNS && ROW_INVARIANT)
                keep_packed<CHUNKS>(packs<O>(of_columns));
        });
    }

    // One pass along the row: adds to sums, unless the tiles are SHIFTED to where packs of what it stores are aligned.
    template <int PASS, bool SHIFTED>
    __device__ void walk(Program& program, const Position& at, Elements& elements, Columns& of_columns,
                         Sums& sums) const {
        using Reads = decltype(Program::reads(Pass<PASS>()));
        constexpr bool REREAD = !IN_REGISTERS || SHIFTED;
        constexpr bool AGAIN = Program::AGAIN >> PASS & 1;
        if constexpr (!REREAD && !AGAIN) keep<PASS>(elements, of_columns);
        index_t tile = columns.first;
        if constexpr (SHIFTED) tile -= opaque(misalignment<VEC>(first_row(Stores(), at.to) + columns.first));
        for (; !REREAD || column(tile, 0) < at.cols; tile += TILE) {
            if constexpr (REREAD) read_tile<Reads, SHIFTED>(at, tile, elements);
            Position here = at;
            if constexpr (SHIFTED && IN_REGISTERS) here.to = rows_of<Stores>(at.index);  // again, as in read_tile
            [[maybe_unused]] const Program before = program;
            visit_tile<PASS, SHIFTED, false>(program, here, tile, elements, of_columns, sums);
            if constexpr (AGAIN) {
                if constexpr (REREAD) program.rescale(Pass<PASS>(), before);
                keep<PASS>(elements, of_columns);
                visit_tile<PASS, SHIFTED, true>(program, here, tile, elements, of_columns, sums);
            }
            if constexpr (!REREAD) break;
        }
    }

    template <int PASS, bool SHIFTED, bool AGAIN>
    __device__ void visit_tile(Program& program, const Position& at, index_t tile, Elements& elements,
                               Columns& of_columns, Sums& sums) const {
        if constexpr (!AGAIN && (Program::LARGEST >> PASS & 1)) {
            program.largest(Pass<PASS>(), ThreadTile{*this, elements, tile, at.cols});
        } else {
#pragma unroll
            for (int k = 0; k < CHUNKS; ++k) {
                const index_t col = column(tile, k);
                if (col >= at.cols) break;
                take_pack(k, elements);
                if constexpr (AGAIN || !(Program::PLACED >> PASS & 1)) {
                    visit<PASS, SHIFTED, AGAIN, AGAIN>(program, at, k, col, elements, of_columns, sums);
                } else if (program.near(Pass<PASS>(), col)) {
                    visit<PASS, SHIFTED, false, true>(program, at, k, col, elements, of_columns, sums);
                } else {
                    visit<PASS, SHIFTED, false, false>(program, at, k, col, elements, of_columns, sums);
                }
            }
        }
    }

    // The elements that a thread has of a tile.
    struct ThreadTile {
        const RowWalk& walk;
        Elements& elements;
        index_t tile, cols;

        // The largest of these and of `most`; halves of whole packs are compared in pairs.
        template <class O> __device__ acc_t largest(O, acc_t most) const {
            const auto& pack = packs<O>(elements);
            if constexpr (LAYOUT == Layout::PACKED && sizeof(T) == 2) {
                unsigned pair = pack_halves<T>(most, most);
#pragma unroll
                for (int k = 0; k < CHUNKS; ++k) {
                    if (walk.column(tile, k) >= cols) break;
                    walk.take_pack(k, elements);
                    const auto words = __builtin_bit_cast(PackWords<T, VEC>, pack[k]);
#pragma unroll
                    for (int w = 0; w < VEC / 2; ++w) pair = math::maximum_of_halves<T>(pair, words.word[w]);
                }
                return math::maximum(float(first_half<T>(pair)), float(first_half<T>(pair >> 16)));
            } else {
#pragma unroll
                for (int k = 0; k < CHUNKS; ++k) {
                    const index_t col = walk.column(tile, k);
                    if (col >= cols) break;
                    walk.take_pack(k, elements);
#pragma unroll
                    for (int i = 0; i < VEC; ++i)
                        if (LAYOUT == Layout::PACKED || col + i < cols)
                            most = math::maximum(most, acc_t(pack[k].lane[i]));
                }
                return most;
            }
        }
    };

    // Pack k of a tile, which begins at column `col`.
    template <int PASS, bool SHIFTED, bool AGAIN, bool PLACED>
    __device__ void visit(Program& program, const Position& at, int k, index_t col, Elements& elements,
                          Columns& of_columns, Sums& sums) const {
        const index_t left = at.cols - col;
        if constexpr (!ROW_INVARIANT || SHIFTED)
            for_each(decltype(Program::reads(Pass<PASS>()))(), [&](auto tensor) {
                using O = decltype(tensor);
                if constexpr (O::OVER == Over::COLUMNS) {
                    packs<O>(of_columns)[k] = {};
                    if constexpr (O::PRESENT)
                        read<LAYOUT>(packs<O>(of_columns)[k], O::of(args).data, O::of(args).col_stride, args.space, col,
                                     at.cols, false);
                }
            });
        Slices<Stores, VEC, 1> stored;
#pragma unroll
        for (int i = 0; i < VEC; ++i) {
            if (LAYOUT != Layout::PACKED && !SHIFTED && i >= left) continue;
            const Element<!SHIFTED, PLACED, index_t, Elements, Columns, Slices<Stores, VEC, 1>, Sums> element{
                elements, of_columns, stored, sums, k, i, col + i, at.index};
            if constexpr (AGAIN) program.again(Pass<PASS>(), element);
            else program.element(Pass<PASS>(), element);
        }
        if constexpr (PASS == LAST && SHIFTED == MISALIGNED)
            for_each(Stores(), [&](auto tensor) {
                using O = decltype(tensor);
                if constexpr (O::PRESENT)
                    write<LAYOUT>(packs<O>(stored)[0], row_of<O>(at.to).data, O::of(args).col_stride, args.space, col,
                                  columns.first, at.cols);
            });
    }

    // The column sums of the block's rows; of a wide row, the tickets of its strips.
    __device__ void store_sums(Sums& sums, long long block) const {
        if constexpr (IN_REGISTERS) {
#pragma unroll
            for (int k = 0; k < CHUNKS; ++k) {
                const index_t start = columns.first + k * CHUNK_STRIDE;
                for_each(typename Program::Sums(), [&](auto sum_of) {
                    using S = decltype(sum_of);
                    if constexpr (S::PRESENT)
                        reduce_rows<Tile>(part_of<S>(sums)[k], [&](int place, acc_t sum) {
                            if (start + place < columns.end)
                                S::parts(args)[block * args.space.cols + start + place] = sum;
                        });
                });
            }
        }
        if (WALK == Walk::REDUCE && block == 0)
            for (long long strip = threadIdx.x; strip * Tile::LANES * VEC < args.space.cols; strip += Tile::THREADS)
                args.tickets[strip] = 0;
    }
};

// Adds the partial sums of columns [first, end), THREADS / SLICES columns at a time, in a fixed order.
template <class Program, class Tile, int SLICES>
__device__ void add_columns(const typename Program::Arguments& args, long long first, long long end) {
    constexpr int COLUMNS = Tile::THREADS / SLICES;
    const Program program(args);
    for (; first < end; first += COLUMNS) {
        const long long col = first + threadIdx.x % COLUMNS;
        TotalsOf<typename Program::Sums, acc_t> totals;
        for_each(typename Program::Sums(), [&](auto sum_of) {
            using S = decltype(sum_of);
            if constexpr (S::PRESENT)
                total_of<S>(totals).total = baracuda::reduce_parts<Tile::THREADS, SLICES>(
                    S::parts(args) + col, args.parts, args.space.cols, col < end);
        });
        if (threadIdx.x >= COLUMNS || col >= end) continue;
        program.column(col, totals);
    }
}

// Rows in registers: stage 0 works on rows, stage 1 adds partial sums of columns. Wide rows with column sums: stage 0
// computes the row reductions, stage 1 does the last pass strip by strip, and the last block of a strip adds its
// columns.
template <class Program, class Tile> __device__ void run(const typename Program::Arguments& args) {
    if constexpr (Program::Sums::SIZE == 0) {
        RowWalk<Program, Tile, Tile::WIDE ? Walk::WIDE : Walk::REGISTERS>(args).run();
    } else {
        if (args.stage == 0) launch_dependent_grids();
        else wait_on_dependent_grids();
        if constexpr (Tile::WIDE) {
            constexpr long long STRIP = Tile::LANES * (16 / sizeof(T));
            if (args.stage == 0) return RowWalk<Program, Tile, Walk::REDUCE>(args).run();
            RowWalk<Program, Tile, Walk::STRIP>(args).run();
            if (is_last_block(args.tickets + blockIdx.x, gridDim.y))
                add_columns<Program, Tile, 1>(args, blockIdx.x * STRIP, min((blockIdx.x + 1) * STRIP, args.space.cols));
        } else if (args.stage == 0) {
            RowWalk<Program, Tile, Walk::REGISTERS>(args).run();
        } else {
            constexpr int COLUMNS = Tile::THREADS / REDUCE_SLICES;
            const long long first = (long long)blockIdx.x * COLUMNS;
            add_columns<Program, Tile, REDUCE_SLICES>(args, first, min(first + COLUMNS, args.space.cols));
        }
    }
}

}  // namespace baracuda
