"""Conversions from float to narrower types, as both sides of the device headers make them, against ml_dtypes."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from baracuda.runtime import KernelSource, get_device

from ..ptx.device import ptx_mode
from ..trials.memory import gpu_text

Array = Any  # of NumPy
KINDS: dict[str, np.dtype[Any]] = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
# The 19 bits of a float that matrix units take: to the nearest, ties away from zero.
_TF32, _TF32_BITS = "tf32", np.uint32(0xFFFFE000)
TEXTS = {"host": None, "inline PTX": "sm_90"}
_TEXT = """
#include <baracuda/float8.cuh>
#include <baracuda/arch/tensor_core.cuh>
using namespace baracuda;
struct tf32 {
    unsigned bits;
    __device__ explicit tf32(float x) : bits(cvt_rna_tf32_f32(x)) {}
};
struct Arguments { const float* x; void* y; long long count; };
#define CONVERT(name, T)                                                \\
    extern "C" __global__ void name(Arguments a) {                      \\
        const long long i = blockIdx.x * 256ll + threadIdx.x;           \\
        if (i < a.count) static_cast<T*>(a.y)[i] = T(a.x[i]);           \\
    }
"""


def check_conversions(target: str) -> None:
    """What the headers convert for `target` rounds to the nearest, ties to even, or for TF32 away from zero.

    `target`: "sm_90" for what NVRTC compiles, "host" for the host device's text of the headers, "inline PTX" for GPUs'.

    Raises AssertionError.
    """
    for name in KINDS:
        if wrong := _wrong(name, target):
            raise AssertionError(f"conversion to {name} for {target}: {wrong}")
    _check_tf32(target)


def _check_tf32(target: str) -> None:
    numbers = np.arange(0x3F000000, 0x42000000, 0x800, dtype=np.uint32)  # every half of a last place
    x = np.concatenate([numbers - np.uint32(1), numbers, numbers + np.uint32(1)]).view(np.float32)
    x = np.concatenate([x, -x])
    got = _on(target, _TF32, x, np.dtype(np.uint32)) & _TF32_BITS
    expected = (x.view(np.uint32) + np.uint32(0x1000)) & _TF32_BITS
    if (wrong := got != expected).any():
        first = int(np.argmax(wrong))
        told = f"{float(x[first])!r} becomes {got[first]:#x}, needs {expected[first]:#x}"
        raise AssertionError(f"conversion to TF32 for {target}: {told}; {int(wrong.sum())} of {x.size} are wrong")


@cache
def _wrong(name: str, target: str) -> str:
    kind = KINDS[name]
    x = _floats(kind)
    y = _on(target, name, x, kind)
    with np.errstate(all="ignore"):
        expected = x.astype(kind)
    both = np.isnan(expected.astype(np.float32)) & np.isnan(y.astype(np.float32))
    wrong = ~both & (y.view(f"u{kind.itemsize}") != expected.view(f"u{kind.itemsize}"))
    if not wrong.any():
        return ""
    first = int(np.argmax(wrong))
    return f"{float(x[first])!r} becomes {y[first]}, needs {expected[first]}; {int(wrong.sum())} of {x.size} are wrong"


def _on(target: str, name: str, x: Array, kind: np.dtype[Any]) -> Array:
    with gpu_text(TEXTS[target]) if target in TEXTS else ptx_mode(target):
        return _converted(name, x, kind)


def _floats(kind: np.dtype[Any]) -> Array:
    """Every number of a type, what lies halfway to the next, what is too large, and the floats beside all of them."""
    bits = np.arange(2 ** (8 * kind.itemsize), dtype=f"u{kind.itemsize}")
    with np.errstate(all="ignore"):
        numbers = np.sort(bits.view(kind).astype(np.float64))
        halfway = (numbers[:-1] + numbers[1:]) / 2
        beyond = float(np.nanmax(numbers[np.isfinite(numbers)])) * np.linspace(1, 1.2, 4001)
        near = np.concatenate([numbers, halfway, beyond, -beyond, [np.inf, -np.inf, np.nan]]).astype(np.float32)
        return np.concatenate([near, np.nextafter(near, np.float32(0)), np.nextafter(near, np.float32(np.inf))])


def _converted(name: str, x: Array, kind: np.dtype[Any]) -> Array:
    device: Any = get_device("host")
    given, y = device.empty(x.shape, np.float32), device.empty(x.shape, f"u{kind.itemsize}")
    given[...] = x
    words = np.array([given.ctypes.data, y.ctypes.data, x.size], np.int64)
    kernel = device.load(KernelSource("conversions.cu", f"{_TEXT}CONVERT(convert, {name})\n", "convert"))
    if device.executor is not None:
        device.executor.ranges = [(array.ctypes.data, array.ctypes.data + array.nbytes) for array in (given, y)]
    kernel.launch((-(-x.size // 256), 1, 1), 256, words.ctypes.data, words.nbytes, 0)
    return y.view(kind)
