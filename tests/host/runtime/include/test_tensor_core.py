"""Matrix instructions and asynchronous copies: what they compute, and on which architectures they exist."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from host.fragments import INSTRUCTIONS, Instruction

from baracuda.runtime.compile.cubin import compile_cubin
from baracuda.runtime.device import KernelSource
from baracuda.runtime.errors import CompileError

BOTH_TEXTS = True

EACH = pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=lambda i: i.name)
FILE = "tensor_core.cu"
ENTRIES = ("load", "copy", "round_to_tf32")


def multiply(device, source, run, instruction: Instruction, a, b, d) -> np.ndarray:
    fragments = []
    for values in instruction.lay_out(a, b, d):
        fragments.append(device.empty(values.shape, values.dtype))
        fragments[-1][...] = values
    run(device, source(FILE, "product", *instruction.defines), 1, 32, *fragments)
    return instruction.read_back(fragments[-1])


def truncated(matrix: np.ndarray) -> np.ndarray:
    """What of a float32 a tf32 instruction looks at."""
    return (matrix.view(np.uint32) & ~np.uint32(0x1FFF)).view(np.float32)


@EACH
def test_product(any_device, source, run, instruction):
    """D + A B, laid out over the lanes as PTX says, is as close to the exact one as its additions allow."""
    random = np.random.default_rng(5)
    for _ in range(4):
        a, b, d = instruction.random(random)
        got = multiply(any_device, source, run, instruction, a, b, d)
        if instruction.sum == np.int32:
            exact = d.astype(np.int64) + a.astype(np.int64) @ b.astype(np.int64)
            np.testing.assert_array_equal(got, exact.astype(np.int32))  # wrapped around
            continue
        if instruction.name.endswith("tf32"):
            a, b = truncated(a), truncated(b)
        a, b, d = (m.astype(np.longdouble) for m in (a, b, d))
        bound = (instruction.depth + 2) * instruction.unit * (abs(d) + abs(a) @ abs(b))
        assert (abs(got - (d + a @ b)) <= bound).all()


@pytest.mark.parametrize("kind", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2], ids=["e4m3", "e5m2"])
def test_every_8_bit_float(device, source, run, kind):
    """Each of the 256 codes times one is its value, NaN and infinity included."""
    (instruction,) = (i for i in INSTRUCTIONS if i.a == i.b == kind)
    codes = np.arange(256, dtype=np.uint8).view(kind)
    got = []
    for first in range(0, 256, 16):
        a, b, d = np.zeros((16, 32), kind), np.zeros((32, 8), kind), np.zeros((16, 8), np.float32)
        a[:, 3], b[3] = codes[first : first + 16], 1
        got.append(multiply(device, source, run, instruction, a, b, d)[:, 5])
    np.testing.assert_array_equal(np.concatenate(got), codes.astype(np.float32))


def test_matrices_from_shared_memory(any_device, source, run):
    """ldmatrix of one, two and four matrices, straight and transposed, from rows at any multiple of 16 bytes."""
    matrices, out = any_device.empty((4, 8, 8), np.uint16), any_device.empty((14, 32), np.uint32)
    matrices[...] = np.random.default_rng(2).integers(0, 2**16, matrices.shape)
    run(any_device, source(FILE, "load"), 1, 32, matrices, out)
    register = 0
    for count in (1, 2, 4):
        for trans in (False, True):
            for matrix in matrices[:count].astype(np.uint32):
                for lane in range(32):
                    pair = (matrix.T if trans else matrix)[lane // 4, lane % 4 * 2 :][:2]
                    assert out[register, lane] == pair[0] | pair[1] << 16, (count, trans, lane)
                register += 1
    assert register == 14


def test_asynchronous_copies(any_device, source, run):
    """Copies of 4, 8 and 16 bytes take as many bytes as asked for and fill the rest of their size with zeros."""
    memory, copied = any_device.empty(16, np.uint8), any_device.empty((17, 4, 16), np.uint8)
    memory[...] = np.arange(1, 17)
    run(any_device, source(FILE, "copy"), 17, 32, memory, copied)
    for asked in range(17):
        for kind, size in enumerate((4, 8, 16, 16)):
            expected = np.full(16, 255, np.uint8)
            expected[:size] = 0
            expected[: min(size, asked)] = memory[: min(size, asked)]
            np.testing.assert_array_equal(copied[asked, kind], expected)


def test_rounding_to_tf32(any_device, source, run):
    """Ten bits of the significand remain, ties go away from zero, and what is not finite stays so."""
    steps = np.arange(64, dtype=np.float32) / 16 * 2.0**-10
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, 1e-45, 2.0**-126]
    values = np.concatenate([1 + steps, -1 - steps, 1.5e-39 + steps * 2.0**-120, special]).astype(np.float32)
    x, bits = any_device.empty(values.size, np.float32), any_device.empty(values.size, np.uint32)
    x[...] = values
    run(any_device, source(FILE, "round_to_tf32"), 1, values.size, x, bits)
    got = truncated(bits.view(np.float32))
    finite = np.isfinite(values)
    exponent = np.maximum(np.frexp(values[finite].astype(np.float64))[1], -125)
    unit = 2.0 ** (exponent - 11.0)
    rounded = np.trunc(values[finite] / unit + np.copysign(0.5, values[finite])) * unit
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got[finite], rounded.astype(np.float32))
    np.testing.assert_array_equal(got[~finite], values[~finite])
    np.testing.assert_array_equal(np.signbit(got), np.signbit(values))


@EACH
def test_assembles(source, instruction):
    """The instruction is accepted for the first architecture that has it and for sm_90."""
    kernel = source(FILE, "product", *instruction.defines)
    for arch in (f"sm_{instruction.sm}", "sm_90"):
        assert compile_cubin(kernel, arch).resources.spill_bytes == 0


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90"])
@pytest.mark.parametrize("symbol", ENTRIES)
def test_loads_and_copies_assemble(source, symbol, arch):
    """ldmatrix, cp.async and the rounding to tf32 are accepted from sm_80 on."""
    compile_cubin(source(FILE, symbol), arch)


@EACH
def test_architecture_without_the_instruction(source, instruction):
    """An architecture that lacks the instruction is a compile error which says what is needed."""
    missing = {80: "sm_75", 89: "sm_86"}[instruction.sm]
    text = source(FILE, "product", *instruction.defines).text.split("struct Load")[0]
    kernel = KernelSource(FILE, text, "product", instruction.defines)
    with pytest.raises(CompileError, match=f"{instruction.name} needs sm_{instruction.sm}"):
        compile_cubin(kernel, missing)
    compile_cubin(kernel, "sm_90")


def test_architecture_without_asynchronous_copies(source):
    """Copies are refused before sm_80 where they are used, not where the header is included."""
    with pytest.raises(CompileError, match=r"cp\.async needs sm_80"):
        compile_cubin(source(FILE, "copy"), "sm_75")
