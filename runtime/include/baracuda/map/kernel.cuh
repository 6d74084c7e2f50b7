// The kernel of a map, or of a program on lists, which a generated file has before it includes this.
#pragma once

namespace baracuda {

extern "C" __global__ void __launch_bounds__(Schedule::THREADS, blocks_per_sm<Program>())
    BARACUDA_SYMBOL(__grid_constant__ const Program::Args args) {
    walk<Program>(args);
}

}  // namespace baracuda
