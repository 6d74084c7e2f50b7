"""Arrays of a library that baracuda has never heard of: `__dlpack__`, or `__cuda_array_interface__`, is enough.

Memory is used in place, with the strides it has, so every second element is a view like any other.
"""

from importlib import import_module

import baracuda.ops as ops
from baracuda.generated import SoftmaxDescriptor, SoftmaxPlan
from baracuda.runtime import TensorRef, default_device

device = default_device().name
xp = import_module("numpy" if device == "host" else "cupy")


class Matrix:
    """Some library's array; only the two methods of the protocol count."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


x = xp.random.default_rng(0).standard_normal((6, 8), xp.float32)
y = xp.zeros_like(x)
plan = SoftmaxPlan.select(SoftmaxDescriptor(input_shape=(6, 4), softmax_axis=-1, element="f32"))
plan.run(x=Matrix(x[:, ::2]), y=Matrix(y[:, 1::2]))
assert xp.allclose(y[:, 1::2].sum(axis=1), 1) and (y[:, ::2] == 0).all()

flat = TensorRef(x.ravel(), shape=(6, 4), strides=(8, 2))  # the same elements, from a buffer, a shape and strides
assert (ops.softmax(flat) == y[:, 1::2]).all()
print(plan.sku)
