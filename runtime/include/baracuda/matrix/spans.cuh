// Parts of the rows, or of the depth, that the matrices of a batch have, by an array in memory of where they end.
//
// SEGMENTS follow each other: a matrix has what lies before its end and before the end of none that came earlier, and
// after the last one comes what is left, which is no matrix's. Others are the first places of their own matrix. Ends
// may hold anything: those out of range are moved to where the range ends.
//
// Where the depth is SPLIT, parts of as many terms each follow each other, and each counts as a matrix: those of one
// matrix come one after the other.
#pragma once

#include <baracuda/warp.cuh>

namespace baracuda {

enum class Span { NONE, ROWS, DEPTH, SPLIT };
#ifdef BARACUDA_SPLIT
constexpr Span SPAN = Span::SPLIT;
constexpr bool SEGMENTS = false;
#elif defined(BARACUDA_SPAN)
constexpr Span SPAN = Span::BARACUDA_SPAN;
constexpr bool SEGMENTS = BARACUDA_SEGMENTS;
#else
constexpr Span SPAN = Span::NONE;
constexpr bool SEGMENTS = false;
#endif
constexpr bool ROW_SEGMENTS = SPAN == Span::ROWS && SEGMENTS;

// The parts of one matrix after the other; counted in INT. WARPS: the lanes of a warp ask for the same, and read the
// ends of as many matrices at a time.
template <class Program, typename INT, bool WARPS = false> struct Spans {
    using Args = typename Program::Args;
    INT matrix = 0, begin = 0, end = 0;  // the part of a matrix

    __device__ __forceinline__ explicit Spans(const Args& args) { end = end_of(args, 0, 0); }

    // Moves on to a later matrix, or to what is left.
    __device__ __forceinline__ void seek(INT to, const Args& args) {
        if (SEGMENTS) {
            while (matrix < to) {
                begin = end;
                ++matrix;
                end = end_of(args, matrix, begin);
            }
        } else if (matrix < to) {
            matrix = to;
            end = end_of(args, to, 0);
        }
    }
    // The rows of the result that are the matrix's, or what is left.
    __device__ __forceinline__ INT first_row() const { return ROW_SEGMENTS ? begin : 0; }
    __device__ __forceinline__ INT last_row(const Args& args) const { return ROW_SEGMENTS ? end : INT(args.rows); }
    // Those before which sums have terms.
    __device__ __forceinline__ INT live_rows(const Args& args) const {
        return SPAN == Span::ROWS ? end : INT(args.rows);
    }
    // The part of the depth that the sums of a tile from `row` on add up.
    __device__ __forceinline__ INT first_term([[maybe_unused]] const Args& args) const {
#ifdef BARACUDA_SPLIT
        return INT(matrix % args.split * args.split_terms);
#endif
        return SPAN == Span::DEPTH ? begin : 0;
    }
    __device__ __forceinline__ INT terms(INT row, const Args& args) const {
#ifdef BARACUDA_SPLIT
        return INT(min(args.split_terms, args.depth - first_term(args)));
#endif
        if (SPAN == Span::DEPTH) return end - begin;
        const bool has_any = SPAN == Span::NONE || (SEGMENTS ? matrix < INT(args.batch) : row < end);
        return has_any ? INT(args.depth) : 0;
    }

    // The factors' matrix of one, and how many there are with all of their parts.
    __device__ __forceinline__ static INT of_factors(INT matrix, [[maybe_unused]] const Args& args) {
#ifdef BARACUDA_SPLIT
        return INT(matrix / args.split);
#else
        return matrix;
#endif
    }
    __device__ __forceinline__ static INT count(const Args& args) {
#ifdef BARACUDA_SPLIT
        return INT(args.batch * args.split);
#else
        return INT(args.batch);
#endif
    }

private:
    INT held_from = -WARP, held = 0;  // WARPS: the first matrix whose end a lane holds; the lane's own

    __device__ __forceinline__ INT end_of(const Args& args, INT of, INT from) {
#ifdef BARACUDA_SPAN
        const INT limit = INT(SPAN == Span::ROWS ? args.rows : args.depth);
        if (of >= INT(args.batch)) return limit;
        if (!WARPS) return max(read(args, of, limit), from);
        if (of - held_from >= WARP) {
            held_from = of;
            const INT own = of + INT(threadIdx.x % WARP);
            held = own < INT(args.batch) ? read(args, own, limit) : limit;
        }
        return max(__shfl_sync(ALL_LANES, held, int(of - held_from)), from);
#else
        return INT(args.rows);
#endif
    }
#ifdef BARACUDA_SPAN
    // The end in memory, within the range.
    __device__ __forceinline__ static INT read(const Args& args, INT of, INT limit) {
        constexpr auto ENDS = &Args::BARACUDA_ENDS;
        const long long end = (args.*ENDS).data[of * args.stride[ArrayOf<ENDS>::OPERAND][0]];
        return INT(min(max(end, 0ll), (long long)limit));
    }
#endif
};

}  // namespace baracuda
