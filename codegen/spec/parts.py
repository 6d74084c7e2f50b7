"""The parts of a spec that all families share: fields, conditions, tensors, guarantees, tests, benchmarks."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from ..program.functions import Functions
from .types import (
    Arch,
    Arguments,
    Doc,
    Element,
    Expression,
    Float,
    Ident,
    Layout,
    Once,
    Rank,
    Spilled,
    Stored,
    StoredTypes,
    Strict,
)


class FieldSpec(Strict):
    """A field of the descriptor: what the problem is, known before any array is."""

    FOLLOW = ("type", "doc")
    type: Literal["shape", "int", "float", "bool", "kind"]
    """`shape` is a tuple of extents, `int` has 64 bits, `float` is a double, also beside 16-bit elements; `kind` is one
    of the op's `kinds`, whose field is there without being listed."""
    doc: Doc
    """What the field means, in one line; for example `added to the mean square`."""
    default: int | float | bool | None = None
    """What the caller need not say; for example `1.0e-6`. Without it the caller must give the field."""
    same_as: Ident | None = None
    """The field whose value this one takes when it is not given; for example `num_heads`."""
    finite: bool = True
    """Of a float: whether infinities and NaN are refused."""

    @property
    def is_number(self) -> bool:
        """Whether programs may read it."""
        return self.type not in ("shape", "kind")


class Requirement(Strict):
    """A condition on the descriptor's fields, and the error that its violation raises."""

    that: Expression
    """An expression over fields that must be true; for example `1 <= len(input_shape) <= 8`. It may use `len`, `min`,
    `max`, `abs`, `prod`, `isfinite`, `is_mask`, `is_suffix_mask`, `mask_axes`, `normalize_axis`, `ceil_div`,
    `round_up`, `bucket`."""
    raises: Literal["InvalidProblem", "Unsupported"] = "InvalidProblem"
    """`InvalidProblem`: the values contradict each other. `Unsupported`: they are well formed, but no kernel serves
    them."""


class Dim(Strict):
    """A group of axes, of which each family with dims says more."""

    if TYPE_CHECKING:  # families declare these, each with its own words for the author
        of: str
        axes: str | None


class BoundSpec(Strict):
    """|error| <= c1 * u(T) * |y| + c2 * (the running error bound of the program in the accumulator)."""

    c1: Annotated[float, Field(gt=0, le=16)] = 1.0
    """Factor of the rounding of the result, above 0 and at most 16."""
    c2: Annotated[float, Field(gt=0, le=16)] = 1.0
    """Factor of the running error of the program in the accumulator, above 0 and at most 16."""


Bounds = dict[Float, BoundSpec]


class TensorSpec(Strict):
    """An array argument; families add how its shape is given."""

    FOLLOW: ClassVar[tuple[str, ...]] = ("doc",)
    doc: Doc
    """What the array holds, in one line; for example `gain of each column`."""
    dtype: StoredTypes = ("T",)
    """What the caller's array may hold, one type or a list of which the first is the usual one: `T` is the element,
    `acc` what it is summed in (f64 for f64, else f32); for example `[T, acc]`."""
    layout: Literal["any", "contiguous", "inner"] = "any"
    """`any`: any strides, 0 and negative ones included. `inner`: likewise, but 1 along the last axis. `contiguous`: no
    gaps, in row-major order."""
    optional: Ident | Literal[False] = False
    """A field of type `bool`: the array is given exactly when it is true; for example `has_gamma`."""
    default: float | int | None = None
    """Inputs that are optional: what is read when the array is absent; for example `1`."""
    may_alias: Annotated[tuple[Ident, ...], Field(strict=False), Once] = ()
    """Outputs: inputs of the same shape and dtype whose memory it may take over, as the same view; for example
    `[x]`."""
    updates: Ident | None = None
    """Outputs: the input that the result is written back to. It has no argument of its own. Not in the map family."""
    bound: Bounds = {}
    """Outputs: element type -> factors of its error bound, where they are not those in `precision`; for example `{bf16:
    {c1: 1, c2: 2}}`."""

    @property
    def held(self) -> str:
        """What its argument holds: an "array", or a "list" of them."""
        return "array"

    @property
    def holds_elements(self) -> bool:
        """Whether it is there in every call, and of the element type."""
        return self.dtype == ("T",) and not self.optional

    @property
    def shapes_written(self) -> tuple[str, ...]:
        """The shapes that it may have, as a spec writes them: as formulas, or along which dims it lies."""
        return ()

    @property
    def own_shape(self) -> str | None:
        """The formula of its shape, where it has one that does not follow from dims."""
        return None

    @field_validator("dtype", mode="before", json_schema_input_type=Stored | StoredTypes)
    @classmethod
    def _one_is_a_list_of_one(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value


class ReadTensor(TensorSpec):
    """A tensor of a program, which may read it at computed places."""

    FOLLOW = ("doc", "dims")
    outside: bool | float | int | Ident | None = None
    """Inputs that the program reads at computed places, as in `x[n, i - pad]`: the value of a place outside of the
    array, a number, `inf`, `-inf`, `true`, `false` or a field; for example `0`."""

    @field_validator(
        "outside", mode="before", json_schema_input_type=bool | float | int | Literal["-inf"] | Ident | None
    )
    @classmethod
    def _infinity(cls, value: Any) -> Any:
        return {"inf": math.inf, "-inf": -math.inf}.get(value, value) if isinstance(value, str) else value

    if TYPE_CHECKING:  # families declare it, each with its own words for the author
        dims: tuple[str, ...]

    @property
    def shapes_written(self) -> tuple[str, ...]:
        return (f"[{', '.join(self.dims)}]",)

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """For each entry of `dims`, the dims that its axes are products of."""
        return tuple((dim,) for dim in self.dims)

    @property
    def over(self) -> frozenset[str]:
        """The dims along which the tensor varies."""
        return frozenset(dim for group in self.groups for dim in group)


class PrecisionSpec(Strict):
    """What the compiler may do to the arithmetic, and how far results may be from the oracle's."""

    contraction: bool = False
    """Whether the compiler may turn `a * b + c` into one fma."""
    subnormals: Literal["keep", "flush"] = "keep"
    """What becomes of subnormal f32 values on a GPU; the host device keeps them."""
    bound: Bounds = {}
    """Element type -> factors of the error bound of outputs, by default 1; for example `{bf16: {c1: 1, c2: 2}}`."""


class GradientSpec(Strict):
    """Which forward op this one differentiates, and what its tensors are called there."""

    of: Ident
    """A forward op of the same folder; for example `row_scale`."""
    cotangents: Annotated[dict[Ident, Ident], Arguments]
    """Input here -> output there: the gradients that come in; for example `{dy: y}`."""
    wrt: Annotated[dict[Ident, Ident], Arguments]
    """Output here -> input there: what each output differentiates. Lists every output; for example `{dx: x, dgamma:
    gamma}`."""
    saved: Annotated[tuple[Ident, ...], Field(strict=False), Once] = ()
    """Inputs here that are outputs or inputs of the forward, under the same name; for example `[rms]`."""


class ArchSpec(Strict):
    """What the SKUs of an architecture need from it, and how much of it they may use."""

    needs: Annotated[tuple[Literal["tma", "wgmma", "cluster", "turns"], ...], Field(strict=False), Once] = ()
    """What kernels written by hand are made with, for readers; programs need none. With `turns` the copy engine may add
    floats to memory, since blocks do it one after another."""
    shared_bytes: Annotated[int, Field(ge=0)] | None = None
    """The most static shared memory that a block may have; by default 48 KiB."""
    registers: Annotated[int, Field(ge=16, le=255)] | None = None
    """The most that a thread may have; by default 255."""
    stack_bytes: Annotated[int, Field(ge=0, le=4096)] = 0
    """Local memory of a thread beside what it spills: `sin` and `cos` of doubles take 40."""
    spill_bytes: dict[Layout, Spilled | dict[Arch, Spilled]] = {}
    """Layout -> bytes of spill loads and stores that a thread may have there, on any device, or from each of some
    architectures on; for example `{strided: 24, dense: {sm_80: 16, sm_100: 0}}`. Layouts are `packed`, `dense`,
    `strided`, `gathered` (row), `packed`, `flat`, `strided` (map) or the spec's own (body)."""


class RangeSpec(Strict):
    """Whole numbers from `low` to `high`, small ones more often; of a shape, its extents, for a rank in `rank`."""

    low: int
    """The least number or extent."""
    high: int
    """The greatest number or extent."""
    rank: Annotated[tuple[Rank, Rank], Field(strict=False)] | None = None
    """Of a shape: the least and the most axes; for example `[1, 4]`."""


Range = Annotated[tuple[float, float], Field(strict=False)]
Drawn = RangeSpec | Annotated[list[Any], Field(min_length=1, max_length=100)]
Case = Annotated[dict[Ident, Any], Arguments]


class TestsSpec(Strict):
    """Problems to test on, and, for inputs a formula is not defined everywhere for, the range to draw from.

    `draw` says what random problems are made of: for each field that varies, a range or the values to choose among.
    """

    __test__ = False

    usual: bool = True
    """Row and map families: whether the usual problems, which follow from dims and fields, are tested, too."""
    defaults: Case = {}
    """Field -> value, for fields that a case leaves out; for example `{eps: 1.0e-6, has_gamma: true}`. By default
    bools are true."""
    batch: Ident | None = None
    """Map and body families: the field that counts what is independent, an int or the first extent of a shape. Half of
    it gives the same bits where an output promises `batch_invariant`."""
    definition: str | None = None
    """A function from elsewhere, as NumPy or SciPy, that the reference is compared with; for example
    `scipy.signal.lfilter`. `checking/oracles/definitions.py` has an adapter for it."""
    finite: Annotated[tuple[Element, ...], Field(strict=False), Once] = ()
    """Element types for which no infinities are put into inputs; for example `[f16]`."""
    draw: Annotated[dict[Ident, Drawn], Arguments] = {}
    """Map and body families: field -> values to choose among, or a range; for example `{width: [2, 3, 4], seq_len:
    {low: 0, high: 300}}`."""
    ranges: Annotated[dict[Ident, Range], Arguments] = {}
    """Input -> `[low, high]`, which its values are drawn from, where a formula is not defined everywhere."""
    cases: Annotated[list[Case], Field(max_length=300)] = []
    """Particular problems, each field -> value; for example `- {input_shape: [7, 257], axis: 1}`. A `dtype` beside the
    fields limits one to an element type."""


class BenchSpec(Strict):
    """Problems worth measuring. A case may also say its `dtype`, and the `arch` whose kernels it is about.

    `dtypes` are those of cases that name none, by default bf16 where there is such a kernel; `flops` counts the
    arithmetic of a problem, for ops that memory does not bound.
    """

    cases: Annotated[list[Case], Field(max_length=300)]
    """Problems, as those of `tests`; an `arch` beside the fields takes kernels of that architecture only."""
    dtypes: Annotated[tuple[Element, ...], Field(strict=False), Once] = ()
    """Element types of cases that name none; by default bf16, or the first of the op's where it has none."""
    ranges: Annotated[dict[Ident, Range], Arguments] = {}
    """Input -> `[low, high]`, which its values are drawn from; by default those of `tests`."""
    ascending: Annotated[tuple[Ident, ...], Field(max_length=8, strict=False)] = ()
    """Inputs of one axis whose values are in ascending order, the last at the end of its range."""
    flops: Expression | None = None
    """An expression over the fields for the arithmetic of a problem, where memory is not what bounds it; for example `2
    * batch_size * num_heads * query_len * key_len * (d_k + d_v)`."""


@dataclass(frozen=True)
class Context:
    """What a spec is validated in."""

    functions: Functions = field(default_factory=dict)
    folder: Path | None = None
