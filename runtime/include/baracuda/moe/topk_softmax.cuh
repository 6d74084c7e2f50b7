// The gate of a mixture of experts: each row's softmax, and the largest of its numbers with their places.
//
// LANES neighbouring lanes -> a row; lane -> EACH of its numbers, sorted once. Then the largest of all is that of the
// lanes' first ones, as often as there are choices. Numbers are compared as unsigned ints with their places in the low
// bits, so that no two are equal. Each row is summed in the same order, in a batch of any size.
#pragma once

#include <baracuda/element.cuh>
#include <baracuda/math.cuh>
#include <baracuda/pack.cuh>
#include <baracuda/strided.cuh>
#include <baracuda/warp.cuh>

namespace baracuda {
namespace moe {

template <int BYTES> struct Unsigned {
    using type = unsigned;
};
template <> struct Unsigned<8> {
    using type = u64;
};

// Bits that are in the order of numbers. Zeros are alike, and so are NaNs, which are the largest.
template <typename T> struct Ordered {
    using Bits = typename Unsigned<sizeof(T)>::type;
    static constexpr Bits SIGN = Bits(1) << (8 * sizeof(T) - 1);

    __device__ static Bits of(T number) {
        const Bits bits = __builtin_bit_cast(Bits, number), size = bits & (SIGN - 1), negative = 0 - (bits / SIGN);
        const Bits ordered = SIGN + ((size ^ negative) - negative);
        return size > __builtin_bit_cast(Bits, math::infinity<T>()) ? ~Bits(0) : ordered;
    }
    __device__ static T number(Bits of) { return __builtin_bit_cast(T, of >= SIGN ? of - SIGN : SIGN | (SIGN - of)); }
};
// Of two 16-bit numbers in a word at once.
template <typename T> struct OrderedHalves {
    static constexpr unsigned SIGN = 0x8000, SIGNS = 0x80008000, ONES = 0x10001, ALL = 0xffff;

    __device__ static unsigned of(unsigned two) {
        const unsigned signs = two >> 15 & ONES, negative = signs * ALL;
        const unsigned ordered = (((two ^ negative) & ~SIGNS) | (~negative & SIGNS)) + signs;
        const unsigned beyond = SIGN - 1 - T(math::infinity<float>()).bits;  // what makes a sign of a NaN's bits
        return ordered | (((two & ~SIGNS) + beyond * ONES) >> 15 & ONES) * ALL;
    }
    __device__ static T number(unsigned of) {
        T number;
        number.bits = (unsigned short)(of >= SIGN ? of - SIGN : SIGN | (SIGN - of));
        return number;
    }
};

// A number and its place: of equal numbers the first ranks above the others. Below all of them is none.
template <typename T, int BYTES = sizeof(T)> struct Rank;
template <typename T> struct Rank<T, 2> {
    static constexpr unsigned LOW = 0xffff;
    unsigned word;

    __device__ static Rank none() { return {LOW}; }
    template <int N> __device__ static Rank of(const Pack<T, N>& pack, int i, int place) {
        const unsigned two = OrderedHalves<T>::of(__builtin_bit_cast(PackWords<T, N>, pack).word[i / 2]);
        return {(i % 2 ? two & ~LOW : two << 16) | (LOW - place)};
    }
    __device__ T number() const { return OrderedHalves<T>::number(word >> 16); }
    __device__ int place() const { return int(LOW - (word & LOW)); }
    __device__ bool above(Rank other) const { return word > other.word; }
    __device__ Rank of_lane(int step) const { return {__shfl_xor_sync(ALL_LANES, word, step)}; }
    __device__ Rank behind(int places) const { return {word - places}; }
};
template <typename T> struct Rank<T, 4> {  // in halves, which choices are made between once for both
    unsigned high, low;

    __device__ static Rank none() { return {0, ~0u}; }
    template <int N> __device__ static Rank of(const Pack<T, N>& pack, int i, int place) {
        return {Ordered<T>::of(pack.lane[i]), ~unsigned(place)};
    }
    __device__ T number() const { return Ordered<T>::number(high); }
    __device__ int place() const { return int(~low); }
    __device__ bool above(Rank other) const { return (u64(high) << 32 | low) > (u64(other.high) << 32 | other.low); }
    __device__ Rank of_lane(int step) const {
        return {__shfl_xor_sync(ALL_LANES, high, step), __shfl_xor_sync(ALL_LANES, low, step)};
    }
    __device__ Rank behind(int places) const { return {high, low - places}; }
};
template <typename T> struct Rank<T, 8> {
    u64 word;
    int at;

    __device__ static Rank none() { return {0, 0}; }
    template <int N> __device__ static Rank of(const Pack<T, N>& pack, int i, int place) {
        return {Ordered<T>::of(pack.lane[i]), place};
    }
    __device__ T number() const { return Ordered<T>::number(word); }
    __device__ int place() const { return at; }
    __device__ bool above(Rank other) const { return word > other.word || (word == other.word && at < other.at); }
    __device__ Rank of_lane(int step) const {
        return {__shfl_xor_sync(ALL_LANES, word, step), __shfl_xor_sync(ALL_LANES, at, step)};
    }
    __device__ Rank behind(int places) const { return {word, at + places}; }
};

// Batcher's odd-even merge sort, the first in rank first: pairs STEP apart that lie in parts of 2 * SORTED.
template <int SORTED = 1, int STEP = SORTED, int COUNT, class R> __device__ void sort(R (&rank)[COUNT]) {
    if constexpr (SORTED < COUNT) {
#pragma unroll
        for (int i = STEP % SORTED; i < COUNT - STEP; ++i) {
            const bool pairs = (i - STEP % SORTED) % (2 * STEP) < STEP && i / (2 * SORTED) == (i + STEP) / (2 * SORTED);
            if (pairs) {
                const R one = rank[i], other = rank[i + STEP];
                const bool swap = other.above(one);
                rank[i] = swap ? other : one;
                rank[i + STEP] = swap ? one : other;
            }
        }
        if constexpr (STEP > 1) sort<SORTED, STEP / 2>(rank);
        if constexpr (STEP == 1) sort<2 * SORTED>(rank);
    }
}

// The sum over LANES lanes.
template <int LANES, typename A> __device__ A sum_of_lanes(A value) {
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) value += __shfl_xor_sync(ALL_LANES, value, step);
    return value;
}

// The numbers of a lane, in packs that neighbouring lanes have side by side. What does not exist is -inf, behind all
// that does.
template <typename T, int EACH, int LANES> struct RowPart {
    static constexpr int VEC = EACH * int(sizeof(T)) < 16 ? EACH : 16 / int(sizeof(T));
    Pack<T, VEC> pack[EACH / VEC];

    // Of number i of the first lane.
    __device__ static constexpr int place(int i) { return i / VEC * LANES * VEC + i % VEC; }
    __device__ Rank<T> rank(int i) const { return Rank<T>::of(pack[i / VEC], i % VEC, place(i)); }
    __device__ void load(const T* row, long long stride, int lane, int experts) {
        const int first = lane * VEC;
#pragma unroll
        for (int i = 0; i < EACH; ++i) pack[i / VEC].lane[i % VEC] = T(-math::infinity<acc_of<T>>());
        if (stride == 1 && experts % VEC == 0 && size_t(row) % alignof(Pack<T, VEC>) == 0) {
#pragma unroll
            for (int i = 0; i < EACH; i += VEC)
                if (place(i) + first < experts) pack[i / VEC].load(row + place(i) + first);
        } else {
#pragma unroll
            for (int i = 0; i < EACH; ++i)
                if (place(i) + first < experts) pack[i / VEC].lane[i % VEC] = row[(place(i) + first) * stride];
        }
    }
    // The sum of COUNT powers, pairwise.
    template <int FROM = 0, int COUNT = EACH, typename A> __device__ A sum_of_powers(A largest) const {
        if constexpr (COUNT == 1) {
            return math::exp(A(value_of(pack[FROM / VEC], FROM % VEC)) - largest);
        } else {
            return sum_of_powers<FROM, COUNT / 2>(largest) + sum_of_powers<FROM + COUNT / 2, COUNT / 2>(largest);
        }
    }
};

// The first of what lanes have.
template <int LANES, typename T> __device__ Rank<T> first_of_lanes(Rank<T> first) {
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) {
        const Rank<T> other = first.of_lane(step);
        first = other.above(first) ? other : first;
    }
    return first;
}

}  // namespace moe

template <typename T, class Schedule, class Variant, class Args>
__device__ void topk_softmax_main(const Args& args) {
    using A = acc_of<T>;
    using Numbers = moe::RowPart<T, Variant::EACH, Variant::LANES>;
    constexpr int EACH = Variant::EACH, LANES = Variant::LANES, KEPT = Variant::MOST < EACH ? Variant::MOST : EACH;
    const int lane = threadIdx.x % LANES, top = int(args.top_k);
    const long long own = (long long)blockIdx.x * (Schedule::THREADS / LANES) + threadIdx.x / LANES;
    const bool exists = own < args.tokens;
    const long long row = exists ? own : args.tokens - 1;  // all lanes of a warp take part
    Numbers numbers;
    numbers.load(args.logits.at(row), args.logits.stride[1], lane, int(args.experts));
    moe::Rank<T> rank[EACH];
#pragma unroll
    for (int i = 0; i < EACH; ++i) rank[i] = numbers.rank(i);
    moe::sort(rank);
    moe::Rank<T> chosen = moe::Rank<T>::none();  // of lane j, choice j
#pragma unroll 1
    for (int j = 0; j < top; ++j) {
        const moe::Rank<T> own_first = rank[0].behind(lane * Numbers::VEC);
        const moe::Rank<T> first = moe::first_of_lanes<LANES>(own_first);
        chosen = lane == j ? first : chosen;
        const bool is_taken = !first.above(own_first);
#pragma unroll
        for (int i = 0; i + 1 < KEPT; ++i) rank[i] = is_taken ? rank[i + 1] : rank[i];
        if (EACH <= KEPT) rank[KEPT - 1] = is_taken ? moe::Rank<T>::none() : rank[KEPT - 1];
    }
    const A number = A(chosen.number()), largest = __shfl_sync(ALL_LANES, number, 0, LANES);
    const A weight = lane < top ? math::exp(number - largest) : A(0);
    const A total = moe::sum_of_lanes<LANES>(Variant::RENORMALIZE ? weight : numbers.sum_of_powers(largest));
    if (!exists || lane >= top) return;
    *args.ids.at(row, lane) = chosen.place();
    *args.weights.at(row, lane) = weight / total;
}

}  // namespace baracuda
