"""What a spec file may say. Every key is declared here; anything else is an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

Ident = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
ClassName = Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]{0,63}$")]
Text = Annotated[str, Field(min_length=1, max_length=4000, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f]*$")]
Doc = Annotated[str, Field(min_length=1, max_length=400, pattern=r"^[^\x00-\x1f\x7f\\]*$")]
Float = Literal["f32", "f16", "bf16", "f64"]
Element = Literal[
    "f32", "f16", "bf16", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool",
    "f8e4m3", "f8e5m2", "c64", "c128",
]  # fmt: skip
Stored = Literal["T", "acc", "f32", "f16", "bf16", "f64", "f8e4m3", "f8e5m2", "i32", "i64"]
Rung = Literal["deterministic", "bit_stable_on_same_hardware", "batch_invariant", "bit_stable_across_arch"]
Layout = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
Arch = Literal["sm_80", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120"]
Spilled = Annotated[int, Field(ge=1, le=4096)]


Family = Literal["row", "map", "body"]
Macro = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,31}$")]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class FieldSpec(Strict):
    """A field of the descriptor: what the problem is, known before any array is."""

    type: Literal["shape", "int", "float", "bool"]
    doc: Doc
    default: int | float | bool | None = None
    same_as: Ident | None = None  # the field whose value it takes when it is not given


class Requirement(Strict):
    """A condition on the descriptor's fields, and the error that its violation raises."""

    that: Text
    raises: Literal["InvalidProblem", "Unsupported"]


class DimSpec(Strict):
    """A group of axes of the field `of`: those that the expression `axes` lists, or the `rest`."""

    of: Ident
    axes: Text


class TensorSpec(Strict):
    """An array argument; families add how its shape is given."""

    doc: Doc
    dtype: Annotated[tuple[Stored, ...], Field(min_length=1, strict=False)] = ("T",)
    layout: Literal["any", "contiguous", "inner"] = "any"
    optional: Ident | Literal[False] = False
    default: float | int | None = None
    may_alias: Annotated[tuple[Ident, ...], Field(strict=False)] = ()
    updates: Ident | None = None

    @field_validator("dtype", mode="before")
    @classmethod
    def _one_is_a_list_of_one(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value


class RowTensor(TensorSpec):
    """A tensor with a value for each element, each row or each column."""

    dims: Annotated[tuple[Ident, ...], Field(min_length=1, strict=False)]


class BoundSpec(Strict):
    """|error| <= c1 * u(T) * |y| + c2 * (the running error bound of the program in the accumulator)."""

    c1: Annotated[float, Field(gt=0, le=16)] = 1.0
    c2: Annotated[float, Field(gt=0, le=16)] = 1.0


class PrecisionSpec(Strict):
    contraction: bool = False
    subnormals: Literal["keep", "flush"] = "keep"
    bound: dict[Float, BoundSpec] = {}


class GradientSpec(Strict):
    """Which forward op this one differentiates, and what its tensors are called there."""

    of: Ident
    cotangents: dict[Ident, Ident]  # tensor here -> output there
    wrt: dict[Ident, Ident]  # output here -> input there
    saved: Annotated[tuple[Ident, ...], Field(strict=False)] = ()


class ArchSpec(Strict):
    """What the SKUs of an architecture need from it, and how much of it they may use."""

    needs: Annotated[tuple[Literal["tma", "wgmma", "cluster", "turns"], ...], Field(strict=False)] = ()
    shared_bytes: Annotated[int, Field(ge=0)] | None = None
    registers: Annotated[int, Field(ge=16, le=255)] | None = None
    stack_bytes: Annotated[int, Field(ge=0, le=4096)] = 0
    spill_bytes: dict[Layout, Spilled | dict[Arch, Spilled]] = {}  # on any device, or from each of these on


class RangeSpec(Strict):
    """Whole numbers from `low` to `high`, small ones more often; of a shape, its extents, for a rank in `rank`."""

    low: int
    high: int
    rank: Annotated[tuple[int, int], Field(strict=False)] | None = None


Drawn = RangeSpec | Annotated[list[Any], Field(min_length=1)]


class TestsSpec(Strict):
    """Problems to test on, and, for inputs a formula is not defined everywhere for, the range to draw from.

    `draw` says what random problems are made of: for each field that varies, a range or the values to choose among.
    """

    __test__ = False

    defaults: dict[Ident, Any] = {}
    batch: Ident | None = None  # the field that counts what is independent, for families that cannot tell
    finite: Annotated[tuple[Element, ...], Field(strict=False)] = ()  # whose inputs must not be infinite
    draw: dict[Ident, Drawn] = {}
    ranges: dict[Ident, Annotated[tuple[float, float], Field(strict=False)]] = {}
    cases: Annotated[list[dict[Ident, Any]], Field(min_length=1)]


class BenchSpec(Strict):
    """Problems worth measuring. A case may also say its `dtype`, and the `arch` whose kernels it is about.

    `dtypes` are those of cases that name none, by default bf16 where there is such a kernel; `flops` counts the
    arithmetic of a problem, for ops that memory does not bound.
    """

    cases: list[dict[Ident, Any]]
    dtypes: Annotated[tuple[Element, ...], Field(strict=False)] = ()
    flops: Text | None = None


class OpSpec(Strict):
    """One operation in one direction: what the specs of all families say."""

    op: Ident
    category: Ident
    kind: ClassName
    direction: Literal["forward", "backward"]
    plan: Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]{0,59}Plan$")]
    family: Family
    doc: Doc
    formula: Text
    source: Doc

    descriptor: dict[Ident, FieldSpec]
    require: list[Requirement] = []
    dtypes: Annotated[tuple[Element, ...], Field(min_length=1, strict=False)]
    inputs: Mapping[Ident, TensorSpec]
    outputs: Mapping[Ident, TensorSpec]
    check_order: Annotated[tuple[Ident, ...], Field(strict=False)] = ()

    gradient: GradientSpec | None = None
    precision: PrecisionSpec = PrecisionSpec()
    reproducibility: dict[Ident, Annotated[tuple[Rung, ...], Field(strict=False)]]
    arch: Annotated[dict[Arch, ArchSpec], Field(min_length=1)]
    tests: TestsSpec
    bench: BenchSpec = BenchSpec(cases=[])

    @property
    def tensors(self) -> Mapping[str, TensorSpec]:
        return {**self.inputs, **self.outputs}

    @property
    def arguments(self) -> Mapping[str, TensorSpec]:
        """Tensors the caller passes: an output that updates an input has no buffer of its own."""
        return {name: t for name, t in self.tensors.items() if t.updates is None}


class RowSpec(OpSpec):
    """An op on rows of columns: its program reduces along the rows, and last of all down the columns."""

    dims: dict[Ident, DimSpec]
    inputs: dict[Ident, RowTensor]
    outputs: dict[Ident, RowTensor]
    program: Text
    reference: Text | None = None

    @property
    def tensors(self) -> dict[str, RowTensor]:
        return {**self.inputs, **self.outputs}

    @property
    def arguments(self) -> dict[str, RowTensor]:
        return {name: t for name, t in self.tensors.items() if t.updates is None}


class AxesSpec(Strict):
    """The axes of a shape, or the one axis that an int field gives the extent of."""

    of: Ident


class MapTensor(TensorSpec):
    """A tensor over some of the dims, in the order of its axes; `copy * cell` multiplies two shapes axis by axis."""

    dims: Annotated[tuple[Text, ...], Field(min_length=1, strict=False)]

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """For each entry of `dims`, the dims that its axes are products of."""
        return tuple(tuple(part.strip() for part in entry.split("*")) for entry in self.dims)

    @property
    def over(self) -> frozenset[str]:
        """The dims along which the tensor varies."""
        return frozenset(dim for group in self.groups for dim in group)


class MapSpec(OpSpec):
    """An op on every cell of an index space; outputs are cells' values, or sums of them over some of the dims."""

    dims: dict[Ident, AxesSpec]
    inputs: dict[Ident, MapTensor]
    outputs: dict[Ident, MapTensor]
    program: Text
    reference: Text | None = None

    @property
    def tensors(self) -> dict[str, MapTensor]:
        return {**self.inputs, **self.outputs}

    @property
    def arguments(self) -> dict[str, MapTensor]:
        return {name: t for name, t in self.tensors.items() if t.updates is None}


class BodyTensor(TensorSpec):
    """A tensor whose shape is an expression over the descriptor; `shapes` lists others that it may have as well."""

    shape: Text
    shapes: Annotated[tuple[Text, ...], Field(strict=False)] = ()
    test: Ident | None = None  # how its test values are drawn, where any will not do


class WorkspaceSpec(Strict):
    """Scratch of `size` elements, an expression."""

    size: Text
    dtype: Literal["T", "acc", "f32", "i32", "i64"] = "acc"


class KernelSpec(Strict):
    """One of the kernels that an op launches, in order: an expression for each axis of its grid.

    `shared` is its dynamic shared memory in bytes, `threads` those of a block (by default the schedule's), `when` what
    makes it worth launching.
    """

    name: Ident
    grid: Annotated[tuple[Text | int, ...], Field(min_length=1, max_length=3, strict=False)]
    shared: Text | int = 0
    threads: Text | int | None = None
    when: Text | None = None


class ScheduleSpec(Strict):
    """A row of the table of schedules: its numbers become constants of the kernel; `fits` is what it serves."""

    arch: Arch
    dtypes: Annotated[tuple[Element, ...], Field(min_length=1, strict=False)]
    threads: Annotated[int, Field(ge=32, le=1024, multiple_of=32)]
    numbers: dict[Ident, int] = {}
    fits: Text | None = None
    layout: Layout | None = None  # the only one it works on; which no other schedule then does
    first: bool = False  # whether it comes before those that are made for the device's own architecture


class PinnedSpec(Strict):
    """A plan class that selects among the SKUs of one architecture only."""

    arch: Arch
    doc: Doc


class BodySpec(OpSpec):
    """An op whose kernels are written by hand in a header; everything around them is declared."""

    inputs: dict[Ident, BodyTensor]
    outputs: dict[Ident, BodyTensor]
    body: dict[Arch, Annotated[str, Field(pattern=r"^[a-z0-9_]+\.cuh$")]]
    settings: dict[Macro, Text] = {}
    terms: dict[Ident, Text] = {}  # expressions that the ones below have in common
    layouts: dict[Layout, dict[Ident, int]] = {}
    workspace: dict[Ident, WorkspaceSpec] = {}
    kernels: Annotated[list[KernelSpec], Field(min_length=1)]
    schedules: Annotated[list[ScheduleSpec], Field(min_length=1)]
    tensor_maps: dict[Arch, dict[Ident, Text]] = {}
    pinned: dict[ClassName, PinnedSpec] = {}
    oracle: Annotated[str, Field(pattern=r"^[a-z0-9_]+\.[a-z0-9_]+$")]

    @property
    def tensors(self) -> dict[str, BodyTensor]:
        return {**self.inputs, **self.outputs}

    @property
    def arguments(self) -> dict[str, BodyTensor]:
        return {name: t for name, t in self.tensors.items() if t.updates is None}


FAMILY_SPECS: dict[str, type[OpSpec]] = {"row": RowSpec, "map": MapSpec, "body": BodySpec}


def spec_of(family: object) -> type[OpSpec]:
    """What a file of that family may say; of the first one when the family is unknown."""
    return FAMILY_SPECS.get(family, RowSpec) if isinstance(family, str) else RowSpec
