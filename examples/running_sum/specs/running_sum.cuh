#pragma once
#include <baracuda/strided.cuh>

#include "step.cuh"

namespace baracuda {

// A thread adds up a row: one read of x and one write of y.
template <typename T, class Schedule, class Variant, class Args>
__device__ void running_sum_main(const Args& args) {
    using A = acc_of<T>;
    const long long row = (long long)(blockIdx.x) * Schedule::THREADS + threadIdx.x;
    if (row >= args.rows) return;
    A sum = 0;
    for (long long col = 0; col < args.cols; ++col) {
        sum = after(sum, A(*args.x.at(row, col)));
        *args.y.at(row, col) = T(sum);
    }
}

}  // namespace baracuda
