"""What matrix units answer, bit by bit: recorded on a GPU into answers.npz, which the host device must repeat.

    PYTHONPATH=tests python -m recorded.matrix_units    # on a GPU of sm_90: writes answers.npz anew

Operands are drawn to tell summation rules apart: wide exponents, subnormals, sums that cancel, overflow, infinities,
NaN and any bits at all. Recorded on an H200 with driver 580.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from host.fragments import INSTRUCTIONS, Instruction, Matrix
from repository import KERNELS

from baracuda.runtime.device import Device, KernelSource

HERE = Path(__file__).parent
ANSWERS = HERE / "answers.npz"
ROWS, COLUMNS = 16, 8  # of what is recorded; wgmma has 48 rows more, which are zero

# By the name of PTX: what instructions of wgmma need besides it, and the bits of a mantissa.
WGMMA = {
    "f16": ("m64n8k16", ", 1, 1, 0, 0", 10),
    "bf16": ("m64n8k16", ", 1, 1, 0, 0", 7),
    "tf32": ("m64n8k8", ", 1, 1", 23),
    "e4m3": ("m64n8k32", ", 1, 1", 3),
    "e5m2": ("m64n8k32", ", 1, 1", 2),
}
DRAWS = ("normal", "wide", "subnormal", "tiny", "large", "special", "any bits", "cancelling")


def operands(name: str, draw: str, random: np.random.Generator) -> tuple[Matrix, Matrix, Matrix]:
    """Bits of A [16, depth], B [8, depth] and the sum [16, 8]."""
    mantissa = WGMMA[name][2]
    item = {10: 2, 7: 2, 23: 4}.get(mantissa, 1)
    kind = np.dtype(f"u{item}")
    sign, low = 1 << 8 * item - 1, (1 << mantissa) - 1
    top = (1 << 8 * item - 1 - mantissa) - 1  # the exponent of infinities
    middle = top // 2
    about = {
        "normal": (middle - 1, middle + 2),
        "wide": (max(1, middle - 12), min(top, middle + 12)),
        "subnormal": (0, 3),
        "tiny": (max(0, middle // 2 - 9), middle // 2 + 2),
        "large": (top - 3, top),
        "special": (middle - 2, middle + 3),
        "any bits": (0, top + 1),
        "cancelling": (middle - 4, middle + 5),
    }[draw]

    def matrix(lines: int) -> Matrix:
        shape = lines, 32 // item
        bits, exponents = random.integers(0, 1 << 8 * item, shape), random.integers(*about, shape)
        return (bits & (low | sign) | exponents << mantissa).astype(kind)

    a, b = matrix(ROWS), matrix(COLUMNS)
    if draw == "special":
        for factors in (a, b):
            chance = random.random(factors.shape)
            factors[chance < 0.02] = top << mantissa
            factors[chance > 0.99] = top << mantissa | low
            factors[(chance > 0.9) & (chance < 0.99)] = 0
    if draw == "cancelling":
        b[:, 1::2] = b[:, 0::2]
        a[:, 1::2] = a[:, 0::2] ^ kind.type(sign)
    if name == "tf32":  # what the unit looks at
        a, b = a & ~np.uint32(0x1FFF), b & ~np.uint32(0x1FFF)
    sums = random.integers(0, 1 << 32, (ROWS, COLUMNS), dtype=np.uint32)
    if draw in ("subnormal", "tiny"):
        sums &= np.uint32(0x81FFFFFF)
    elif draw != "any bits":
        scale = 2.0 ** random.integers(-24 if draw == "cancelling" else -8, 12, sums.shape)
        sums = (random.standard_normal(sums.shape) * scale).astype(np.float32).view(np.uint32)
        sums[random.random(sums.shape) < 0.2] = 0
    return a, b, sums


def instruction(name: str) -> Instruction:
    """The mma.sync of that type."""
    (chosen,) = (i for i in INSTRUCTIONS if i.name.startswith("mma_m16n8") and i.name.endswith(f"_{name}") and
                 i.name.count(name) == 1 and i.a == i.b)
    return chosen


def warp_answer(device: Device, name: str, a: Matrix, b: Matrix, sums: Matrix) -> Matrix:
    """Bits of the sum after mma.sync."""
    of = instruction(name)
    typed = a.view(of.a), np.ascontiguousarray(b.T).view(of.b), sums.view(of.sum)
    fragments = of.lay_out(*typed)
    source = KernelSource("tensor_core.cu", (KERNELS / "tensor_core.cu").read_text(), "product", of.defines)
    return of.read_back(launch(device, source, 32, *fragments)[-1]).view(sums.dtype)


def warpgroup_source(name: str) -> KernelSource:
    shape, rest, _ = WGMMA[name]
    defines = "SUM=float", "PTX_SUM=f32", f"SHAPE={shape}", f"TYPE={name}", f'REST="{rest}"', 'KIND="+f"'
    return KernelSource("wgmma.cu", (HERE / "wgmma.cu").read_text(), "answer", defines, arch="sm_90a")


def launch(device: Device, source: KernelSource, threads: int, *arrays: Matrix) -> list[Matrix]:
    """What arrays hold after one block ran, on a GPU through CuPy or in place."""
    if hasattr(device, "order"):  # the host device
        moved = [np.array(array) for array in arrays]
        pointers = [array.ctypes.data for array in moved]
    else:
        import cupy

        there = [cupy.asarray(np.ascontiguousarray(array).view(np.uint8)) for array in arrays]
        pointers = [array.data.ptr for array in there]
    args = (ctypes.c_uint64 * len(pointers))(*pointers)
    device.load(source).launch((1, 1, 1), threads, ctypes.addressof(args), ctypes.sizeof(args), 0)
    if hasattr(device, "order"):
        return moved
    cupy.cuda.Device().synchronize()
    return [cupy.asnumpy(g).view(a.dtype).reshape(a.shape) for a, g in zip(arrays, there, strict=True)]


def record(device: Device) -> Iterator[tuple[str, Matrix]]:
    """Operands and answers by name, "type draw/a" and so on; DMMA's under "f64"."""
    random = np.random.default_rng(1)
    for name in WGMMA:
        for draw in DRAWS:
            a, b, sums = operands(name, draw, random)
            rows = np.zeros((64, a.shape[1]), a.dtype), np.zeros((64, COLUMNS), np.uint32)
            rows[0][:ROWS], rows[1][:ROWS] = a, sums
            answer = launch(device, warpgroup_source(name), 128, rows[0], b, rows[1])[-1][:ROWS]
            answers = {"a": a, "b": b, "sum": sums, "wgmma": answer, "mma": warp_answer(device, name, a, b, sums)}
            yield from ((f"{name} {draw}/{key}", value) for key, value in answers.items())
    a, b = random.standard_normal((16, 8)) * 2.0 ** random.integers(-20, 20, (16, 8)), random.standard_normal((8, 8))
    sums = random.standard_normal((16, 8)) * 2.0 ** random.integers(-20, 20, (16, 8))
    yield from {"f64/a": a, "f64/b": b, "f64/sum": sums, "f64/mma": warp_answer(device, "f64", a, b, sums)}.items()


if __name__ == "__main__":
    from baracuda.runtime.devices.cuda import CudaDevice

    np.savez_compressed(ANSWERS, **dict(record(CudaDevice())))
    print(f"{ANSWERS}: {ANSWERS.stat().st_size} bytes")
