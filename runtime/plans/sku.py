"""The identity of a kernel: what it computes, its guarantees, its hardware, its schedule."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

from ..arrays.element import ElementKind
from ..errors import InvalidProblem, Unsupported
from ..values import one_line, short_repr, text_of
from .schedule import Schedule

VECTOR_BYTES = 16
FIRST_REVISION = 1  # of an op's numerics; names do not say it


class Direction(StrEnum):
    FORWARD = "forward"
    BACKWARD = "backward"


class BackendKind(StrEnum):
    """Who wrote the kernel; all generated ones are bespoke."""

    BESPOKE = "bespoke"


class MathPrecision(StrEnum):
    """The type that factors are rounded to before they are multiplied; compares equal to the tag of its element type.

    `tf32x3`: each factor is the sum of two TF32 numbers, and of their four products the smallest is left out. `tf32`:
    each is one TF32 number, which has 11 bits, only where a caller asks for it. `f8` and `i8`: factors are of 8 bits,
    floats or whole numbers, and as they are.
    """

    F16 = "f16"
    BF16 = "bf16"
    TF32X3 = "tf32x3"
    TF32 = "tf32"
    F32 = "f32"
    F64 = "f64"
    I64 = "i64"
    C64 = "c64"
    C128 = "c128"
    F8 = "f8"
    I8 = "i8"

    def __repr__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, slots=True)
class PrecisionGuarantee:
    """What is promised of a result's bits, each rung with a test behind it.

    `math_precision` is what intermediate results are rounded to where they are factors of a product, as attention's
    weights and its gradients of scores are before tensor cores take them. `accumulator` is the type that products are
    added up in, and that everything else is computed in.

    `deterministic`: the same call gives the same bits. `bit_stable_on_same_hardware`: so do other runs, alignments,
    strides and workspaces. `batch_invariant`: a row's bits do not depend on how many rows there are.
    `bit_stable_across_arch`: the same bits on every GPU and on the host device, NaN payloads aside.

    `numerics` is the revision of these bits: a release that changes them raises it.
    """

    math_precision: MathPrecision
    accumulator: ElementKind
    deterministic: bool = False
    bit_stable_on_same_hardware: bool = False
    batch_invariant: bool = False
    bit_stable_across_arch: bool = False
    numerics: int = FIRST_REVISION

    def __str__(self) -> str:
        rungs = "".join(letter if getattr(self, name) else "-" for letter, name in zip("dsba", RUNGS, strict=True))
        revision = f".{self.numerics}" if self.numerics != FIRST_REVISION else ""
        return f"{self.math_precision}.{self.accumulator}.{rungs}{revision}"

    @classmethod
    def parse(cls, text: str) -> PrecisionGuarantee:
        """The guarantee that prints as `text`."""
        math, accumulator, rungs, *revision = text.split(".")
        promises = {name: letter != "-" for name, letter in zip(RUNGS, rungs, strict=True)}
        guarantee = cls(MathPrecision(math), ElementKind(accumulator), **promises)
        return replace(guarantee, numerics=_revision(".".join(revision))) if revision else guarantee

    @classmethod
    def of(
        cls, element: ElementKind, rungs: Iterable[str], math: str = "acc", numerics: int = FIRST_REVISION
    ) -> PrecisionGuarantee:
        """That of kernels of `element`; `math` is a MathPrecision, "T" for the element or "acc" for its accumulator."""
        acc = element.row.acc
        kinds: dict[str, str] = {"T": element, "acc": acc}
        return cls(MathPrecision(kinds.get(math, math)), acc, **dict.fromkeys(rungs, True), numerics=numerics)

    @property
    def rungs(self) -> frozenset[str]:
        return frozenset(name for name in RUNGS if getattr(self, name))


RUNGS = tuple(f.name for f in fields(PrecisionGuarantee) if f.default is False)
SPLIT = "split"  # a number of schedules whose sums are made in parts, as many as follow from the size of the batch, too


def _revision(text: str) -> int:
    """A revision that a name says: the first has none there."""
    if re.fullmatch("[1-9][0-9]{0,3}", text) is None or int(text) == FIRST_REVISION:
        raise InvalidProblem(f"{short_repr(text)} is not a revision of numerics; needs a number from 2 on, or none")
    return int(text)


_TILE = re.compile(r"(row|wide)(\d+)x(\d+)x(\d+)(?:x(\d+))?(?:b(\d+))?r(\d+)(?:s(\d+))?")


@dataclass(frozen=True, slots=True)
class Tile:
    """How a block covers rows: `lanes` threads per row, `rows` rows per block, `chunks` 16-byte packs per thread.

    A `wide` tile loops over rows longer than itself. With `cluster`, that many blocks share a row, which needs sm_90,
    and `blocks` counts clusters. At most `blocks` persistent blocks take row after row, prefetching the next: a fixed
    number, so that column sums have the same order on every GPU. 0 is one block per `rows` rows. `resident` is the
    wanted number of blocks per SM, which bounds the registers per thread. A thread keeps its last `staged` packs of
    packed rows in shared memory.
    """

    lanes: int
    rows: int
    chunks: int
    wide: bool
    blocks: int
    cluster: int = 1
    resident: int = 1
    staged: int = 0

    @property
    def arch(self) -> str:
        """The lowest architecture that has what the tile needs, or "" for all."""
        return "sm_90" if self.cluster > 1 or (self.blocks and self.threads > _THREADS_AHEAD) else ""

    @property
    def constants(self) -> tuple[tuple[str, int], ...]:
        """The numbers that kernels are compiled with; the number of blocks is known at launch."""
        flags = ("WIDE", int(self.wide)), ("CLUSTER", self.cluster), ("PERSISTENT", int(self.blocks > 0))
        numbers = ("LANES", self.lanes), ("ROWS", self.rows), ("CHUNKS", self.chunks)
        return *numbers, *flags, ("BLOCKS_PER_SM", self.resident), ("STAGED", self.staged)

    @property
    def threads(self) -> int:
        return self.lanes * self.rows

    @property
    def tag(self) -> str:
        cluster = f"x{self.cluster}" if self.cluster > 1 else ""
        return f"{'wide' if self.wide else 'row'}{self.lanes}x{self.rows}x{self.chunks}{cluster}"

    def columns(self, itemsize: int) -> int:
        """How many elements of `itemsize` bytes a row of the tile holds."""
        return self.lanes * self.chunks * self.cluster * (VECTOR_BYTES // itemsize)

    def __str__(self) -> str:
        blocks = f"b{self.blocks}" if self.blocks else ""
        staged = f"s{self.staged}" if self.staged else ""
        return f"{self.tag}{blocks}r{self.resident}{staged}"

    @classmethod
    @lru_cache(maxsize=1024)
    def parse(cls, text: str) -> Tile:
        """The tile that prints as `text`."""
        match = _TILE.fullmatch(text)
        if match is None:
            raise InvalidProblem(f"{short_repr(text)} is not a tile; expected row128x1x4r8")
        kind, *numbers = match.groups()
        lanes, rows, chunks, cluster, blocks, resident, staged = (int(n or 0) for n in numbers)
        return cls(lanes, rows, chunks, kind == "wide", blocks, cluster or 1, resident, staged)


def parse_schedule(text: str) -> Tile | Schedule:
    """The tile or schedule that prints as `text`; raises InvalidProblem for anything else."""
    try:
        return Schedule.parse(text) if text[:1] == "t" else Tile.parse(text)
    except ValueError:  # of a number that Python does not read, too
        expected = "expected a schedule, as t128.block_q64, or a tile, as row128x1x4r8"
        raise InvalidProblem(f"unknown schedule {short_repr(text)}; {expected}") from None


# A block of more that stays reads ahead into more shared memory than a block of sm_89 has.
_THREADS_AHEAD = 512


_ARCH = re.compile("host|sm_([0-9]{1,4})[a-z]?")


@dataclass(frozen=True, slots=True)
class KernelSku:
    """Names one kernel; ``KernelSku.parse(str(sku)) == sku``.

    `arch` is the lowest architecture it runs on ("sm_80"), or, with a letter suffix ("sm_90a"), the only one.
    `aux_element`, `layout` and `epilogue` are None for ops without a choice of them.
    """

    category: str
    op: str
    direction: Direction
    element: ElementKind
    arch: str
    backend: BackendKind
    precision_guarantee: PrecisionGuarantee
    schedule: Tile | Schedule
    aux_element: ElementKind | None = None
    layout: str | None = None
    epilogue: str | None = None

    @property
    def tile(self) -> Tile:
        """The schedule of a kernel of the row family."""
        assert isinstance(self.schedule, Tile)
        return self.schedule

    @property
    def symbol(self) -> str:
        """The entry point's name in the generated source, or the prefix of its entry points' names."""
        arch = "" if self.arch == "sm_80" else f"{self.arch}_"
        return f"{self.op}_{arch}{self.element}_{self.schedule.tag}"

    @property
    def asked(self) -> dict[str, Any]:
        """The fields of a preference that must ask for this kernel, which guarantees less than others of its op."""
        math, numbers = self.precision_guarantee.math_precision, getattr(self.schedule, "numbers", ())
        rounded = {"math_precision": math} if math == MathPrecision.TF32 else {}
        return rounded | ({"waives": frozenset({"batch_invariant"})} if SPLIT in dict(numbers) else {})

    def __str__(self) -> str:
        parts = (getattr(self, name) for name in _PARTS)
        return "/".join("-" if part is None else str(part) for part in parts)

    @classmethod
    def parse(cls, text: str) -> KernelSku:
        """The SKU that prints as `text`; raises InvalidProblem for anything else."""
        try:
            parts = (text_of(text) or "").split("/")
            category, op, direction, element, arch, backend, guarantee, tile, aux, layout, epilogue = parts
            return cls(
                category,
                op,
                Direction(direction),
                ElementKind(element),
                arch,
                BackendKind(backend),
                PrecisionGuarantee.parse(guarantee),
                parse_schedule(tile),
                None if aux == "-" else ElementKind(aux),
                None if layout == "-" else layout,
                None if epilogue == "-" else epilogue,
            )
        except (ValueError, Unsupported) as error:
            raise InvalidProblem(f"{short_repr(text)} is not a KernelSku: {one_line(error)}") from None

    def fits(self, arch: str) -> str | None:
        """Why a device of architecture `arch` cannot run this kernel, or None when it can."""
        if not (match := _ARCH.fullmatch(text_of(arch) or "")):
            raise InvalidProblem(f"'arch' must be 'host' or as sm_80, got {short_repr(arch)}")
        if arch == "host":
            beyond = int(self.arch[3:].rstrip("a")) > 90
            return "needs an instruction the host device does not model" if beyond else None
        if self.arch.endswith("a"):
            return None if arch == self.arch[:-1] else f"runs on {self.arch[:-1]} only, the device is {arch}"
        needed, got = int(self.arch[3:]), int(match[1])
        return None if got >= needed else f"needs {self.arch} or later, the device is {arch}"


_PARTS = tuple(f.name for f in fields(KernelSku))
