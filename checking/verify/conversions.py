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
TEXTS = {"host": None, "inline PTX": "sm_90"}
_TEXT = """
#include <baracuda/float8.cuh>
using namespace baracuda;
struct Arguments { const float* x; void* y; long long count; };
#define CONVERT(name, T)                                                \\
    extern "C" __global__ void name(Arguments a) {                      \\
        const long long i = blockIdx.x * 256ll + threadIdx.x;           \\
        if (i < a.count) static_cast<T*>(a.y)[i] = T(a.x[i]);           \\
    }
"""


def check_conversions(target: str) -> None:
    """What the headers convert for `target` rounds to the nearest, ties to even.

    `target`: "sm_90" for what NVRTC compiles, "host" for the host device's text of the headers, "inline PTX" for GPUs'.

    Raises AssertionError.
    """
    for name in KINDS:
        if wrong := _wrong(name, target):
            raise AssertionError(f"conversion to {name} for {target}: {wrong}")


@cache
def _wrong(name: str, target: str) -> str:
    kind = KINDS[name]
    x = _floats(kind)
    with gpu_text(TEXTS[target]) if target in TEXTS else ptx_mode(target):
        y = _converted(name, x, kind)
    with np.errstate(all="ignore"):
        expected = x.astype(kind)
    both = np.isnan(expected.astype(np.float32)) & np.isnan(y.astype(np.float32))
    wrong = ~both & (y.view(f"u{kind.itemsize}") != expected.view(f"u{kind.itemsize}"))
    if not wrong.any():
        return ""
    first = int(np.argmax(wrong))
    return f"{float(x[first])!r} becomes {y[first]}, needs {expected[first]}; {int(wrong.sum())} of {x.size} are wrong"


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
