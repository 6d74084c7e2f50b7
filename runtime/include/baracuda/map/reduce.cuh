// Reductions of a map: what a term is, how two values become one, and in which order a block's threads do so.
#pragma once

#include <baracuda/map/body.cuh>
#include <baracuda/map/map.cuh>
#include <baracuda/warp.cuh>

namespace baracuda {

// Compensated summation: the error does not grow with the number of terms.
template <typename A> struct Compensated {
    A high = 0, low = 0;

    __device__ void begin(A term) { high = A(0) + term; }  // the same as `add`, of nothing
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

// What is reduced by `combine` of a monoid M, from its neutral element on.
template <class M, typename V> struct Folded {
    V value = M::none();
    __device__ void begin(V term) { value = term; }
    __device__ void add(V term) { value = M::combine(value, term); }
    __device__ V total() const { return value; }
};
template <class M, typename V> struct Monoid {
    static constexpr bool GUARDED = true;
    using Value = V;
    using Part = Folded<M, V>;
};

template <typename A> struct Limits {
    __device__ static A least() { return -math::infinity<A>(); }
    __device__ static A most() { return math::infinity<A>(); }
};
template <> struct Limits<i64> {
    __device__ static i64 least() { return i64(1ull << 63); }
    __device__ static i64 most() { return i64(~(1ull << 63)); }
};

// Exact, modulo 2^64.
struct IntSum : Monoid<IntSum, i64> {
    __device__ static i64 none() { return 0; }
    __device__ static i64 combine(i64 a, i64 b) { return math::add(a, b); }
};
template <typename A> struct Prod : Monoid<Prod<A>, A> {
    __device__ static A none() { return 1; }
    __device__ static double combine(double a, double b) { return a * b; }
    __device__ static float combine(float a, float b) { return a * b; }
    __device__ static i64 combine(i64 a, i64 b) { return math::multiply(a, b); }
};
template <typename A> struct Max : Monoid<Max<A>, A> {
    __device__ static A none() { return Limits<A>::least(); }
    __device__ static A combine(A a, A b) { return math::maximum(a, b); }
};
template <typename A> struct Min : Monoid<Min<A>, A> {
    __device__ static A none() { return Limits<A>::most(); }
    __device__ static A combine(A a, A b) { return math::minimum(a, b); }
};
struct Any : Monoid<Any, bool> {
    __device__ static bool none() { return false; }
    __device__ static bool combine(bool a, bool b) { return a || b; }
};
struct All : Monoid<All, bool> {
    __device__ static bool none() { return true; }
    __device__ static bool combine(bool a, bool b) { return a && b; }
};

// Of means, a change that is no number comes of an infinity: their sum is what they have in common.
template <typename A> __device__ A finite_or(A change, A other) { return change - change == A(0) ? change : other; }

// How many values there are, their mean, and the sum of their squared distances from it (Chan, Golub and LeVeque,
// Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, 1982).
template <typename A> struct Moments {
    A count, mean, spread;
    Moments() = default;
    __device__ Moments(A value) : count(1), mean(value), spread(0) {}
    __device__ Moments(A count, A mean, A spread) : count(count), mean(mean), spread(spread) {}
    __device__ operator A() const { return spread; }
    __device__ A sum() const { return mean * count; }
    // The part of `other` in the count of both.
    __device__ A share(const Moments& other) const {
        return count == other.count ? A(0.5) : other.count / (count + other.count);
    }
};
template <typename A> struct Spread {
    using Value = Moments<A>;
    __device__ static Value none() { return {0, 0, 0}; }
    __device__ static Value combine(const Value& a, const Value& b) {
        const A part = a.share(b), away = b.mean - a.mean;
        const A spread = a.spread + b.spread + away * (away * (a.count * part));
        return {a.count + b.count, a.mean + finite_or(away * part, b.mean), spread};
    }
};

// A value and its place; ~0 is the place of none.
template <typename A, typename I> struct Extreme {
    A value;
    I at;
    __device__ operator i64() const { return at == ~I(0) ? -1 : i64(at); }
    // Whether `other` comes before: of equal values, and of NaNs, the first. A NaN comes before numbers.
    template <bool LARGEST> __device__ bool yields_to(const Extreme& other) const {
        const bool here = value != value, there = other.value != other.value;
        const bool beyond = LARGEST ? other.value > value : other.value < value;
        const bool alike = here ? there : other.value == value;
        return (alike && other.at < at) || (!here && (there || beyond));
    }
};
template <typename A, typename I, bool LARGEST_> struct Arg : Monoid<Arg<A, I, LARGEST_>, Extreme<A, I>> {
    static constexpr bool LARGEST = LARGEST_;
    using P = Extreme<A, I>;
    __device__ static P none() { return {LARGEST ? Limits<A>::least() : Limits<A>::most(), ~I(0)}; }
    __device__ static P combine(P a, P b) { return a.template yields_to<LARGEST>(b) ? b : a; }
    __device__ static A extreme(A a, A b) { return LARGEST ? math::maximum(a, b) : math::minimum(a, b); }
};
template <typename A, typename I> using ArgMax = Arg<A, I, true>;
template <typename A, typename I> using ArgMin = Arg<A, I, false>;

// What a walk has of each reduction M.
template <class M> using ValueOf = typename M::Value;
template <class M> struct SizeOf {
    int bytes = sizeof(typename M::Value);
};
// Of the widest value.
template <class Sizes> __device__ constexpr int most_bytes() {
    Sizes sizes = {};
    int most = 1;
    Sizes::each([&](const auto& size) { most = size.bytes > most ? size.bytes : most; }, sizes);
    return most;
}
// Whether moments are among what a program reduces.
template <class M> struct IsSpread {
    bool value = false;
};
template <typename A> struct IsSpread<Spread<A>> {
    bool value = true;
};
template <class Program> __device__ constexpr bool reduces_moments() {
    typename Program::template Reduced<IsSpread> are = {};
    bool any = false;
    Program::template Reduced<IsSpread>::each([&](const auto& is) { any = any || is.value; }, are);
    return any;
}
// Shared memory for OUTPUTS values of half of the threads, those that others get; all reductions use the same. LEAST:
// bytes that a kernel uses before.
template <int OUTPUTS, class Sizes, int THREADS, int LEAST = 0> __device__ unsigned char* slice_scratch() {
    constexpr int BYTES = OUTPUTS * (THREADS / 2) * most_bytes<Sizes>();
    struct alignas(16) Scratch {  // so that 16-byte reads of one touch no other
        unsigned char of[BYTES < LEAST ? LEAST : BYTES];
    };
    __shared__ Scratch scratch;
    return scratch.of;
}

// The terms of N lanes at each of STEPS units that a thread takes at a time.
template <class M, int STEPS, int N> struct StepTerms {
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
// Of all there are, the mean comes first, then distances from it. Terms of an output are those of all lanes (OUTPUTS is
// 1) or of one, and then each lane has as many.
template <typename A, int STEPS, int N> struct StepTerms<Spread<A>, STEPS, N> {
    A of[STEPS][N];
    int live[STEPS] = {};  // how many lanes exist: the first

    __device__ void set(int step, int lane, const Moments<A>& term, bool exists) {
        of[step][lane] = term.mean;
        live[step] += exists;
    }
    template <int GROUP> __device__ void pair_up(int) {}
    template <int OUTPUTS> __device__ A moments(A (&mean)[OUTPUTS], A (&spread)[OUTPUTS]) const {
        bool all = true;
        int count = 0;
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            all = all && live[s] == N;
            count += OUTPUTS == 1 ? live[s] : live[s] > 0;
        }
        if (all) {
            moments_of<true>(mean, spread, A(1) / (STEPS * (N / OUTPUTS)));
        } else {
            moments_of<false>(mean, spread, A(1) / A(count > 0 ? count : 1));
        }
        return A(count);
    }
    template <bool ALL, int OUTPUTS>
    __device__ void moments_of(A (&mean)[OUTPUTS], A (&spread)[OUTPUTS], A scale) const {
        constexpr int LANES = N / OUTPUTS, MOST = STEPS * LANES;
#pragma unroll
        for (int o = 0; o < OUTPUTS; ++o) {
            const auto exists = [&](int t) { return ALL || o + t % LANES < live[t / LANES]; };
            const auto value = [&](int t) { return of[t / LANES][o + t % LANES]; };
            mean[o] = tree<0, MOST>([&](int t) { return exists(t) ? value(t) : A(0); }) * scale;
            spread[o] = squares<0, MOST>([&](int t) { return exists(t) ? value(t) - mean[o] : A(0); });
        }
    }
    // The pairwise sum of COUNT squares.
    template <int FROM, int COUNT, class F> __device__ static A squares(const F& term) {
        if constexpr (COUNT == 1) {
            return term(FROM) * term(FROM);
        } else if constexpr (COUNT == 2) {
            return math::fma(term(FROM + 1), term(FROM + 1), squares<FROM, 1>(term));
        } else {
            return squares<FROM, COUNT / 2>(term) + squares<FROM + COUNT / 2, COUNT / 2>(term);
        }
    }
    // The pairwise sum of COUNT terms.
    template <int FROM, int COUNT, class F> __device__ static A tree(const F& term) {
        if constexpr (COUNT == 1) {
            return term(FROM);
        } else {
            return tree<FROM, COUNT / 2>(term) + tree<FROM + COUNT / 2, COUNT / 2>(term);
        }
    }
};
// The extreme of several values first, and where it is only if there is none before it.
template <typename A, typename I, bool LARGEST, int STEPS, int N> struct StepTerms<Arg<A, I, LARGEST>, STEPS, N> {
    using M = Arg<A, I, LARGEST>;
    using P = typename M::P;
    P of[STEPS][N];

    __device__ void set(int step, int lane, const P& term, bool exists) { of[step][lane] = exists ? term : M::none(); }
    template <int GROUP> __device__ void pair_up(int) {}
    // Of rows, the lanes of each step are terms of the only output; of columns, each lane's steps are those of its own.
    template <int OUTPUTS> __device__ void join(P (&best)[OUTPUTS]) const {
        if constexpr (OUTPUTS == 1) {
#pragma unroll
            for (int s = 0; s < STEPS; ++s) join<N>(best[0], [&](int t) -> const P& { return of[s][t]; });
        } else {
#pragma unroll
            for (int i = 0; i < N; ++i)
                if (!join_behind(best[i], i)) join<STEPS>(best[i], [&](int t) -> const P& { return of[t][i]; });
        }
    }
    // The same of one lane without branches. False, and nothing is done, unless its terms are numbers whose places
    // ascend from that of `best` on: then a later one that is equal is no better.
    __device__ bool join_behind(P& best, int lane) const {
        bool all = best.at < of[0][lane].at;
        const P most = most_of<0, STEPS>(lane, all);
        if (!all | most.value != most.value) return false;
        const bool better = beyond(most.value, best.value);
        best = {better ? most.value : best.value, better ? most.at : best.at};
        return true;
    }

    // Of columns, terms that come behind what `best` is of: a term is better if it is larger, or the first that is NaN.
    __device__ void follow(P& best, int lane, bool first) const {
        if (first) best = of[0][lane];
#pragma unroll
        for (int s = first; s < STEPS; ++s) {
            const P& term = of[s][lane];
            const bool better = !(LARGEST ? term.value <= best.value : term.value >= best.value);
            if (better && best.value == best.value) best = term;
        }
    }
    // Of numbers whose places ascend from those of `best` on: evenly along lanes (one output), or along steps, where
    // those of all lanes are alike.
    template <int OUTPUTS> __device__ void join_numbers(P (&best)[OUTPUTS]) const {
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const I at = of[s][0].at, stride = of[s][N > 1].at - at;
            if constexpr (OUTPUTS == 1) {
                const Found most = first_of<N>(s);
                const bool better = beyond(most.value, best[0].value);
                best[0] = {M::extreme(best[0].value, most.value), better ? at + I(most.lane) * stride : best[0].at};
            } else {
#pragma unroll
                for (int i = 0; i < N; ++i) {
                    const bool better = beyond(of[s][i].value, best[i].value);
                    best[i] = {M::extreme(best[i].value, of[s][i].value), better ? at : best[i].at};
                }
            }
        }
    }

private:
    __device__ static bool beyond(A a, A b) { return LARGEST ? a > b : a < b; }
    struct Found {
        A value;
        int lane;
    };
    template <int COUNT, int FROM = 0> __device__ Found first_of(int step) const {
        if constexpr (COUNT == 1) {
            return {of[step][FROM].value, FROM};
        } else {
            const Found a = first_of<COUNT / 2, FROM>(step), b = first_of<COUNT / 2, FROM + COUNT / 2>(step);
            return {M::extreme(a.value, b.value), beyond(b.value, a.value) ? b.lane : a.lane};
        }
    }
    // Of the COUNT terms of a lane from FROM on, unless one is NaN, which is its value then; `all`: places ascend.
    template <int FROM, int COUNT> __device__ P most_of(int lane, bool& all) const {
        if constexpr (COUNT == 1) {
            return of[FROM][lane];
        } else {
            const P a = most_of<FROM, COUNT / 2>(lane, all), b = most_of<FROM + COUNT / 2, COUNT / 2>(lane, all);
            all &= of[FROM + COUNT / 2 - 1][lane].at < of[FROM + COUNT / 2][lane].at;
            return {M::extreme(a.value, b.value), beyond(b.value, a.value) ? b.at : a.at};
        }
    }
    template <int COUNT, class F> __device__ static void join(P& best, const F& term) {
        const A most = extreme<0, COUNT>(term);
        if (LARGEST ? most < best.value : most > best.value) return;
        P found = {most, ~I(0)};
#pragma unroll
        for (int t = 0; t < COUNT; ++t) {  // if the extreme is a number, none is NaN
            const I at = term(t).value == most || term(t).value != term(t).value ? term(t).at : ~I(0);
            found.at = at < found.at ? at : found.at;
        }
        best = M::combine(best, found);
    }
    template <int FROM, int COUNT, class F> __device__ static A extreme(const F& term) {
        if constexpr (COUNT == 1) {
            return term(FROM).value;
        } else {
            return M::extreme(extreme<FROM, COUNT / 2>(term), extreme<FROM + COUNT / 2, COUNT / 2>(term));
        }
    }
};
template <int STEPS, int N> struct Step {
    template <class M> using Terms = StepTerms<M, STEPS, N>;
};

// The same for AHEAD steps, one after the other.
template <int AHEAD, int STEPS, int N> struct Steps {
    template <class M> struct Terms {
        StepTerms<M, STEPS, N> of[AHEAD];

        __device__ void set(int step, int lane, const typename M::Value& term, bool exists) {
            of[step / STEPS].set(step % STEPS, lane, term, exists);
        }
    };
};

// The OUTPUTS values of a thread's owner, of the terms that the thread has seen.
template <class M, int OUTPUTS> struct ThreadParts {
    typename M::Part of[OUTPUTS];

    // A step's pairs. Rows: one for the only output; columns: one for each.
    template <class Terms> __device__ void add(Terms& terms) {
        if (OUTPUTS == 1) terms.pair_up_lanes();
#pragma unroll
        for (int i = 0; i < OUTPUTS; ++i) of[i].add(terms.of[0][i]);
    }
    // The same of packs that all exist. In the end `settle` says whether that was right; if not, `add` must add them
    // all.
    template <class Terms> __device__ void add_packs(Terms& terms) { add(terms); }
    __device__ bool settle() const { return true; }
    // The same of columns; `first`: before all others. IN_ORDER: places of terms ascend.
    template <bool IN_ORDER, class Terms> __device__ void add_few(const Terms& terms, bool first) {
#pragma unroll
        for (int i = 0; i < OUTPUTS; ++i) {
            if (first) of[i].begin(terms.of[0][i]);
            else of[i].add(terms.of[0][i]);
        }
    }
    __device__ void add_value(const typename M::Value& value) { of[0].add(value); }
    __device__ typename M::Value total(int output) const { return of[output].total(); }
};
template <typename A, int OUTPUTS> struct ThreadParts<Spread<A>, OUTPUTS> {
    A count = 0;
    Compensated<A> mean[OUTPUTS], spread[OUTPUTS];

    template <bool FINITE = false, class Terms> __device__ void add(const Terms& terms) {
        A of_mean[OUTPUTS], of_spread[OUTPUTS];
        const A counted = terms.template moments<OUTPUTS>(of_mean, of_spread);
        join<FINITE>(counted, of_mean, of_spread);
    }
    // As if all were finite: then their changes are, too. Once one is not, the mean is not finite either.
    template <class Terms> __device__ void add_packs(const Terms& terms) { add<true>(terms); }
    __device__ bool settle() const {
        bool finite = true;
#pragma unroll
        for (int i = 0; i < OUTPUTS; ++i) finite &= mean[i].high - mean[i].high == A(0);
        return finite;
    }
    template <bool IN_ORDER, class Terms> __device__ void add_few(const Terms& terms, bool) { add(terms); }
    __device__ void add_value(const Moments<A>& value) {
        const A of_mean[1] = {value.mean}, of_spread[1] = {value.spread};
        join<false>(value.count, of_mean, of_spread);
    }
    template <bool FINITE, int COUNT>
    __device__ void join(A counted, const A (&of_mean)[COUNT], const A (&of_spread)[COUNT]) {
        if (counted == A(0)) return;
        const A part = counted / (count + counted), factor = count * part;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const A away = (of_mean[i] - mean[i].high) - mean[i].low;
            spread[i].add(math::fma(away, away * factor, of_spread[i]));
            mean[i].add(FINITE ? away * part : finite_or(away * part, of_mean[i]));
        }
        count += counted;
    }
    __device__ Moments<A> total(int output) const { return {count, mean[output].total(), spread[output].total()}; }
};

template <typename A, typename I, bool LARGEST, int OUTPUTS> struct ThreadParts<Arg<A, I, LARGEST>, OUTPUTS> {
    using M = Arg<A, I, LARGEST>;
    using P = typename M::P;
    P of[OUTPUTS];
    I first = ~I(0);  // the first place of packs

    __device__ ThreadParts() {
#pragma unroll
        for (int i = 0; i < OUTPUTS; ++i) of[i] = M::none();
    }
    template <class Terms> __device__ void add(const Terms& terms) { terms.join(of); }
    // As if all were numbers, which takes half of the instructions. Their places ascend, as the indices of packs in a
    // row do.
    template <class Terms> __device__ void add_packs(const Terms& terms) {
        if (first == ~I(0)) first = terms.of[0][0].at;
        terms.join_numbers(of);
    }
    // Where no number is beyond the neutral element, the first is the extreme. Once there was a NaN, the value is NaN,
    // but its place is unknown.
    __device__ bool settle() {
        bool numbers = true;
#pragma unroll
        for (int i = 0; i < OUTPUTS; ++i) {
            numbers &= of[i].value == of[i].value;
            if (of[i].at == ~I(0)) of[i].at = first;
        }
        return numbers;
    }
    template <bool IN_ORDER, class Terms> __device__ void add_few(const Terms& terms, bool first) {
        if (!IN_ORDER) return add(terms);
#pragma unroll
        for (int i = 0; i < OUTPUTS; ++i) terms.follow(of[i], i, first);
    }
    __device__ void add_value(const P& value) { of[0] = M::combine(of[0], value); }
    __device__ P total(int output) const { return of[output]; }
};

template <int OUTPUTS> struct Owned {
    template <class M> struct Parts : ThreadParts<M, OUTPUTS> {
        // Parts of splits, `pitch` apart; each slice adds every slices-th.
        template <class Share>
        __device__ void add_splits(const typename M::Value* split, long long splits, long long pitch,
                                   const Share& share) {
#pragma unroll 4
            for (long long s = share.slice; s < splits; s += share.slices) this->add_value(split[s * pitch]);
        }
    };
    template <class M> struct Values {
        typename M::Value of[OUTPUTS];

        // What is made of no terms.
        __device__ void clear() {
#pragma unroll
            for (int i = 0; i < OUTPUTS; ++i) of[i] = M::none();
        }
        // The slices of an owner pairwise; slice 0 gets the value. Neighbouring owners are contiguous in scratch.
        // All threads of the block take part.
        template <class Share>
        __device__ void reduce_slices(const Parts<M>& parts, const Share& share, unsigned char* scratch) {
            auto& shared = *reinterpret_cast<typename M::Value(*)[OUTPUTS][Share::THREADS / 2]>(scratch);
#pragma unroll
            for (int i = 0; i < OUTPUTS; ++i) of[i] = parts.total(i);
            int half = share.slices / 2;
            for (; half >= (Share::NEIGHBOURS ? WARP : 1); half /= 2) {
                __syncthreads();  // the last values have been read
                if (share.slice >= half && share.slice < 2 * half) {
#pragma unroll
                    for (int i = 0; i < OUTPUTS; ++i)
                        shared[i][(share.slice - half) * share.owners + share.owner] = of[i];
                }
                __syncthreads();
                if (share.slice < half) {
#pragma unroll
                    for (int i = 0; i < OUTPUTS; ++i)
                        of[i] = M::combine(of[i], shared[i][share.slice * share.owners + share.owner]);
                }
            }
            for (; half > 0; half /= 2)
#pragma unroll
                for (int i = 0; i < OUTPUTS; ++i) of[i] = M::combine(of[i], shuffle_down(of[i], half));
        }
        template <class I> __device__ void write(typename M::Value* split, I cell_stride, int live) const {
#pragma unroll
            for (int i = 0; i < OUTPUTS; ++i)
                if (i < live) split[i * cell_stride] = of[i];
        }
    };
};

}  // namespace baracuda
