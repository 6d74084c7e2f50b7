// walk.cuh, for ops with a tensor of 8-bit floats.
#pragma once

#include <baracuda/float8.cuh>
#include <baracuda/row/walk.cuh>
