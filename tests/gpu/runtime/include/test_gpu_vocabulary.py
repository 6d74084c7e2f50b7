"""The host device's models of matrix instructions, copies and barriers against the instructions of a GPU."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from host.fragments import INSTRUCTIONS, Instruction, Matrix
from repository import KERNELS

from baracuda.runtime.device import Device, KernelSource
from baracuda.runtime.devices.cuda import CudaDevice
from baracuda.runtime.host import HostDevice

pytestmark = pytest.mark.gpu

# What an addition inside the instruction may lose, relative to the largest number involved: products are aligned
# to that number and truncated there, with fewer bits for products of 8-bit floats.
UNIT = {16: 2.0**-22, 32: 2.0**-22, 8: 2.0**-12, 64: 2.0**-52}


def kernel(file: str, symbol: str, *defines: str) -> KernelSource:
    return KernelSource(f"kernels/{file}", (KERNELS / file).read_text(), symbol, defines)


def launch(device: Device, source: KernelSource, grid: int, block: int, *words: int) -> None:
    args = (ctypes.c_uint64 * len(words))(*words)
    device.load(source).launch((grid, 1, 1), block, ctypes.addressof(args), ctypes.sizeof(args), 0)


def on_host(source: KernelSource, grid: int, block: int, *arrays: Matrix | int) -> list[Matrix]:
    """What the arrays hold after a launch on the host device."""
    arrays = tuple(a.copy() if isinstance(a, np.ndarray) else a for a in arrays)
    launch(HostDevice(), source, grid, block, *(a if isinstance(a, int) else a.ctypes.data for a in arrays))
    return [a for a in arrays if isinstance(a, np.ndarray)]


def on_gpu(source: KernelSource, grid: int, block: int, *arrays: Matrix | int) -> list[Matrix]:
    """What the arrays hold after a launch on the GPU."""
    cupy: Any = pytest.importorskip("cupy")
    there = [a if isinstance(a, int) else cupy.asarray(a.view(np.uint8)) for a in arrays]
    launch(CudaDevice(), source, grid, block, *(a if isinstance(a, int) else a.data.ptr for a in there))
    cupy.cuda.Device().synchronize()
    pairs = zip(arrays, there, strict=True)
    return [cupy.asnumpy(g).view(a.dtype).reshape(a.shape) for a, g in pairs if isinstance(a, np.ndarray)]


@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=lambda i: i.name)
def test_product(instruction: Instruction) -> None:
    """All agree in every bit on Hopper; elsewhere integers do, floats within (depth + 1) units of the magnitudes."""
    if int(CudaDevice().arch[3:]) < instruction.sm:
        pytest.skip(f"{instruction.name} needs sm_{instruction.sm}")
    source = kernel("tensor_core.cu", "product", *instruction.defines)
    random = np.random.default_rng(7)
    for _ in range(20):
        a, b, d = instruction.random(random)
        fragments = instruction.lay_out(a, b, d)
        host, gpu = on_host(source, 1, 32, *fragments)[-1], on_gpu(source, 1, 32, *fragments)[-1]
        if instruction.sum == np.int32 or CudaDevice().arch == "sm_90":
            np.testing.assert_array_equal(gpu, host)
        else:
            magnitude = on_host(source, 1, 32, *instruction.lay_out(abs(a), abs(b), abs(d)))[-1]
            assert (abs(gpu - host) <= (instruction.depth + 1) * UNIT[instruction.bits] * magnitude).all()


def test_products_of_whole_numbers() -> None:
    """With sums below 2^11 every instruction is exact, so host and GPU agree on every bit."""
    for instruction in INSTRUCTIONS:
        if int(CudaDevice().arch[3:]) < instruction.sm:
            continue
        random = np.random.default_rng(8)
        drawn = (random.integers(0, 5, m.shape).astype(m.dtype) for m in instruction.random(random))
        source, fragments = kernel("tensor_core.cu", "product", *instruction.defines), instruction.lay_out(*drawn)
        host, gpu = on_host(source, 1, 32, *fragments)[-1], on_gpu(source, 1, 32, *fragments)[-1]
        np.testing.assert_array_equal(gpu, host, err_msg=instruction.name)


@pytest.mark.parametrize("kind", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2], ids=["e4m3", "e5m2"])
def test_every_8_bit_float(kind: np.dtype[np.generic]) -> None:
    """Host and GPU agree on the value of each of the 256 codes."""
    (instruction,) = (i for i in INSTRUCTIONS if i.a == i.b == kind)
    if int(CudaDevice().arch[3:]) < instruction.sm:
        pytest.skip(f"{instruction.name} needs sm_{instruction.sm}")
    source = kernel("tensor_core.cu", "product", *instruction.defines)
    for first in range(0, 256, 16):
        a, b, d = np.zeros((16, 32), kind), np.zeros((32, 8), kind), np.zeros((16, 8), np.float32)
        a[:, 3], b[3] = np.arange(first, first + 16, dtype=np.uint8).view(kind), 1
        fragments = instruction.lay_out(a, b, d)
        host, gpu = on_host(source, 1, 32, *fragments)[-1], on_gpu(source, 1, 32, *fragments)[-1]
        np.testing.assert_array_equal(gpu, host)


def test_matrices_from_shared_memory() -> None:
    matrices = np.random.default_rng(2).integers(0, 2**16, (32, 8)).astype(np.uint16)
    arrays = matrices, np.zeros((14, 32), np.uint32)
    source = kernel("tensor_core.cu", "load")
    np.testing.assert_array_equal(on_gpu(source, 1, 32, *arrays)[1], on_host(source, 1, 32, *arrays)[1])


def test_asynchronous_copies() -> None:
    arrays = np.arange(1, 17, dtype=np.uint8), np.zeros((17, 64), np.uint8)
    source = kernel("tensor_core.cu", "copy")
    np.testing.assert_array_equal(on_gpu(source, 17, 32, *arrays)[1], on_host(source, 17, 32, *arrays)[1])


def test_rounding_to_tf32() -> None:
    """The 19 bits that instructions look at agree for floats of every exponent, ties included."""
    random = np.random.default_rng(3)
    bits = random.integers(0, 2**32, 1 << 16, dtype=np.uint32)
    bits[::2] = bits[::2] & ~np.uint32(0x1FFF) | 0x1000
    values = bits.view(np.float32)
    values[np.isnan(values)] = 1
    source, arrays = kernel("tensor_core.cu", "round_to_tf32"), (values, np.zeros(1 << 16, np.uint32))
    gpu, host = (run(source, 256, 256, *arrays)[1] for run in (on_gpu, on_host))
    np.testing.assert_array_equal(gpu & ~np.uint32(0x1FFF), host & ~np.uint32(0x1FFF))
