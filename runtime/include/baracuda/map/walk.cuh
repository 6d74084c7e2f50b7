// The kernel of a map: walks over cells and over the terms of reductions, for a program that holds an op's math.
//
// A program has up to three bodies (see body.cuh): Cells, stored; Terms, reduced and perhaps stored; and Epilogue, made
// of what was reduced.
// Reduced<Of> lists the reductions: `each` calls a function with every wanted one of several such lists.
#pragma once

#include <baracuda/map/few.cuh>
#include <baracuda/map/prefetch.cuh>
#include <baracuda/map/read.cuh>
#include <baracuda/map/singles.cuh>

namespace baracuda {

// Set by the plan at compile time: the schedule, and the layout of the caller's arrays.
using Element = BARACUDA_ELEMENT;
struct Schedule {
    static constexpr int BARACUDA_SCHEDULE;
};
constexpr Walk WALK = Walk::BARACUDA_WALK;
constexpr bool STORED = WALK == Walk::CELLS || WALK == Walk::COPIES || WALK == Walk::PAIRS;
using Few = FewTerms<BARACUDA_TERMS>;
// How many terms of an output a thread reads before it reduces them. It costs much to join moments to others, so that
// they are of twice as many.
template <class Program> __device__ constexpr int terms_at_once() {
    if (Few::COUNT) return Few::at_once(Schedule::PACKS);
    return WALK == Walk::COLUMNS && reduces_moments<Program>() ? 2 * Schedule::PACKS : Schedule::PACKS;
}
constexpr Layout LAYOUT = layout_of(Layout::BARACUDA_LAYOUT, WALK);
using index_t = CellIndex<BARACUDA_WIDE>::type;
using index_value = CellIndex<BARACUDA_WIDE>::value;

// What the arguments of a kernel begin with. What has an offset for each cell is an operand: tensors and indices.
template <int OPERANDS_> struct WalkArgs {
    static constexpr int OPERANDS = OPERANDS_;
    long long stage;
    long long vectorized;  // bit o: packs of operand o are contiguous and aligned
    Space outer;
    long long outer_stride[OPERANDS][MAX_AXES];
    Space inner;  // the axes that are reduced, or along which outputs are copied
    long long inner_stride[OPERANDS][MAX_AXES];
    Cut cut;
};
template <class M> using ScratchOf = typename M::Value*;  // parts: [splits, output cells]
template <class Args, int N> using RunOf = Run<index_t, Args::OPERANDS, LAYOUT, N>;

template <class R, class P> struct Lane : PackLane<P> {
    const R& run;
    __device__ index_value index(int operand) const {
        index_value value;
        run.index(value, operand, this->i);
        return value;
    }
};
// The same of a pack whose cells an index counts from a multiple of N on.
template <class R, class P, int N> struct CountedLane : Lane<R, P> {
    __device__ i64 index(int operand) const { return this->run.template counted_index<N>(operand, this->i); }
};
// The lanes of a thread's packs. `use` calls the program for a lane with what it has of the reductions there.
template <class R, class P, int N, int PACKS, class Use> struct Lanes {
    const R (&run)[PACKS];
    P& packs;
    const Use& use;
    template <class Compute> __device__ void each(const Compute& compute) const {
#pragma unroll
        for (int k = 0; k < PACKS; ++k)
#pragma unroll
            for (int i = 0; i < N; ++i) use(compute, Lane<R, P>{{packs, k, i}, run[k]});
    }
    // The same in two versions, one of which is for packs where these indices count from a multiple of N: there the
    // compiler knows which neighbours share a call of Philox.
    template <int... INDICES, class Compute> __device__ void each_counted(const Compute& compute) const {
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            if (R::ONE_PLACE && (true && ... && run[k].template counts<N>(INDICES))) {
#pragma unroll
                for (int i = 0; i < N; ++i) use(compute, CountedLane<R, P, N>{{{packs, k, i}, run[k]}});
            } else {
#pragma unroll
                for (int i = 0; i < N; ++i) use(compute, Lane<R, P>{{packs, k, i}, run[k]});
            }
        }
    }
};

// Reads the packs of a program: of a tensor as it is, or at the places that `place_of` computes of a lane.
template <class R, class Held, int PACKS> struct Reader {
    const R (&run)[PACKS];
    Held& held;
    const int (&live)[PACKS];
    long long vectorized;
    template <class Packs, typename T> __device__ void operator()(Packs& packs, const T* data, int operand) const {
        read(packs, data, run, operand, vectorized, live);
    }
    template <class Places, class P, class A, int AXES, typename V, class F>
    __device__ void at(P (&packs)[PACKS], const A& array, const PlacedAxes<AXES>& axes, V outside,
                       const F& place_of) const {
        const Placed<typename Mutable<typename A::element_t>::type, AXES> from{array.data, axes, A::OPERAND};
#pragma unroll
        for (int k = 0; k < PACKS; ++k)
            read_places<Places, LAYOUT>(packs[k], from, outside, run[k], live[k], [&](auto& place, int i) {
                return place_of(place, Lane<R, Held>{{held, k, i}, run[k]});
            });
    }
};

// Reads what lies in aligned packs, each all at once; `all` is false behind it if something does not.
template <class R, class Held, int PACKS> struct PackReader {
    const R (&run)[PACKS];
    Held& held;
    bool& all;
    template <class Places, class P, class A, int AXES, typename V, class F>
    __device__ void at(P (&packs)[PACKS], const A& array, const PlacedAxes<AXES>& axes, V outside,
                       const F& place_of) const {
        const Placed<typename Mutable<typename A::element_t>::type, AXES> from{array.data, axes, A::OPERAND};
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            packs[k].clear(outside);
            all &= Places::read_pack(packs[k], from, run[k], [&](auto& place, int i) {
                return place_of(place, Lane<R, Held>{{held, k, i}, run[k]});
            });
        }
    }
};

// The same of packs at named places: first whether they are such, then they are read.
template <class R, class Held, int N, int PACKS, bool READS> struct NamedReader {
    const R (&run)[PACKS];
    Held& held;
    const int (&live)[PACKS];
    bool& named;
    template <class Places, class P, class A, int AXES, typename V, class F>
    __device__ void at(P (&packs)[PACKS], const A& array, const PlacedAxes<AXES>& axes, V outside,
                       const F& place_of) const {
        using T = typename Mutable<typename A::element_t>::type;
        const Placed<T, AXES> from{array.data, axes, A::OPERAND};
        NamedPacks<T, PACKS> of;
        named &= of.template find<typename Places::place_t, N>(
            from, run, live, [&](auto& place, int k, int i) { place_of(place, Lane<R, Held>{{held, k, i}, run[k]}); });
        if constexpr (READS) of.read(packs, outside);
    }
};

// The same of terms of a window.
template <class R, class Held, int N, int PACKS> struct WindowReader {
    const R (&run)[PACKS];
    Held& held;
    const int (&live)[PACKS];
    bool& done;
    template <class Places, class P, class A, int AXES, typename V, class F>
    __device__ void at(P (&packs)[PACKS], const A& array, const PlacedAxes<AXES>& axes, V outside,
                       const F& place_of) const {
        using T = typename Mutable<typename A::element_t>::type;
        const Placed<T, AXES> from{array.data, axes, A::OPERAND};
        Windows<T, N, PACKS> of;
        done = of.template find<typename Places::place_t>(
            from, run, live, [&](auto& place, int k, int i) { place_of(place, Lane<R, Held>{{held, k, i}, run[k]}); });
        if (done) of.read(packs, outside);
    }
};

template <int N, class Packs, class Args, int PACKS, class Use>
__device__ void compute_cells(Packs& packs, const Args& args, const RunOf<Args, N> (&run)[PACKS],
                              const int (&live)[PACKS], const Use& use) {
    packs.reads(args, Reader<RunOf<Args, N>, Packs, PACKS>{run, packs, live, args.vectorized});
    packs.compute(args, Lanes<RunOf<Args, N>, Packs, N, PACKS, Use>{run, packs, use});
}

template <int N, class Packs, class Args, int PACKS>
__device__ void write_cells(const Packs& packs, const Args& args, const RunOf<Args, N> (&run)[PACKS],
                            const int (&live)[PACKS]) {
    packs.writes(args, [&](const auto& pack, auto* data, int operand) {
        write<false>(pack, data, run, operand, args.vectorized, live);
    });
}

// Arrays as bits of their operands: those that a body reads and writes, but for what the compiler knows to be one
// element a pack.
template <class A> __device__ constexpr u64 bit_of() {
    return A::PRESENT && !is_splat(A::OPERAND) ? 1ull << A::OPERAND : 0;
}
template <u64 READ_, u64 WRITTEN_> struct Moved {
    static constexpr u64 READ = READ_, WRITTEN = WRITTEN_;
};
template <auto... READS, auto... WRITES, class... Places>
Moved<(0 | ... | bit_of<ArrayOf<READS>>()), (0 | ... | bit_of<ArrayOf<WRITES>>())> moved_by(
    const Body<Reads<READS...>, Writes<WRITES...>, Places...>&);

// Stores the values of cells, each once, or along the axes of copies.
template <class Program, int N, class Args, int PACKS>
__device__ void store_packs(const Packs<typename Program::Cells, N, PACKS>& packs, const Args& args,
                            const RunOf<Args, N> (&run)[PACKS], const int (&live)[PACKS]) {
    constexpr bool COPIES = WALK == Walk::COPIES;
    const index_t end = COPIES ? end_of_split<index_t>(args.cut) : 1;
#pragma unroll 1
    for (index_t copy[1] = {COPIES ? index_t(blockIdx.y * args.cut.per_split) : 0}; copy[0] < end; ++copy[0]) {
        index_t to[1][Args::OPERANDS] = {};
        if (COPIES) locate<0>(to, copy, args.inner, args.inner_stride);
        packs.writes(args, [&](const auto& pack, auto* data, int operand) {
            write<true>(pack, data + offset_of(to[0][operand]), run, operand, args.vectorized, live);
        });
    }
}

// Calls the program for a lane.
struct ForLane {
    template <class Compute, class Lane> __device__ void operator()(const Compute& compute, const Lane& lane) const {
        compute(lane);
    }
};

// The second pack of a thread lies half of an axis behind the first.
template <class R, class Args> __device__ void place_pair(R (&run)[2], const Args& args) {
    run[1] = run[0];
#pragma unroll
    for (int o = 0; o < Args::OPERANDS; ++o)
        if (!is_still(o)) run[1].base[o] += index_t(args.inner_stride[alike(o)][0]);
}
template <class R, class Args> __device__ void place_pair(R (&)[1], const Args&) {}

// Packs of cells that all exist. Mostly all arrays lie in packs: then nothing is asked of each of them, and along one
// axis no offset is computed.
template <class Program, int N, int PACKS, class Args> __device__ void store_whole(const Args& args, index_t first) {
    using Cells = typename Program::Cells;
    using Of = decltype(moved_by(*static_cast<Cells*>(nullptr)));
    using R = RunOf<Args, N>;
    const bool whole = (u64(args.vectorized) & Of::READ) == Of::READ;
    int live[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; ++k) live[k] = N;
    R run[PACKS];
    run[0].first = first;
    if (!SPLAT && whole && int(args.outer.axes) == 1) {
        run[0].reset(args.outer_stride);
#pragma unroll
        for (int o = 0; o < Args::OPERANDS; ++o) {
            const bool counts = o < 64 && (Of::READ | Of::WRITTEN) >> o & 1;
            run[0].place[0][o] = counts ? first : first * run[0].last_stride[o];
        }
    } else {
        run[0].find(first, index_t(1), N, args.outer, args.outer_stride);
    }
    place_pair(run, args);
    typename Cells::template Words<N, PACKS> words;
    const auto read_all = [&](long long vectorized) {
        Cells::read_arrays(words, args, [&](auto& of, const auto* data, int operand) {
            read_packs(of, data, run, operand, vectorized >> operand & 1, live);
        });
    };
    if (whole) read_all(Of::READ);
    else read_all(args.vectorized & Of::READ);
    using Held = Packs<Cells, N, PACKS>;
    Held packs;
    packs.take(words);
    if constexpr (Program::PLACED) {
        bool all = Cells::IN_PACKS;
        if constexpr (Cells::IN_PACKS) Cells::places(packs, args, PackReader<R, Held, PACKS>{run, packs, all});
        if (!all) Cells::places(packs, args, Reader<R, Held, PACKS>{run, packs, live, args.vectorized});
    }
    packs.compute(args, Lanes<R, Held, N, PACKS, ForLane>{run, packs, ForLane()});
    store_packs<Program, N>(packs, args, run, live);
}

// Whether all that a program reads lies in packs, as a rule. Splats have axes of their own, along which offsets are
// computed anyway: 2048 x 2048 of alibi for 4 x 32 heads take 512 us of an H200, with `store_whole` 515.
template <class Program> __device__ constexpr bool takes_packs() {
    return Program::PLACED ? Program::Cells::IN_PACKS : !SPLAT;
}

// Without reductions: a block's cells are contiguous, and neighbouring threads take neighbouring packs. A thread has
// one pack, or two, or PACKS single cells if the layout is strided.
template <class Program, class Args> __device__ void store_cells(const Args& args) {
    constexpr bool PACKS_OF_CELLS = LAYOUT != Layout::STRIDED;
    constexpr int N = PACKS_OF_CELLS ? 16 / sizeof(Element) : 1;
    constexpr int PACKS = WALK == Walk::PAIRS ? 2 : PACKS_OF_CELLS ? 1 : Schedule::PACKS;
    constexpr int CELLS = Schedule::THREADS * (PACKS_OF_CELLS ? N : PACKS);
    using R = RunOf<Args, N>;
    const index_t from = index_t(blockIdx.x) * CELLS;
    if constexpr (WALK == Walk::PAIRS || (LAYOUT == Layout::PACKED && takes_packs<Program>())) {
        const index_t first = from + index_t(threadIdx.x) * N;
        if (first < index_t(args.outer.count)) store_whole<Program, N, PACKS>(args, first);
    } else {
        const Finder<index_t, CELLS, N, Args::OPERANDS, R::ROWS> finder(from, args.outer, args.outer_stride);
        R run[PACKS];
        int live[PACKS];
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            run[k].first = from + index_t((k * Schedule::THREADS + threadIdx.x) * N);
            live[k] = live_of<N>(run[k].first, args.outer.count);
            finder.find(run[k], live[k] ? run[k].first : from, live[k], args.outer, args.outer_stride);
        }
        Packs<typename Program::Cells, N, PACKS> packs;
        if (live[0] > 0) {
            compute_cells<N>(packs, args, run, live, ForLane());
            store_packs<Program, N>(packs, args, run, live);
        }
    }
}

// Terms [from, from + GROUP) of a step, of packs that were read; what is stored of their cells is written.
template <class Program, int N, class Args, int GROUP, class Terms>
__device__ void compute_terms_of(Packs<typename Program::Terms, N, GROUP>& packs, const Args& args,
                                 const RunOf<Args, N> (&run)[GROUP], const int (&live)[GROUP], Terms& terms, int from) {
    using Reduced = typename Program::template Reduced<ValueOf>;
    const auto use = [&](const auto& compute, const auto& lane) {
        Reduced term;
        compute(lane, term);
        const bool exists = is_live<LAYOUT>(lane.i, live[lane.k]);
        Reduced::each([&](auto& all, auto& one) { all.set(from + lane.k, lane.i, one, exists); }, terms, term);
    };
    packs.compute(args, Lanes<RunOf<Args, N>, Packs<typename Program::Terms, N, GROUP>, N, GROUP, decltype(use)>{
                            run, packs, use});
    write_cells<N>(packs, args, run, live);
}
template <class Program, int N, class Args, int GROUP, class Terms>
__device__ void compute_terms(const Args& args, const RunOf<Args, N> (&run)[GROUP], const int (&live)[GROUP],
                              Terms& terms, int from) {
    using Held = Packs<typename Program::Terms, N, GROUP>;
    Held packs;
    packs.reads(args, Reader<RunOf<Args, N>, Held, GROUP>{run, packs, live, args.vectorized});
    compute_terms_of<Program, N>(packs, args, run, live, terms, from);
}

// The outputs of an owner's N cells, once their reductions are known.
template <class Program, int N, class Args, class Values>
__device__ void store_values(const Args& args, const RunOf<Args, N> (&run)[1], const int (&live)[1], Values& values) {
    using Reduced = typename Program::template Reduced<ValueOf>;
    Packs<typename Program::Epilogue, N, 1> packs;
    compute_cells<N>(packs, args, run, live, [&](const auto& compute, const auto& lane) {
        Reduced reduced = {};
        Reduced::each([&](auto& one, auto& all) { one = all.of[lane.i]; }, reduced, values);
        compute(lane, reduced);
    });
    write_cells<N>(packs, args, run, live);
}

// Whether all that terms read at computed places is at named ones, in packs, and no term is stored.
template <auto... READS, auto... WRITES, class... Placed>
Int<sizeof...(WRITES) == 0 && sizeof...(Placed) != 0 && (true && ... && Placed::Places::NAME_PACKS)> named(
    const Body<Reads<READS...>, Writes<WRITES...>, Placed...>&);
template <class Program> __device__ constexpr bool names_packs() {
    return LAYOUT == Layout::PACKED && decltype(named(*static_cast<typename Program::Terms*>(nullptr)))::VALUE;
}

// AHEAD steps of a thread, WHOLE if all units exist: what is read at named places is in flight for all of them. False
// if it cannot be; then nothing has been added.
template <class Program, bool WHOLE, int AHEAD, class Args, class Parts, class I, int N, bool ROWS>
__device__ bool add_named(const Args& args, Parts& parts, Terms<I, Args::OPERANDS, LAYOUT, N, ROWS>& places, I unit,
                          int step, I end) {
    constexpr int PACKS = terms_at_once<Program>(), ALL = AHEAD * PACKS;
    using Reduced = typename Program::template Reduced<ValueOf>;
    using R = RunOf<Args, N>;
    using Held = Packs<typename Program::Terms, N, ALL>;
    R run[ALL];
    int live[ALL];
    if (!places.template place_near<WHOLE>(run, live, unit, step, end, args.inner, args.inner_stride)) return false;
    Held packs;
    bool named = true;
    Program::Terms::read_arrays(packs, args, Reader<R, Held, ALL>{run, packs, live, args.vectorized});
    Program::Terms::places(packs, args, NamedReader<R, Held, N, ALL, false>{run, packs, live, named});
    if (!named) return false;
    Program::Terms::places(packs, args, NamedReader<R, Held, N, ALL, true>{run, packs, live, named});
    typename Program::template Reduced<Steps<AHEAD, PACKS, N>::template Terms> terms;
    const auto use = [&](const auto& compute, const auto& lane) {
        Reduced term;
        compute(lane, term);
        Reduced::each([&](auto& all, auto& one) { all.set(lane.k, lane.i, one, WHOLE || live[lane.k] > 0); }, terms,
                      term);
    };
    packs.compute(args, Lanes<R, Held, N, ALL, decltype(use)>{run, packs, use});
    const auto add = [&](auto& part, auto& term) {
#pragma unroll
        for (int s = 0; s < AHEAD; ++s) {
            term.of[s].template pair_up<PACKS>(0);
            part.add(term.of[s]);
        }
    };
    Parts::each(add, parts, terms);
    return true;
}

// Bytes of an element of each array that a body reads for each cell.
template <auto... READS, auto... WRITES, class... Places>
Int<(0 + ... + (is_splat(ArrayOf<READS>::OPERAND) ? 0 : int(sizeof(typename ArrayOf<READS>::element_t))))> bytes_read(
    const Body<Reads<READS...>, Writes<WRITES...>, Places...>&);
// The registers that packs of what is read take.
template <class Of, int PACKS> __device__ constexpr int registers_read() {
    return decltype(bytes_read(*static_cast<Of*>(nullptr)))::VALUE * (16 / int(sizeof(Element))) * PACKS / 4;
}
constexpr int MUCH_READ = 80;  // of the 128 registers of a thread of two blocks, which also hold sums and places

// One step of a thread: PACKS units of its owner. WHOLE: all of their cells exist, which needs no conditions.
template <class Program, bool WHOLE, class Args, class Parts, class I, int N, bool ROWS>
__device__ void add_terms(const Args& args, Parts& parts, Terms<I, Args::OPERANDS, LAYOUT, N, ROWS>& places, I unit,
                          int step, I end) {
    constexpr int PACKS = terms_at_once<Program>();
    constexpr bool MUCH = PACKS > Schedule::PACKS || registers_read<typename Program::Terms, PACKS>() > MUCH_READ;
    constexpr int EACH = ROWS ? 1 : MUCH ? (PACKS + 1) / 2 : PACKS;  // where each cell has an offset
    constexpr int GROUP = LAYOUT == Layout::PACKED ? PACKS : LAYOUT == Layout::FLAT ? PACKS / 2 : EACH;
    typename Program::template Reduced<Step<PACKS, N>::template Terms> terms;
#pragma unroll
    for (int k = 0; k < PACKS; k += GROUP) {
        RunOf<Args, N> run[GROUP];
        int valid[GROUP];
        places.template place<WHOLE>(run, valid, unit + I(k) * step, step, end, args.inner, args.inner_stride);
        compute_terms<Program, N>(args, run, valid, terms, k);
        Parts::each([&](auto& term) { term.template pair_up<GROUP>(k); }, terms);
    }
    Parts::each([&](auto& part, auto& term) { part.add(term); }, parts, terms);
}

template <class Program, class Args, class Parts, class Terms, class I>
__device__ void add_step(const Args& args, Parts& parts, Terms& places, I unit, int step, I end) {
    const I last = unit + I(step) * (terms_at_once<Program>() - 1);
    if (!Program::PLACED && places.are_whole(unit, last, end, args.inner)) {
        add_terms<Program, true>(args, parts, places, unit, step, end);
    } else {
        add_terms<Program, false>(args, parts, places, unit, step, end);
    }
}

// What is prefetched of terms: all arrays that lie in packs, if a block has room for them.
template <class Program> struct Ahead {
    static constexpr u64 find() {
        if constexpr (LAYOUT != Layout::PACKED || Program::PLACED || Few::COUNT != 0) {
            return 0;
        } else {
            constexpr int N = PACK_BYTES / sizeof(Element);
            constexpr u64 ARRAYS = decltype(packed_of<N>(*static_cast<typename Program::Terms*>(nullptr)))::OPERANDS;
            return Slots<rank<ARRAYS>(64), Schedule::PACKS, Schedule::THREADS>::BYTES <= MOST_PREFETCHED ? ARRAYS : 0;
        }
    }
    static constexpr u64 ARRAYS = find();
    using Buffers = Slots<rank<ARRAYS>(64), Schedule::PACKS, Schedule::THREADS>;
    static constexpr int BYTES = ARRAYS == 0 ? 0 : Buffers::BYTES < LEAST_SHARED ? LEAST_SHARED : Buffers::BYTES;
};

// Steps whose units all exist, up to the end of a row of the summed axes: the packs of the next terms are on their way.
// Returns the unit behind them; the first one, if they must be added once more.
template <class Program, class Args, class Parts, class I, int N, bool ROWS, class S>
__device__ I add_prefetched(const Args& args, Parts& parts, Terms<I, Args::OPERANDS, LAYOUT, N, ROWS>& places,
                            const Units<I>& units, I end, S slots) {
    constexpr int PACKS = terms_at_once<Program>(), GROUP = Schedule::PACKS;
    constexpr u64 ARRAYS = Ahead<Program>::ARRAYS;
    using R = RunOf<Args, N>;
    using Body = typename Program::Terms;
    const I unit = units.begin;
    const int step = units.step;
    if ((args.vectorized & ARRAYS) != ARRAYS) return unit;
    const I turns = places.turns_in_row(unit, step, PACKS, end, args.inner, args.inner_stride);
    if (turns == 0) return unit;
    const I apart = I(step) * places.CELLS;
    R now;
    places.place(now, N, unit, args.inner, args.inner_stride);
    const auto place = [&](R(&run)[GROUP], I away) {
#pragma unroll
        for (int k = 0; k < GROUP; ++k) {
            run[k] = now;
            run[k].advance(away + apart * k, args.inner_stride);
        }
    };
    Packs<Body, N, GROUP> packs;
    I groups = turns * (PACKS / GROUP);  // that are left
    const auto prefetch = [&](int ahead) {
        if (groups > I(ahead)) {
            R run[GROUP];
            place(run, apart * (GROUP * ahead));
            Body::read_arrays(packs, args, Prefetch<ARRAYS, R, GROUP, S>{run, slots});
        }
        cp_async_commit_group();
    };
    prefetch(0);
    slots.exchange();
    prefetch(1);
    slots.exchange();
    while (groups > 0) {
        typename Program::template Reduced<Step<PACKS, N>::template Terms> terms;
#pragma unroll
        for (int k = 0; k < PACKS; k += GROUP) {
            R run[GROUP];
            int live[GROUP];
            place(run, 0);
#pragma unroll
            for (int i = 0; i < GROUP; ++i) live[i] = N;
            cp_async_wait_group<1>();
            Body::read_arrays(packs, args, PrefetchedReader<ARRAYS, R, GROUP, S>{run, live, slots, args.vectorized});
            prefetch(2);
            slots.exchange();
            now.advance(apart * GROUP, args.inner_stride);
            --groups;
            compute_terms_of<Program, N>(packs, args, run, live, terms, k);
            Parts::each([&](auto& term) { term.template pair_up<GROUP>(k); }, terms);
        }
        Parts::each([&](auto& part, auto& term) { part.add_packs(term); }, parts, terms);
    }
    bool settled = true;
    Parts::each([&](auto& part) { settled &= part.settle(); }, parts);
    if (!settled) parts = Parts();
    return settled ? unit + turns * I(step) * PACKS : unit;
}

// Block (x, y): group x of owners, split y of their terms. An owner is an output cell (ROWS) or a pack of them
// (COLUMNS), and `slices` threads share its terms: a thread takes every slices-th pack of terms (ROWS) or term
// (COLUMNS), PACKS at a time. The order of reduction depends on the problem's shape alone.
template <class Program, class Args> __device__ void reduce_terms(const Args& args) {
    constexpr bool ROWS = WALK == Walk::ROWS;
    constexpr int N = 16 / sizeof(Element), OUTPUTS = ROWS ? 1 : N, PACKS = terms_at_once<Program>();
    using Parts = typename Program::template Reduced<Owned<OUTPUTS>::template Parts>;
    const Share<Schedule::THREADS, ROWS> share(args.cut.slice_bits);
    const OutputCells<index_t, LAYOUT, OUTPUTS> cells(share, args.outer.count);
    Terms<index_t, Args::OPERANDS, LAYOUT, N, ROWS> places(cells.first, cells.cell_stride, cells.live, args.outer,
                                                           args.outer_stride);
    const Units<index_t> units(args.cut, share);
    const index_t end = cells.live ? units.end : 0;
    Parts parts;
    index_t unit = units.begin;
    if constexpr (WALK == Walk::COLUMNS && names_packs<Program>()) {
        constexpr int AHEAD = 8 / PACKS;  // 16 bytes of each of eight terms in flight
        const index_t step = index_t(units.step) * PACKS;
        while (unit + (step * AHEAD - units.step) < end &&
               add_named<Program, true, AHEAD>(args, parts, places, unit, units.step, end))
            unit += step * AHEAD;
        while (unit < end && add_named<Program, false, 1>(args, parts, places, unit, units.step, end)) unit += step;
    }
    unsigned char* const scratch =
        slice_scratch<OUTPUTS, typename Program::template Reduced<SizeOf>, Schedule::THREADS, Ahead<Program>::BYTES>();
    if constexpr (Ahead<Program>::BYTES > 0)
        unit = add_prefetched<Program>(args, parts, places, units, end, typename Ahead<Program>::Buffers(scratch));
    for (; unit < end; unit += index_t(units.step) * PACKS)
        add_step<Program>(args, parts, places, unit, units.step, end);
    typename Program::template Reduced<Owned<OUTPUTS>::template Values> values;
    Parts::each([&](auto& value, auto& part) { value.reduce_slices(part, share, scratch); }, values, parts);
    if (share.slice != 0 || !cells.live) return;
    if (args.cut.splits > 1) {
        const long long first = blockIdx.y * args.outer.count + cells.first;
        const auto write = [&](auto& value, auto& to) { value.write(to + first, cells.cell_stride, cells.live); };
        return Parts::each(write, values, args.parts);
    }
    RunOf<Args, OUTPUTS> run[1];  // found again here, to keep registers free in the loop
    run[0].find(cells.first, cells.cell_stride, cells.live, args.outer, args.outer_stride);
    const int live[1] = {cells.live};
    store_values<Program, OUTPUTS>(args, run, live, values);
}

// The runs of a column's terms [unit, unit + TERMS), where terms are few; those beyond the last one do not exist.
template <int TERMS, class R, class Strides>
__device__ void place_few(R (&run)[TERMS], int (&live)[TERMS], const R& origin, int unit, int cells, const Strides& s) {
#pragma unroll
    for (int k = 0; k < TERMS; ++k) {
        live[k] = unit + k < Few::COUNT ? cells : 0;
        run[k] = origin;
        Few::move(run[k], unit + k, s);
    }
}

// Adds what was computed of STEPS steps from `unit` on to a column's parts.
template <class Program, int STEPS, class Parts, class Terms>
__device__ void add_few(Parts& parts, Terms& terms, int unit) {
    constexpr int PACKS = terms_at_once<Program>();
#pragma unroll
    for (int s = 0; s < STEPS && unit + s * PACKS < Few::COUNT; ++s) {
        const auto add = [&](auto& part, auto& term) {
            term.of[s].template pair_up<PACKS>(0);
            part.template add_few<Program::IN_ORDER>(term.of[s], unit + s == 0);
        };
        Parts::each(add, parts, terms);
    }
}

// Whether all that terms read may be windows of one array.
template <auto... READS, auto... WRITES, class... Placed>
Int<sizeof...(READS) + sizeof...(WRITES) == 0 && sizeof...(Placed) == 1 && (true && ... && Placed::Places::WINDOWS)>
windowed(const Body<Reads<READS...>, Writes<WRITES...>, Placed...>&);
template <class Program> __device__ constexpr bool takes_windows() {
    return LAYOUT == Layout::PACKED && decltype(windowed(*static_cast<typename Program::Terms*>(nullptr)))::VALUE;
}

// STEPS steps of a column whose terms are windows. False if they are not; then nothing has been added.
template <class Program, int STEPS, class Args, class Parts, class R>
__device__ bool add_windows(const Args& args, Parts& parts, const R& origin, int unit, int cells) {
    constexpr int N = 16 / sizeof(Element), PACKS = terms_at_once<Program>(), ALL = STEPS * PACKS;
    using Reduced = typename Program::template Reduced<ValueOf>;
    using Held = Packs<typename Program::Terms, N, ALL>;
    R run[ALL];
    int live[ALL];
    place_few(run, live, origin, unit, cells, args.inner_stride);
    Held packs;
    bool read = false;
    Program::Terms::places(packs, args, WindowReader<R, Held, N, ALL>{run, packs, live, read});
    if (!read) return false;
    typename Program::template Reduced<Steps<STEPS, PACKS, N>::template Terms> terms;
    const auto use = [&](const auto& compute, const auto& lane) {
        Reduced term;
        compute(lane, term);
        Reduced::each([&](auto& all, auto& one) { all.set(lane.k, lane.i, one, live[lane.k] > 0); }, terms, term);
    };
    packs.compute(args, Lanes<R, Held, N, ALL, decltype(use)>{run, packs, use});
    add_few<Program, STEPS>(parts, terms, unit);
    return true;
}

// One thread for each pack of output cells, of columns with few terms: it reduces them in the order of `reduce_terms`.
template <class Program, class Args> __device__ void reduce_few(const Args& args) {
    constexpr int N = 16 / sizeof(Element), PACKS = terms_at_once<Program>(), STEPS = takes_windows<Program>() ? 2 : 1;
    const OutputCells<index_t, LAYOUT, N> cells(OwnPack<Schedule::THREADS>(), args.outer.count);
    if (!cells.live) return;
    const int live_cells = LAYOUT == Layout::PACKED ? N : cells.live;
    RunOf<Args, N> origin[1];
    origin[0].find(cells.first, cells.cell_stride, cells.live, args.outer, args.outer_stride);
    using Parts = typename Program::template Reduced<Owned<N>::template Parts>;
    Parts parts;
#pragma unroll
    for (int from = 0; from < Few::COUNT; from += STEPS * PACKS) {
        if constexpr (STEPS > 1)
            if (add_windows<Program, STEPS>(args, parts, origin[0], from, live_cells)) continue;
#pragma unroll
        for (int unit = from; unit < from + STEPS * PACKS && unit < Few::COUNT; unit += PACKS) {
            RunOf<Args, N> run[PACKS];
            int live[PACKS];
            place_few(run, live, origin[0], unit, live_cells, args.inner_stride);
            typename Program::template Reduced<Steps<1, PACKS, N>::template Terms> terms;
            compute_terms<Program, N>(args, run, live, terms, 0);
            add_few<Program, 1>(parts, terms, unit);
        }
    }
    typename Program::template Reduced<Owned<N>::template Values> values;
    const auto total = [&](auto& value, auto& part) {
#pragma unroll
        for (int i = 0; i < N; ++i) value.of[i] = part.total(i);
    };
    Parts::each(total, values, parts);
    const int live[1] = {cells.live};
    store_values<Program, N>(args, origin, live, values);
}

// One thread for each output cell, which reduces all of its terms, TERMS at a time.
template <class Program, class Args> __device__ void reduce_singles(const Args& args) {
    using R = RunOf<Args, 1>;
    using Parts = typename Program::template Reduced<Owned<1>::template Parts>;
    constexpr int THREADS = Schedule::THREADS, TERMS = Schedule::PACKS * 8 / sizeof(Element);
    const index_t cell = index_t(blockIdx.x) * THREADS + threadIdx.x, count = index_t(args.cut.units);
    const int live[1] = {live_of<1>(cell, args.outer.count)};
    R origin[1];
    origin[0].find(cell, index_t(1), live[0], args.outer, args.outer_stride);
    TermPlaces<index_t, THREADS, Args::OPERANDS> places;
    Parts parts;
    for (index_t from = 0; from < count; from += THREADS) {
        places.find(from, args.inner, args.inner_stride);
        const int left = !live[0] ? 0 : count - from < index_t(THREADS) ? int(count - from) : THREADS;
        for (int term = 0; term < left; term += TERMS) {
            R run[TERMS];
            int valid[TERMS];
            places.place(run, valid, origin[0], term, left - term);
            typename Program::template Reduced<Step<TERMS, 1>::template Terms> terms;
            compute_terms<Program, 1>(args, run, valid, terms, 0);
            Parts::each([&](auto& of) { of.template pair_up<TERMS>(0); }, terms);
            Parts::each([&](auto& part, auto& of) { part.add(of); }, parts, terms);
        }
    }
    if (!live[0]) return;
    typename Program::template Reduced<Owned<1>::template Values> values;
    Parts::each([&](auto& value, auto& part) { value.of[0] = part.total(0); }, values, parts);
    store_values<Program, 1>(args, origin, live, values);
}

// Packs at named places are read by all terms at once.
template <class Program> __device__ constexpr bool takes_few() {
    if constexpr (Few::COUNT == 0 || WALK != Walk::COLUMNS) return false;
    else return !names_packs<Program>();
}

// Reduces the splits of each output cell with `slices` threads.
template <class Program, class Args> __device__ void reduce_splits(const Args& args) {
    const Share<Schedule::THREADS, false> share(args.cut.reduce_bits);
    const index_t first = index_t(blockIdx.x) * share.owners + share.owner;
    const int live[1] = {live_of<1>(first, args.outer.count)};
    using Parts = typename Program::template Reduced<Owned<1>::template Parts>;
    Parts parts;
    typename Program::template Reduced<Owned<1>::template Values> values;
    unsigned char* const scratch = slice_scratch<1, typename Program::template Reduced<SizeOf>, Schedule::THREADS>();
    const auto reduce = [&](auto& value, auto& part, auto& from) {
        if (live[0]) part.add_splits(from + first, args.cut.splits, args.outer.count, share);
        value.reduce_slices(part, share, scratch);
    };
    Parts::each(reduce, values, parts, args.parts);
    if (share.slice != 0 || !live[0]) return;
    RunOf<Args, 1> run[1];
    run[0].find(first, index_t(1), 1, args.outer, args.outer_stride);
    store_values<Program, 1>(args, run, live, values);
}

// Those of reductions by an index, which include by_index.cuh.
template <class Program, class Args> __device__ void order_positions(const Args& args);
template <class Program, class Args> __device__ void walk_lists(const Args& args);

template <class Program, class Args> __device__ void walk(const Args& args) {
    if constexpr (WALK == Walk::ORDER) order_positions<Program>(args);
    if constexpr (WALK == Walk::LISTS) walk_lists<Program>(args);
    if constexpr (STORED) store_cells<Program>(args);
    if constexpr (WALK == Walk::SINGLES) reduce_singles<Program>(args);
    if constexpr (takes_few<Program>()) {
        reduce_few<Program>(args);
    } else if constexpr (WALK == Walk::ROWS || WALK == Walk::COLUMNS) {
        if (args.stage == 0) reduce_terms<Program>(args);
        if (args.stage == 1) {
            wait_on_dependent_grids();
            reduce_splits<Program>(args);
        }
    }
}

// Whether it stores what it makes of each cell.
template <auto... READS, auto... WRITES, class... Places>
Int<sizeof...(WRITES)> arrays_written(const Body<Reads<READS...>, Writes<WRITES...>, Places...>&);
template <class Of> constexpr bool STORES = decltype(arrays_written(*static_cast<Of*>(nullptr)))::VALUE > 0;

// Blocks of 256 threads per multiprocessor: the maximum if a thread moves one pack, half of it if several packs are in
// flight, fewer if each element has its own offset, if places or random numbers are computed, or if there is much to
// hold.
constexpr int MANY_OPERANDS = 6;
template <class Program> __device__ constexpr int blocks_of_cells(int operands) {
    if (LAYOUT == Layout::STRIDED) return 1;
    if (Program::RANDOM) return 5;
    if (LAYOUT == Layout::PACKED) return registers_read<typename Program::Cells, 1>() > 24 ? 4 : 8;
    // 16 lanes of two rows need more registers.
    return operands >= MANY_OPERANDS ? 4 : sizeof(Element) > 1 ? 8 : 6;
}
// Up to three arrays that are read at computed places leave registers for as many blocks as none: bf16 16384 x 4096 of
// an embedding take 94 us of an H100 with 8 blocks, 105 with 6, 112 with 4, and 134 MB of rope 94 with 8, 105 with 6.
template <auto... READS, auto... WRITES, class... Places>
Int<sizeof...(Places)> arrays_placed(const Body<Reads<READS...>, Writes<WRITES...>, Places...>&);
// Two packs of much take registers: a gradient of swiglu, which reads three arrays, 1158 us with 8 blocks, 628 with 5;
// gelu 225 with 8, 238 with 6, 252 with 5; rope 69 with 6, 103 with 8.
template <class Program> __device__ constexpr int blocks_of_pairs() {
    using Cells = typename Program::Cells;
    constexpr int PLACED = decltype(arrays_placed(*static_cast<Cells*>(nullptr)))::VALUE;
    if (Program::RANDOM) return registers_read<Cells, 1>() > 0 ? 6 : 5;
    if (PLACED <= 2 && Cells::IN_PACKS) return 6;
    if (PLACED > 2 && !Cells::IN_PACKS) return 4;
    const bool is_much = registers_read<Cells, 1>() > 8 || Program::Args::OPERANDS >= MANY_OPERANDS;
    return PLACED > 1 || sizeof(Element) > 4 || is_much ? 5 : 8;
}
template <class Program> __device__ constexpr int blocks_of_few() {
    if constexpr (!takes_few<Program>() || LAYOUT != Layout::PACKED || !SPLAT) {
        return 1;
    } else {
        constexpr int ARRAYS = decltype(arrays_placed(*static_cast<typename Program::Terms*>(nullptr)))::VALUE;
        return (Few::COUNT > 1 && ARRAYS > 1) || (Few::COUNT > 4 && takes_windows<Program>()) ? 3 : 4;
    }
}
template <class Program> __device__ constexpr int blocks_of_places() {
    if constexpr (STORED && LAYOUT == Layout::PACKED) {
        using Cells = typename Program::Cells;
        return decltype(arrays_placed(*static_cast<Cells*>(nullptr)))::VALUE < 4 && sizeof(Element) > 1 ? 8 : 6;
    } else {
        return STORED ? 3 : blocks_of_few<Program>();
    }
}
template <class Program> __device__ constexpr int blocks_of_columns(int operands) {
    if (operands >= MANY_OPERANDS) return LAYOUT == Layout::PACKED ? 2 : 1;
    const int widest = most_bytes<typename Program::template Reduced<SizeOf>>();
    const int sums = LAYOUT == Layout::PACKED ? 4 : 3, words = widest / int(sizeof(acc_of<Element>));
    return words < 2 ? sums : words == 2 ? sums - 1 : 2;
}
template <class Program> __device__ constexpr int blocks_of_sums(int operands) {
    constexpr int READ = registers_read<typename Program::Terms, Schedule::PACKS>();
    if (WALK == Walk::COLUMNS) return READ > MUCH_READ ? 1 : READ > 40 ? 2 : blocks_of_columns<Program>(operands);
    if (LAYOUT != Layout::PACKED) return 1;
    return READ > 40 || operands >= MANY_OPERANDS ? 2 : STORES<typename Program::Terms> ? 3 : 4;
}
template <class Program> __device__ constexpr bool sums_gathered_packs() {
    if constexpr (WALK == Walk::COLUMNS) return names_packs<Program>();
    else return false;
}
template <class Program> __device__ constexpr int blocks_per_sm() {
    constexpr int OPERANDS = Program::Args::OPERANDS - count_splat();
    if (BARACUDA_WIDE || WALK == Walk::ORDER) return 1;
    if (WALK == Walk::LISTS) return LAYOUT == Layout::PACKED ? 4 : 3;
    if (sums_gathered_packs<Program>()) return 2;
    if constexpr (WALK == Walk::PAIRS) return blocks_of_pairs<Program>();
    if (Program::PLACED) return blocks_of_places<Program>();
    // Measured: f64 4131 GB/s with 6 blocks, 3934 with 8; bf16 3379 and 3550.
    if (WALK == Walk::SINGLES) return sizeof(Element) > 4 ? 6 : 8;
    if constexpr (STORED) return blocks_of_cells<Program>(OPERANDS);
    if constexpr (WALK == Walk::ROWS || WALK == Walk::COLUMNS) return blocks_of_sums<Program>(OPERANDS);
    return 1;
}

}  // namespace baracuda
