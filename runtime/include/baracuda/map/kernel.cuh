// The kernel of a map, of a program on lists, or of a matrix product, which a generated file has before it includes
// this.
#pragma once

#include <baracuda/arch/cluster_dims.cuh>

#ifndef PARAMETER  // which the host device has
#define PARAMETER(...) __grid_constant__ const __VA_ARGS__
#endif

namespace baracuda {

extern "C" __global__ void BARACUDA_CLUSTER_DIMS __launch_bounds__(Schedule::THREADS, blocks_per_sm<Program>())
    BARACUDA_SYMBOL(PARAMETER(Program::Args) args) {
    walk<Program>(args);
}

}  // namespace baracuda
