"""The keys of a spec of the body family."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ...spec.parts import TensorSpec
from ...spec.spec import OpSpec
from ...spec.types import (
    Arch,
    Arguments,
    Doc,
    Element,
    Expression,
    Ident,
    Layout,
    Macro,
    Number,
    NumberName,
    Once,
    Place,
    PlanName,
    Strict,
    Threads,
)


class BodyTensor(TensorSpec):
    """A tensor whose shape is an expression over the descriptor; `shapes` lists others that it may have as well."""

    shape: Expression
    """A tuple of expressions over fields; for example `(batch_size, channels, width - 1)`, or `(channels,)`."""
    shapes: Annotated[tuple[Expression, ...], Field(max_length=8, strict=False)] = ()
    """Other shapes that it may have; axes that these lack in front have stride 0."""
    test: Ident | None = None
    """How its test values are drawn, where any will not do: `mask` (numbers and -inf), `slopes` (powers of two below
    one) or `offsets` (ascending, from 0 to `seq_len`)."""
    moved: bool = False
    """Outputs: whether every value is one of an input of the same type, or 0, whatever else the kernels compute."""

    @property
    def own_shape(self) -> str:
        return self.shape

    @property
    def shapes_written(self) -> tuple[str, ...]:
        return (self.shape, *self.shapes)


class WorkspaceSpec(Strict):
    """Scratch of `size` elements, an expression."""

    size: Expression
    """How many elements, an expression; for example `batch_size * channels`."""
    dtype: Literal["T", "acc", "f32", "i32", "i64"] = "acc"
    """What they are; `acc` is what elements are summed in."""


class KernelSpec(Strict):
    """One of the kernels that an op launches, in order."""

    name: Ident
    """The device function is `<op>_<name>`; part of the entry point's name."""
    grid: Annotated[tuple[Expression | Number, ...], Field(min_length=1, max_length=3, strict=False)]
    """Blocks along x, y and z, one to three expressions; 0 along one of them launches nothing; for example
    `["ceil_div(seq_len, block_t)", channels, batch_size]`."""
    shared: Expression | Number = 0
    """Bytes of dynamic shared memory, an expression; `DYN_SHARED_BYTES` in the kernel."""
    threads: NumberName | Threads | None = None
    """Threads of a block, an int or a number of the schedules; by default the schedule's `threads`."""
    when: Expression | None = None
    """What must hold for the launch to be worth it; for example `splits > 1`."""
    overlaps: bool = False
    """It waits itself for the kernel before it, and may be started while that one ends."""


class ScheduleSpec(Strict):
    """A row of the table of schedules: its numbers become constants of the kernel; `fits` is what it serves."""

    FOLLOW = ("arch", "dtypes")
    arch: Arch
    """The SKU's architecture, one of those under the op's `arch`."""
    dtypes: Annotated[tuple[Element, ...], Field(min_length=1, strict=False), Once]
    """The elements that it is for; every element of the op needs a schedule."""
    threads: Threads
    """Threads of a block, 32 to 1024, a multiple of 32."""
    numbers: Annotated[dict[NumberName, Number], Field(max_length=32)] = {}
    """Constants of the kernel: `Schedule::BLOCK_Q` for `block_q`; for example `{block_q: 64, blocks_per_sm: 2}`, of
    which `blocks_per_sm` bounds registers."""
    fits: Expression | None = None
    """Which problems it serves, an expression; for example `d_k <= 128`."""
    layout: Layout | None = None
    """The only layout it works on; no other schedule that names none then does."""
    math: Literal["acc", "T", "tf32x3"] = "acc"
    """What intermediate results are rounded to where tensor cores multiply them: the element type (`T`), the sum of two
    TF32 numbers (`tf32x3`, for f32 only), or nothing beyond the accumulator's type."""
    first: bool = False
    """Whether it comes before schedules that are made for the device's own architecture."""


class PinnedSpec(Strict):
    """A plan class that selects among the SKUs of one architecture only."""

    arch: Arch
    """The architecture whose schedules it selects among."""
    doc: Doc
    """First line of its documentation."""


class BodySpec(OpSpec):
    """An op whose kernels are written by hand in a header; everything around them is declared."""

    inputs: Annotated[dict[Ident, BodyTensor], Arguments]
    """Input -> what it is, in the order of the plan's arguments; for example `{x: {shape: "(batch_size, seq_len)", doc:
    what is read}}`."""
    outputs: Annotated[dict[Ident, BodyTensor], Arguments]
    """Output -> what it is, in the order of the plan's arguments, after the inputs; for example `{y: {shape:
    "(batch_size, seq_len)", doc: the result}}`."""
    body: dict[Arch, Annotated[str, Field(pattern=r"^([a-z0-9_]+/)?[a-z0-9_]+\.cuh$", max_length=64)]]
    """Architecture -> the header that its kernels are in, beside the spec or below `runtime/include/baracuda`; one
    without its own takes the least one's; for example `{sm_80: scan.cuh}`."""
    settings: Annotated[dict[Macro, Expression], Field(max_length=32)] = {}
    """MACRO -> expression over fields: constants of the kernel, `Variant::WIDTH`, of which one is compiled for each
    value in use; for example `{WIDTH: width}`."""
    terms: Annotated[dict[Ident, Expression], Field(max_length=64)] = {}
    """Name -> expression that those below have in common; one may use those above it."""
    layouts: Annotated[dict[Layout, dict[Ident, int]], Field(max_length=16)] = {}
    """Layout -> tensor -> axis: what a kernel may rely on, stride 1 along that axis in whole packs of 16 bytes; for
    example `{packed: {x: -1, y: -1}}`. `strided` is always the last and takes anything."""
    workspace: Annotated[dict[Ident, WorkspaceSpec], Arguments] = {}
    """Array -> its size: scratch, which nothing initialises; for example `{partials: {size: splits * channels}}`."""
    kernels: Annotated[list[KernelSpec], Field(min_length=1, max_length=32)]
    """The kernels that are launched, in order."""
    schedules: Annotated[list[ScheduleSpec], Field(min_length=1, max_length=64)]
    """Rows of the table of schedules, in order of preference."""
    tensor_maps: dict[Arch, Annotated[dict[Ident, Expression], Arguments]] = {}
    """Architecture -> tensor -> box of (rows, columns) for its copy engine, `q_map` in the arguments of the kernel; for
    example `{sm_90a: {q: "(block_q, DK)"}}`."""
    pinned: Annotated[dict[PlanName, PinnedSpec], Field(max_length=8)] = {}
    """Plan class, which ends in `Plan` -> the architecture among whose schedules alone it selects."""
    oracle: Annotated[str, Field(pattern=r"^[a-z0-9_]+\.[a-z0-9_]+$", max_length=130)]
    """`module.function` of a definition in a Python file beside the spec or in `checking/oracles/references`; for
    example `scans.scan`."""

    @property
    def plans(self) -> dict[str, Place]:
        return super().plans | {name: ("pinned", name) for name in self.pinned}

    @property
    def tensors(self) -> dict[str, BodyTensor]:
        return {**self.inputs, **self.outputs}

    @property
    def arguments(self) -> dict[str, BodyTensor]:
        return {name: t for name, t in self.tensors.items() if t.updates is None}
