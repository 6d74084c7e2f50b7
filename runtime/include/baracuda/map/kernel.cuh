// The kernel of a map, of a program on lists, or of a matrix product, which a generated file has before it includes
// this.
#pragma once

#include <baracuda/arch/cluster_dims.cuh>

namespace baracuda {

extern "C" __global__ void BARACUDA_CLUSTER_DIMS __launch_bounds__(Schedule::THREADS, blocks_per_sm<Program>())
    BARACUDA_SYMBOL(__grid_constant__ const Program::Args args) {
    walk<Program>(args);
}

}  // namespace baracuda
