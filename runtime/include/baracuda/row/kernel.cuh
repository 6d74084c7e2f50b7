// The kernel of a row op, whose program a generated file has before it includes this.
#pragma once

namespace baracuda {

extern "C" __global__ void BARACUDA_CLUSTER_DIMS __launch_bounds__(ScheduledTile::THREADS, BLOCKS_PER_SM)
    BARACUDA_SYMBOL(__grid_constant__ const kernel_args args) {
    run<Program, ScheduledTile>(args);
}

}  // namespace baracuda
