// What a part of a product's sum is multiplied with before it is added to the sum: the weight that a program's Weights
// make of arrays, as scales of blocks of 8-bit factors. A thread reads an element of an array once for all of its sums
// that share it.
#pragma once

#include <baracuda/map/reduce.cuh>

namespace baracuda {

constexpr int WEIGHTED_PART = 128;  // of the depth, all of which has the same weight
#ifdef BARACUDA_WEIGHTS
constexpr bool WEIGHTED = true;
#else
constexpr bool WEIGHTED = false;
#endif

// How many places of the batch, the rows, the columns or the depth (axes 0 to 3) share an element of an operand; 0:
// all do.
__device__ constexpr int places_of(int operand, int axis) {
#ifdef BARACUDA_WEIGHTS
    constexpr int NUMBERS[] = {BARACUDA_WEIGHTS}, EACH = 5;  // an operand, and of each axis
    for (int i = 0; i < int(sizeof(NUMBERS) / sizeof(int)); i += EACH)
        if (NUMBERS[i] == operand) return NUMBERS[i + 1 + axis];
#endif
    return 0;
}
__device__ constexpr int common_divisor(int a, int b) { return b == 0 ? a : common_divisor(b, a % b); }

// The sums of a thread: STEPS times of two rows 8 apart, STEP further each, of pairs in each 8 of WIDE columns. With
// DOWN its rows are columns of the result. Its sides begin at multiples of STEP and of WIDE, or ROWS_ANYWHERE.
template <bool DOWN_, int STEP_, int STEPS_, int WIDE_, bool ROWS_ANYWHERE> struct PartShape {
    static constexpr bool DOWN = DOWN_;
    static constexpr int STEP = STEP_, STEPS = STEPS_, WIDE = WIDE_;
    static constexpr bool DOWN_ALIGNED = DOWN || !ROWS_ANYWHERE, ACROSS_ALIGNED = !DOWN || !ROWS_ANYWHERE;
};

// What a thread holds of an array: the elements of its rows, and in each those of its columns.
template <class A, class Shape> struct WeightsIn {
    using T = typename Mutable<typename A::element_t>::type;
    static constexpr int OPERAND = A::OPERAND;
    static constexpr int OF_BATCH = places_of(OPERAND, 0), OF_DEPTH = places_of(OPERAND, 3);
    static constexpr int OF_DOWN = places_of(OPERAND, Shape::DOWN ? 2 : 1);
    static constexpr int OF_ACROSS = places_of(OPERAND, Shape::DOWN ? 1 : 2);
    static constexpr bool STEP_SHARES = OF_DOWN % Shape::STEP == 0 && Shape::DOWN_ALIGNED;
    static constexpr int RUN = common_divisor(OF_ACROSS, Shape::WIDE);  // of columns that share an element
    static constexpr bool EIGHT_SHARE = OF_ACROSS == 0 || (RUN % 8 == 0 && Shape::ACROSS_ALIGNED);
    static constexpr int DOWNS = OF_DOWN == 0 ? 1 : STEP_SHARES ? Shape::STEPS : 2 * Shape::STEPS;
    static constexpr int ACROSSES = EIGHT_SHARE ? Shape::WIDE / RUN : Shape::WIDE / 4;
    static_assert(OF_DEPTH % WEIGHTED_PART == 0, "a part has one weight");

    T value[DOWNS][ACROSSES], ahead[DOWNS][ACROSSES];  // of the part at hand, and of the next one
    const T* at[DOWNS];                                // of the first part, in the first column

    // The element of sum `i` of a step.
    __device__ __forceinline__ T of(int step, int i) const {
        const int d = OF_DOWN == 0 ? 0 : STEP_SHARES ? step : 2 * step + i / 2 % 2;
        return value[d][EIGHT_SHARE ? i / 4 * 8 / RUN : i / 4 * 2 + i % 2];
    }
    // Of the sums from (down, across) of a matrix on.
    template <typename INT, class Args>
    __device__ __forceinline__ void seek(const T* data, const Args& args, INT matrix, INT down, INT across) {
        const long long* const stride = args.stride[OPERAND];
        const INT last = INT(Shape::DOWN ? args.columns : args.rows) - 1;
        const T* const first =
            data + element<OF_BATCH>(matrix, stride[0]) + (ACROSSES == 1 ? column_at(args, across) : 0);
#pragma unroll
        for (int d = 0; d < DOWNS; ++d) {
            const INT row = down + (STEP_SHARES ? Shape::STEP * d : Shape::STEP * (d / 2) + 8 * (d % 2));
            at[d] = first + element<OF_DOWN>(min(row, last), stride[Shape::DOWN ? 2 : 1]);
        }
    }
    // Reads ahead what the part of the depth has that begins at k.
    template <typename INT, class Args>
    __device__ __forceinline__ void read(const Args& args, INT across, INT k) {
        const long long part = element<OF_DEPTH>(k, args.depth_stride[OPERAND]);
#pragma unroll
        for (int d = 0; d < DOWNS; ++d)
#pragma unroll
            for (int c = 0; c < ACROSSES; ++c) {
                const INT column = across + (EIGHT_SHARE ? RUN * c : c / 2 * 8 + c % 2);
                ahead[d][c] = at[d][part + (ACROSSES == 1 ? 0 : column_at(args, column))];
            }
    }
    __device__ __forceinline__ void take() {
#pragma unroll
        for (int d = 0; d < DOWNS; ++d)
#pragma unroll
            for (int c = 0; c < ACROSSES; ++c) value[d][c] = ahead[d][c];
    }

private:
    template <typename INT, class Args>
    __device__ __forceinline__ static long long column_at(const Args& args, INT column) {
        const INT last = INT(Shape::DOWN ? args.rows : args.columns) - 1;
        return element<OF_ACROSS>(min(column, last), args.stride[OPERAND][Shape::DOWN ? 1 : 2]);
    }
    // How far the element of a place is.
    template <int SHARED, typename INT> __device__ __forceinline__ static long long element(INT place,
                                                                                            long long stride) {
        return SHARED == 0 ? 0 : (long long)(place / INT(SHARED == 0 ? 1 : SHARED)) * stride;
    }
};

template <class Shape, class Of> struct HeldOf;
template <class Shape, auto... READS, class Writes, class... Places>
struct HeldOf<Shape, Body<Reads<READS...>, Writes, Places...>> : WeightsIn<ArrayOf<READS>, Shape>... {};
template <auto... READS, class Writes, class... Places>
Body<Reads<READS...>, Writes, Places...> body_of(const Body<Reads<READS...>, Writes, Places...>*);

// The weights of a thread's sums in a part of the depth.
template <class Program, class Shape>
struct PartWeights : HeldOf<Shape, decltype(body_of(static_cast<const typename Program::Weights*>(nullptr)))> {
    using A = typename Program::acc_t;

    template <typename INT, class Args>
    __device__ __forceinline__ void seek(const Args& args, INT matrix, INT down, INT across) {
        Program::Weights::read_arrays(
            *this, args, [&](auto& held, const auto* data, int) { held.seek(data, args, matrix, down, across); });
    }
    template <typename INT, class Args> __device__ __forceinline__ void read(const Args& args, INT across, INT k) {
        Program::Weights::read_arrays(*this, args, [&](auto& held, const auto*, int) { held.read(args, across, k); });
    }
    template <class Args> __device__ __forceinline__ void take(const Args& args) {
        Program::Weights::read_arrays(*this, args, [](auto& held, const auto*, int) { held.take(); });
    }
    // add(i, weight) for each sum of a step.
    template <class Args, class Add>
    __device__ __forceinline__ void each(const Args& args, int step, const Add& add) const {
        Program::Weights::compute(args, Lanes<Add>{*this, step, add});
    }

private:
    struct Lane {
        const PartWeights& held;
        int step, i;
        template <class Array> __device__ __forceinline__ auto in(const Array&) const {
            using T = typename WeightsIn<Array, Shape>::T;
            return value_of(Pack<T, 1>{{static_cast<const WeightsIn<Array, Shape>&>(held).of(step, i)}}, 0);
        }
    };
    template <class Add> struct Lanes {
        const PartWeights& held;
        int step;
        const Add& add;
        template <class Compute> __device__ __forceinline__ void each(const Compute& compute) const {
#pragma unroll
            for (int i = 0; i < Shape::WIDE / 2; ++i) {
                typename Program::template Reduced<ValueOf> term;
                compute(Lane{held, step, i}, term);
                A weight;
                term.each([&](auto value) { weight = value; }, term);
                add(i, weight);
            }
        }
    };
};
struct NoWeights {};
template <class Program, class Shape, bool = WEIGHTED> struct WeightsFor {
    using type = NoWeights;
};
template <class Program, class Shape> struct WeightsFor<Program, Shape, true> {
    using type = PartWeights<Program, Shape>;
};
template <class Program, class Shape> using WeightsOf = typename WeightsFor<Program, Shape>::type;

// What `Body::read_arrays` calls an array's part of them.
template <class A, class Shape> __device__ WeightsIn<A, Shape>& packs_in(WeightsIn<A, Shape>& of) { return of; }

}  // namespace baracuda
