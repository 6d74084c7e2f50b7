#pragma once

namespace baracuda {

template <typename A> __device__ A after(A sum, A value) { return sum + value; }

}  // namespace baracuda
