"""Tensor maps for kernels of the tests."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from baracuda.runtime.host import HostDevice

SWIZZLES = {0: 16, 1: 32, 2: 64, 3: 128}  # CUtensorMapSwizzle: the bytes within which chunks of 16 change places
U8, F16, F32 = 0, 6, 7  # CUtensorMapDataType


def swizzled(offset: int, mode: int) -> int:
    """Where a byte goes: bits 4 to 6 of its place are combined with bits 7 to 9, as far as the swizzle reaches."""
    return offset ^ ((offset >> 7 & (SWIZZLES[mode] // 16 - 1)) << 4)


def encode(
    device: HostDevice,
    kind: int,
    array: Any,
    box: Sequence[int],
    swizzle: int = 0,
    fill: int = 0,
    strides: Sequence[int] = (),
) -> tuple[int, Any]:
    """The encoder's code for `array`, and the tensor map."""
    rank = array.ndim
    memory = np.empty(64 + 128, np.uint8)
    first = -memory.ctypes.data % 64
    words = memory[first : first + 128]
    code = device.tensor_map_encoder(
        words.ctypes.data,
        kind,
        rank,
        array.ctypes.data,
        (ctypes.c_uint64 * rank)(*array.shape[::-1]),
        (ctypes.c_uint64 * 4)(*(strides or array.strides[-2::-1])),
        (ctypes.c_uint32 * rank)(*box[::-1]),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        *(0, swizzle, 0, fill),
    )
    return code, words
