// The tensors of a row op as types, and what a thread holds of each. A program names them,
//     using x_tensor = ElementInput<&kernel_args::x_>;
// and reads the element at hand, `x_tensor::in(e)`, where `e` is an Element of walk.cuh.
#pragma once

#include <baracuda/row/row.cuh>

namespace baracuda {

template <class... Parts> struct List {
    static constexpr int SIZE = sizeof...(Parts);
};
template <class... Parts, class F> __device__ void for_each(List<Parts...>, F f) { (f(Parts()), ...); }
template <class... Left, class... Right>
__device__ List<Left..., Right...> operator+(List<Left...>, List<Right...>);

enum class Over { ELEMENTS, COLUMNS, ROWS };

// Of a list of tensors the inputs that have a value for each element, column or row.
template <bool CHOSEN, class O> struct If {
    using type = List<>;
};
template <class O> struct If<true, O> {
    using type = List<O>;
};
template <Over OVER, class... Os>
__device__ auto inputs_over(List<Os...>)
    -> decltype((List<>() + ... + typename If<Os::OVER == OVER && Os::READ, Os>::type()));
template <class Tensors, Over OVER> using InputsOver = decltype(inputs_over<OVER>(Tensors()));

// The argument that MEMBER points to.
template <auto MEMBER, bool PRESENT_ = true> struct Operand {
    using argument_t = typename MemberType<decltype(MEMBER)>::type;
    using element_t = typename argument_t::element_t;
    using stored_t = typename Mutable<element_t>::type;
    static constexpr bool PRESENT = PRESENT_;
    template <class Args> __device__ static const argument_t& of(const Args& args) { return args.*MEMBER; }
};

// The values of a row. Without padding between those of different sizes NVRTC keeps them, and what is beside them, in
// registers.
template <class O> struct RowValue {
    alignas(8) typename O::stored_t value;
};
template <class Tensors> struct RowValues;
template <class... Os> struct RowValues<List<Os...>> : RowValue<Os>... {};
template <class O> __device__ typename O::stored_t& value_of_row(RowValue<O>& row) { return row.value; }
template <class O> __device__ const typename O::stored_t& value_of_row(const RowValue<O>& row) { return row.value; }

// Packs of each of a list of tensors.
template <class O, int N, int CHUNKS> struct Slice {
    Pack<typename O::stored_t, N> pack[CHUNKS];
};
template <class Tensors, int N, int CHUNKS> struct Slices;
template <class... Os, int N, int CHUNKS> struct Slices<List<Os...>, N, CHUNKS> : Slice<Os, N, CHUNKS>... {};
template <class O, int N, int CHUNKS> __device__ auto& packs(Slice<O, N, CHUNKS>& slice) { return slice.pack; }

// A thread's part of each column sum.
template <class S, typename A, int N, int CHUNKS> struct SumOf {
    A part[CHUNKS][N] = {};
};
template <class Sums, typename A, int N, int CHUNKS> struct SumsOf;
template <class... Ss, typename A, int N, int CHUNKS>
struct SumsOf<List<Ss...>, A, N, CHUNKS> : SumOf<Ss, A, N, CHUNKS>... {};
template <class S, typename A, int N, int CHUNKS> __device__ auto& part_of(SumOf<S, A, N, CHUNKS>& sum) {
    return sum.part;
}

// The sums of one column over all rows; of those that are not wanted, 0.
template <class S, typename A> struct TotalOf {
    A total = 0;
};
template <class Sums, typename A> struct TotalsOf;
template <class... Ss, typename A> struct TotalsOf<List<Ss...>, A> : TotalOf<Ss, A>... {};
template <class S, typename A> __device__ TotalOf<S, A>& total_of(TotalOf<S, A>& total) { return total; }
template <class S, typename A> __device__ A total_of(const TotalOf<S, A>& total) { return total.total; }

// Values of elements, rows of which a thread holds in packs; UPDATED ones are stored as well as read.
template <auto MEMBER, bool PRESENT = true, bool UPDATED_ = false> struct ElementInput : Operand<MEMBER, PRESENT> {
    static constexpr Over OVER = Over::ELEMENTS;
    static constexpr bool READ = true, UPDATED = UPDATED_;
    template <class E> __device__ static auto in(const E& e) {
        return value_of(packs<ElementInput>(e.elements)[e.k], e.i);
    }
    template <class E> __device__ static void store(const E& e, typename Operand<MEMBER, PRESENT>::stored_t value) {
        packs<ElementInput>(e.stored)[0].lane[e.i] = value;
    }
};
template <auto MEMBER> using ElementUpdated = ElementInput<MEMBER, true, true>;
template <auto MEMBER, bool PRESENT = true> struct ElementOutput : Operand<MEMBER, PRESENT> {
    static constexpr Over OVER = Over::ELEMENTS;
    static constexpr bool READ = false, UPDATED = false;
    template <class E> __device__ static void store(const E& e, typename Operand<MEMBER, PRESENT>::stored_t value) {
        packs<ElementOutput>(e.stored)[0].lane[e.i] = value;
    }
};
template <auto MEMBER, bool PRESENT = true> struct ColumnInput : Operand<MEMBER, PRESENT> {
    static constexpr Over OVER = Over::COLUMNS;
    static constexpr bool READ = true;
    template <class E> __device__ static auto in(const E& e) {
        return value_of(packs<ColumnInput>(e.columns)[e.k], e.i);
    }
};

// Values of rows, each of which is read one row ahead.
template <auto MEMBER, bool PRESENT = true> struct RowInput : Operand<MEMBER, PRESENT> {
    static constexpr Over OVER = Over::ROWS;
    static constexpr bool READ = true;
    template <class R> __device__ static auto in(const R& row) { return value_of_row<RowInput>(row); }
};

// The sum of a value down each column; MEMBER points to the sums of blocks. A thread adds up its part.
template <auto MEMBER, bool PRESENT_ = true> struct ColumnSum {
    static constexpr bool PRESENT = PRESENT_;
    template <class Args> __device__ static auto parts(const Args& args) { return args.*MEMBER; }
    template <class E> __device__ static auto& part(const E& e) { return part_of<ColumnSum>(e.sums)[e.k][e.i]; }
    template <class Totals> __device__ static auto total(const Totals& totals) { return total_of<ColumnSum>(totals); }
};

// Where the row at hand lies of each tensor.
template <class O> struct RowOf {
    typename O::element_t* data;
};
template <class Tensors> struct RowsOf;
template <class... Os> struct RowsOf<List<Os...>> : RowOf<Os>... {};
template <class O> __device__ RowOf<O>& row_of(RowOf<O>& row) { return row; }
template <class O> __device__ const RowOf<O>& row_of(const RowOf<O>& row) { return row; }
template <class O, class... Os, class At> __device__ auto first_row(List<O, Os...>, const At& at) {
    return row_of<O>(at).data;
}
template <class... Os> __device__ constexpr bool any_updated(List<Os...>) { return (false || ... || Os::UPDATED); }

// Shared memory that packs of each tensor are prefetched to.
template <class O, int N, int CHUNKS, int THREADS>
struct PrefetchOf : Prefetch<typename O::stored_t, N, O::PRESENT ? CHUNKS : 0, THREADS> {
    using Prefetch<typename O::stored_t, N, O::PRESENT ? CHUNKS : 0, THREADS>::Prefetch;
};
template <class Tensors, int N, int CHUNKS, int THREADS> struct Prefetches;
template <class... Os, int N, int CHUNKS, int THREADS>
struct Prefetches<List<Os...>, N, CHUNKS, THREADS> : PrefetchOf<Os, N, CHUNKS, THREADS>... {
    static constexpr unsigned SHARED_BYTES = (0u + ... + PrefetchOf<Os, N, CHUNKS, THREADS>::SHARED_BYTES);
    __device__ explicit Prefetches([[maybe_unused]] unsigned char* shared)
        : PrefetchOf<Os, N, CHUNKS, THREADS>(shared)... {}
};
template <class O, int N, int CHUNKS, int THREADS>
__device__ auto& prefetch_of(const PrefetchOf<O, N, CHUNKS, THREADS>& prefetch) {
    return prefetch;
}

}  // namespace baracuda
