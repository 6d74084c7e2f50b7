"""Matrix instructions, and how PTX lays their operands out over the lanes of a warp."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.generic]
Position = Callable[[int, int, int], tuple[int, int]]  # of element i in lane 4 g + t

# As the tables of PTX put it, for elements of so many bits: row and column in A, row and column in B.
A_POSITIONS: dict[int, Position] = {
    8: lambda g, t, i: (g if i < 4 or 8 <= i < 12 else g + 8, 4 * t + (i & 3) + (16 if i >= 8 else 0)),
    16: lambda g, t, i: (g if i < 2 or 4 <= i < 6 else g + 8, 2 * t + (i & 1) + (8 if i >= 4 else 0)),
    32: lambda g, t, i: (g if i in (0, 2) else g + 8, t if i < 2 else t + 4),
    64: lambda g, t, i: (g + 8 * (i % 2), t + 4 * (i // 2)),
}
B_POSITIONS: dict[int, Position] = {
    8: lambda g, t, i: (4 * t + (i & 3) + (16 if i >= 4 else 0), g),
    16: lambda g, t, i: (2 * t + (i & 1) + (8 if i >= 2 else 0), g),
    32: lambda g, t, i: (t if i == 0 else t + 4, g),
    64: lambda g, t, i: (t + 4 * i, g),
}


def d_position(g: int, t: int, i: int) -> tuple[int, int]:
    return (g if i < 2 else g + 8, 2 * t + (i & 1))


@dataclass(frozen=True)
class Instruction:
    """D[rows, 8] += A[rows, depth] B[depth, 8]; `unit` bounds the relative error of one addition of the host's."""

    name: str
    rows: int
    depth: int
    a: npt.DTypeLike
    b: npt.DTypeLike
    sum: npt.DTypeLike = np.float32
    unit: float = 2.0**-24
    sm: int = 80

    @property
    def bits(self) -> int:
        return 8 * np.dtype(self.a).itemsize

    @property
    def word(self) -> npt.DTypeLike:
        return np.float64 if self.bits == 64 else np.uint32

    @property
    def defines(self) -> tuple[str, ...]:
        names = {"uint32": "unsigned", "int32": "int", "float32": "float", "float64": "double"}
        word, total = names[np.dtype(self.word).name], names[np.dtype(self.sum).name]
        a, b, d = (array.shape[1] for array in self.random_fragments(np.random.default_rng(0)))
        counts = f"A_WORDS={a}", f"B_WORDS={b}", f"D_VALUES={d}"
        return (f"MMA={self.name}", f"WORD={word}", f"SUM={total}", *counts)

    def random(self, random: np.random.Generator) -> tuple[Matrix, Matrix, Matrix]:
        """A, B and D of all magnitudes that their types have in the middle of their range."""
        shapes = (self.rows, self.depth), (self.depth, 8), (self.rows, 8)
        types = self.a, self.b, self.sum
        return tuple(_draw(random, shape, np.dtype(kind)) for shape, kind in zip(shapes, types, strict=True))

    def random_fragments(self, random: np.random.Generator) -> tuple[Matrix, Matrix, Matrix]:
        return self.lay_out(*self.random(random))

    def lay_out(self, a: Matrix, b: Matrix, d: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        """The registers of each lane, 32 rows each."""
        return (
            _spread(a, self.rows * self.depth // 32, A_POSITIONS[self.bits]).view(self.word),
            _spread(b, self.depth // 4, B_POSITIONS[self.bits]).view(self.word),
            _spread(d, self.rows // 4, d_position),
        )

    def read_back(self, fragment: Matrix) -> Matrix:
        """D from the registers of each lane."""
        d = np.zeros((self.rows, 8), self.sum)
        for lane in range(32):
            for i in range(self.rows // 4):
                d[d_position(lane // 4, lane % 4, i)] = fragment[lane, i]
        return d


def _spread(matrix: Matrix, count: int, position: Position) -> Matrix:
    held = [[matrix[position(lane // 4, lane % 4, i)] for i in range(count)] for lane in range(32)]
    return np.array(held, matrix.dtype)


def _draw(random: np.random.Generator, shape: tuple[int, int], kind: np.dtype[np.generic]) -> Matrix:
    if kind == np.int32:
        return random.integers(-(2**31), 2**31, shape).astype(kind)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return random.integers(limits.min, limits.max + 1, shape).astype(kind)
    return (random.standard_normal(shape) * 2.0 ** random.integers(-4, 5, shape)).astype(kind)


F16, BF16 = np.float16, ml_dtypes.bfloat16
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
INSTRUCTIONS = (
    Instruction("mma_m16n8k16_f16", 16, 16, F16, F16),
    Instruction("mma_m16n8k16_bf16", 16, 16, BF16, BF16),
    Instruction("mma_m16n8k8_tf32", 16, 8, np.float32, np.float32),
    Instruction("mma_m16n8k32_e4m3", 16, 32, E4M3, E4M3, sm=89),
    Instruction("mma_m16n8k32_e5m2", 16, 32, E5M2, E5M2, sm=89),
    Instruction("mma_m16n8k32_e4m3_e5m2", 16, 32, E4M3, E5M2, sm=89),
    Instruction("mma_m16n8k32_e5m2_e4m3", 16, 32, E5M2, E4M3, sm=89),
    Instruction("mma_m16n8k32_s8", 16, 32, np.int8, np.int8, np.int32),
    Instruction("mma_m16n8k32_u8", 16, 32, np.uint8, np.uint8, np.int32),
    Instruction("mma_m16n8k32_s8_u8", 16, 32, np.int8, np.uint8, np.int32),
    Instruction("mma_m16n8k32_u8_s8", 16, 32, np.uint8, np.int8, np.int32),
    Instruction("mma_m8n8k4_f64", 8, 4, np.float64, np.float64, np.float64, 2.0**-53),
    Instruction("mma_m16n8k8_f64", 16, 8, np.float64, np.float64, np.float64, 2.0**-53),
)
