// SiLU of a convolution p, and its derivative. Taps scaled by -log2(e) give t = -log2(e) p as cheaply and as accurately
// as p itself; sigmoid(p) = 1 / (1 + 2^t) is then an exp2 and a reciprocal. This is used for |t| <= 64; beyond, where
// exponentials might overflow, p itself is computed.
#pragma once

#include <baracuda/math.cuh>

namespace baracuda {
namespace conv1d {

// -log2(e) as a sum of two numbers, and 1 / -log2(e).
template <typename A> struct Scale;
template <> struct Scale<float> {
    static constexpr float HIGH = -1.44269502f, LOW = -1.92596299e-8f, BACK = -0.693147181f;
};
template <> struct Scale<double> {
    static constexpr double HIGH = -1.4426950408889634, LOW = -2.0355273740931033e-17, BACK = -0.6931471805599453;
};

// A tap or a bias of t; one rounding, which is why t is as good as p, whose first tap is added exactly to its bias.
template <typename A> __device__ bool can_scale(A tap) { return math::abs(tap * A(1.5)) < math::infinity<A>(); }
template <typename A> __device__ A scaled(A tap) { return math::fma(tap, Scale<A>::HIGH, tap * Scale<A>::LOW); }

// NaN is near as well: what is made of it is NaN.
template <typename A> __device__ bool is_far(A t) { return math::abs(t) > A(64); }

// p s of s = sigmoid(p); of a t that is near, 1 + 2^t is from 1 to 2^65 and has a quick reciprocal.
template <typename A> __device__ A near_silu(A t) {
    return t * quick_reciprocal(math::fma(quick_exp2(t), Scale<A>::HIGH, Scale<A>::HIGH));
}
template <typename A> __device__ A silu(A p) {
    const A small = math::exp(-math::abs(p));
    return (p < A(0) ? p * small : p) / (A(1) + small);
}

// dy times s + p s (1 - s), where s and 1 - s are had without cancellation.
template <typename A> __device__ A times_near_slope(A dy, A t) {
    const A power = quick_exp2(t), s = quick_reciprocal(A(1) + power);
    return dy * s * math::fma(t * (power * s), Scale<A>::BACK, A(1));
}
template <typename A> __device__ A silu_slope(A p) {
    const A small = math::exp(-math::abs(p)), s = A(1) / (A(1) + small);  // of |p|
    return p < A(0) ? small * s * math::fma(p, s, A(1)) : math::fma(p * s, small * s, s);
}

}  // namespace conv1d
}  // namespace baracuda
