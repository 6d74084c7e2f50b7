"""What a spec file may say. Every key is declared here; anything else is an error.

The text below a key is its description in the JSON Schema, which editors show; docs/spec-language.md says more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, field_validator

from ..program.functions import Functions

Ident = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Text = Annotated[str, Field(min_length=1, max_length=4000, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f]*$")]
# What expressions are written with: names, numbers, operators and brackets, on one line, without comments.
Expression = Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[A-Za-z0-9_ .,()\[\]+*/%<>=!-]*$")]
Doc = Annotated[str, Field(min_length=1, max_length=400, pattern=r"^[^\x00-\x1f\x7f\\]*$")]
Float = Literal["f32", "f16", "bf16", "f64"]
Element = Literal[
    "f32", "f16", "bf16", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool",
    "f8e4m3", "f8e5m2", "c64", "c128",
]  # fmt: skip
Stored = Literal[
    "T", "acc", "f32", "f16", "bf16", "f64", "f8e4m3", "f8e5m2", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "bool"
]
Rung = Literal["deterministic", "bit_stable_on_same_hardware", "batch_invariant", "bit_stable_across_arch"]
Layout = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
PlanName = Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]{0,59}Plan$")]
NumberName = Annotated[str, Field(pattern=r"^[a-z][a-z_]{0,31}$")]  # between the values in a schedule's name
Number = Annotated[int, Field(ge=0, lt=2**31)]
Threads = Annotated[int, Field(ge=32, le=1024, multiple_of=32)]
Arguments = Field(max_length=64)  # tensors and fields, of each kind


def sort_of(dtype: str) -> str:
    """Whether numbers of a type are floats, ints or bools to programs."""
    return "bool" if dtype == "bool" else "int" if dtype[0] in "iu" else "float"


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise ValueError(f"lists one twice: {', '.join(names)}")
    return names


Once = AfterValidator(_distinct)
_StoredTypes = Annotated[tuple[Stored, ...], Field(min_length=1, strict=False), Once]
Arch = Literal["sm_80", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120"]
Rank = Annotated[int, Field(ge=0, le=16)]
Spilled = Annotated[int, Field(ge=0, le=4096)]


Family = Literal["row", "map", "list", "body"]
Macro = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,31}$")]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class FieldSpec(Strict):
    """A field of the descriptor: what the problem is, known before any array is."""

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


class DimSpec(Strict):
    """A group of axes of the field `of`: those that the expression `axes` lists, or the `rest`."""

    of: Ident
    """A field of type `shape`; for example `input_shape`."""
    axes: Expression
    """An expression for a tuple of axes, for example `(axis,)`; or `rest`, the axes that the other dim leaves."""


class BoundSpec(Strict):
    """|error| <= c1 * u(T) * |y| + c2 * (the running error bound of the program in the accumulator)."""

    c1: Annotated[float, Field(gt=0, le=16)] = 1.0
    """Factor of the rounding of the result, above 0 and at most 16."""
    c2: Annotated[float, Field(gt=0, le=16)] = 1.0
    """Factor of the running error of the program in the accumulator, above 0 and at most 16."""


Bounds = dict[Float, BoundSpec]


class TensorSpec(Strict):
    """An array argument; families add how its shape is given."""

    doc: Doc
    """What the array holds, in one line; for example `gain of each column`."""
    dtype: _StoredTypes = ("T",)
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

    @field_validator("dtype", mode="before", json_schema_input_type=Stored | _StoredTypes)
    @classmethod
    def _one_is_a_list_of_one(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value


class ReadTensor(TensorSpec):
    """A tensor that a program may read at computed places."""

    outside: float | int | Ident | None = None
    """Inputs that the program reads at computed places, as in `x[n, i - pad]`: the value of a place outside of the
    array, a number or a field; for example `0`."""


class RowTensor(ReadTensor):
    """A tensor with a value for each element, each row or each column."""

    dims: Annotated[tuple[Ident, ...], Field(min_length=1, max_length=16, strict=False)]
    """What it has a value for: both dims, the rows or the columns; for example `[rows, cols]`."""


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
    flops: Expression | None = None
    """An expression over the fields for the arithmetic of a problem, where memory is not what bounds it; for example `2
    * batch_size * num_heads * query_len * key_len * (d_k + d_v)`."""


@dataclass(frozen=True)
class Context:
    """What a spec is validated in."""

    functions: Functions = field(default_factory=dict)
    folder: Path | None = None


class OpSpec(Strict):
    """One operation in one direction: what the specs of all families say."""

    op: Ident
    """The operation; names its files, its kernels and its tests. Unique in the folder; for example `row_scale`."""
    category: Ident
    """The subfolder and subpackage of the generated files; for example `normalization`."""
    direction: Literal["forward", "backward"]
    """A forward and its backward are two specs."""
    plan: PlanName
    """The public class, which ends in `Plan`; its descriptor ends in `Descriptor` instead. Unique in the folder; for
    example `RowScalePlan`."""
    family: Family
    """How the mathematics is given. `row`: a program that reduces along rows and last of all down columns. `map`: a
    program on each cell of an index space, with reductions over any dims. `list`: a program on each element of the
    arrays of some lists. `body`: kernels written by hand in a header."""
    doc: Doc
    """First line of the plan's documentation; for example `Root-mean-square normalisation over a suffix of the
    axes.`"""
    formula: Text
    """The mathematics, for people; for example `y = x / sqrt(mean(x^2) + eps)`."""
    source: Doc
    """The paper or definition that it comes from."""

    descriptor: Annotated[dict[Ident, FieldSpec], Arguments]
    """Field -> what it is: what is known of a problem before any array is; for example `{eps: {type: float, doc: added
    to the mean square}}`. A field `element`, one of `dtypes`, is added."""
    require: Annotated[list[Requirement], Field(max_length=64)] = []
    """Conditions that `select` checks in this order; the first that is violated raises; for example `- {that:
    isfinite(eps) and eps >= 0, raises: InvalidProblem}`."""
    dtypes: Annotated[tuple[Element, ...], Field(min_length=1, strict=False), Once] = ("f32", "f16", "bf16", "f64")
    """What the element type `T` may be, by default `f32`, `f16`, `bf16` and `f64`; a map op that only moves elements
    may list the others."""
    inputs: Mapping[Ident, TensorSpec]
    outputs: Mapping[Ident, TensorSpec]
    check_order: Annotated[tuple[Ident, ...], Field(strict=False), Once] = ()
    """All arguments, in the order that `run` looks at them; by default that above."""

    gradient: GradientSpec | None = None
    """Backward ops: whose derivative this is, which is the oracle."""
    backward: dict[str, Any] | None = None
    """Forward ops: the gradient op, `<op>_backward`. What it does not say follows from the forward, its program, too,
    where it has neither that nor kernels; for example `{program: dx = y * (dy - sum(dy * y, cols))}`, or `{}`."""
    precision: PrecisionSpec = PrecisionSpec()
    """How exact it is; for example `{contraction: true}`."""
    reproducibility: Annotated[dict[Ident, Annotated[tuple[Rung, ...], Field(strict=False), Once]], Arguments] = {}
    """Output -> what is promised of its bits, `[]` for nothing, by default as much as its program can keep; for example
    `{y: [deterministic, batch_invariant]}`."""
    arch: Annotated[dict[Arch, ArchSpec], Field(min_length=1)] = {"sm_80": ArchSpec()}
    """Architecture -> what its kernels need and may use, `{}` at least; they run there and on anything later. Row and
    map specs name one; for example `{sm_80: {}}`."""
    tests: TestsSpec = TestsSpec()
    """Problems to test on."""
    bench: BenchSpec = BenchSpec(cases=[])
    """Problems worth measuring."""

    _context: Context = PrivateAttr(default_factory=lambda: Context())
    _by_kind: dict[str, Any] = PrivateAttr(default_factory=dict)

    def model_post_init(self, context: Context | None) -> None:
        self._context = context or Context()

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        copy = super().model_copy(update=update, deep=deep)
        copy._by_kind = {}  # which was of other values
        return copy

    @property
    def by_kind(self) -> Mapping[str, OpSpec]:
        """The spec of each kind, with a program of its own; of an op without kinds itself, under ""."""
        return {"": self}

    def of_kind(self, name: str | None) -> OpSpec:
        """The spec with the program of one of its kinds; itself if it has none."""
        return self

    @property
    def functions(self) -> Functions:
        """What its programs may call besides the language's own."""
        return self._context.functions

    @property
    def folder(self) -> Path | None:
        """Where the headers and oracles of a project are: the folder of the spec's file."""
        return self._context.folder

    def sort_of(self, tensor: TensorSpec) -> str:
        """Whether programs see the tensor's elements as "float", "int" or "bool"."""
        sorts = {sort_of(dtype) for dtype in (self.dtypes if tensor.dtype[0] == "T" else tensor.dtype)}
        return sorts.pop() if len(sorts) == 1 else "float"

    def bound_of(self, output: str, dtype: str) -> BoundSpec:
        """The factors of an output's error bound."""
        declared = {**self.precision.bound, **self.outputs[output].bound}
        return next((bound for name, bound in declared.items() if name == dtype), BoundSpec())

    @property
    def tensors(self) -> Mapping[str, TensorSpec]:
        return {**self.inputs, **self.outputs}

    @property
    def arguments(self) -> Mapping[str, TensorSpec]:
        """Tensors the caller passes: an output that updates an input has no buffer of its own."""
        return {name: t for name, t in self.tensors.items() if t.updates is None}


class RowSpec(OpSpec):
    """An op on rows of columns: its program reduces along the rows, and last of all down the columns."""

    dims: Annotated[dict[Ident, DimSpec], Field(max_length=16)]
    """Dim -> its axes: two dims, rows and columns, share out the axes of one shape; for example `{rows: {of:
    input_shape, axes: rest}, cols: {of: input_shape, axes: "(axis,)"}}`."""
    inputs: Annotated[dict[Ident, RowTensor], Arguments]
    """Input -> what it is, in the order of the plan's arguments; for example `{x: {dims: [rows, cols], doc: what is
    read}}`."""
    outputs: Annotated[dict[Ident, RowTensor], Arguments]
    """Output -> what it is, in the order of the plan's arguments, after the inputs; for example `{y: {dims: [rows,
    cols], doc: the result}}`."""
    program: Text
    """Lines `name = expression`, one for each output, in the order of operations that the kernel keeps; for example `y
    = x - mean(x, cols)`."""
    reference: Text | None = None
    """The oracle of a forward op: the same in the same language, written from the definition, evaluated in float64; for
    example `y = x - sum(x, cols) / size(cols)`."""

    @property
    def by_kind(self) -> dict[str, RowSpec]:
        return {"": self}

    @property
    def tensors(self) -> dict[str, RowTensor]:
        return {**self.inputs, **self.outputs}

    @property
    def arguments(self) -> dict[str, RowTensor]:
        return {name: t for name, t in self.tensors.items() if t.updates is None}


class KindSpec(Strict):
    """One of the functions of a table of kinds, and what its tests need that the others' do not."""

    program: Text
    """Lines as in `program`, or the value of the op's only output; for example `gelu(x)`."""
    reference: Text | None = None
    """The oracle, in the same form; by default the program, evaluated in float64."""
    ranges: Annotated[dict[Ident, Range], Arguments] = {}
    """Input -> `[low, high]`, as in `tests.ranges`."""
    defaults: Case = {}
    """Field -> value, as in `tests.defaults`."""
    bound: Bounds = {}
    """Element type -> factors of the error bound, as in `precision`."""


class AxesSpec(Strict):
    """The axes of a shape, or the one axis that an int gives the extent of."""

    of: Expression
    """A field or an expression over fields: an `int` makes one axis of that extent, a field of type `shape` one axis
    for each of its extents; for example `num_heads`, or `(height - kernel) // stride + 1`."""
    axes: Expression | None = None
    """Which axes of a shape, as an expression for a tuple, or `rest`: dims that follow one another share them out; for
    example `mask_axes(axes_mask, len(input_shape))`."""


class MapTensor(ReadTensor):
    """A tensor over some of the dims, in the order of its axes; `copy * cell` multiplies two shapes axis by axis."""

    dims: Annotated[tuple[Expression, ...], Field(max_length=16, strict=False)]
    """What its axes run along, in order: dims, or products of dims of shapes, of which the last varies fastest; for
    example `[batch, head]` or `[copy * cell]`. `[]` is one number."""

    @property
    def held(self) -> str:
        """What its argument holds: an "array", or a "list" of them."""
        return "array"

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """For each entry of `dims`, the dims that its axes are products of."""
        return tuple(tuple(part.strip() for part in entry.split("*")) for entry in self.dims)

    @property
    def over(self) -> frozenset[str]:
        """The dims along which the tensor varies."""
        return frozenset(dim for group in self.groups for dim in group)


class MapSpec(OpSpec):
    """An op on every cell of an index space; outputs are cells' values, or made of reductions over some of the dims."""

    dims: Annotated[dict[Ident, AxesSpec], Field(max_length=16)]
    """Dim -> the field that gives its extents: the axes of the index space; for example `{copy: {of: repeats}, cell:
    {of: input_shape}}`."""
    inputs: Annotated[Mapping[Ident, MapTensor], Arguments]
    """Input -> what it is, in the order of the plan's arguments; for example `{x: {dims: [copy * cell], doc: what is
    read}}`."""
    outputs: Annotated[Mapping[Ident, MapTensor], Arguments]
    """Output -> what it is, in the order of the plan's arguments, after the inputs; for example `{y: {dims: [copy *
    cell], doc: the result}}`."""
    program: Text = ""
    """Lines `name = expression`, one for each output, in the order of operations that the kernel keeps; for example `dx
    = sum(dy, copy)`."""
    kinds: Annotated[dict[Ident, KindSpec], Field(max_length=200)] = {}
    """In place of a program: kind -> program, of which the plan's field `kind` chooses one; for example `{relu:
    relu(x), sine: sin(x)}`. A list names functions of all inputs: `[relu, gelu]`."""
    reference: Text | None = None
    """The oracle of a forward op: the same in the same language, written from the definition, evaluated in float64; for
    example `y = x`."""

    @property
    def tensors(self) -> Mapping[str, MapTensor]:
        return {**self.inputs, **self.outputs}

    @property
    def arguments(self) -> Mapping[str, MapTensor]:
        return {name: t for name, t in self.tensors.items() if t.updates is None}

    @property
    def by_kind(self) -> dict[str, MapSpec]:
        if self.kinds and not self._by_kind:
            self._by_kind.update({name: self._of(kind) for name, kind in self.kinds.items()})
        return self._by_kind or {"": self}

    def _of(self, kind: KindSpec) -> MapSpec:
        tests = {"ranges": {**self.tests.ranges, **kind.ranges}, "defaults": {**self.tests.defaults, **kind.defaults}}
        bound = self.precision.model_copy(update={"bound": {**self.precision.bound, **kind.bound}})
        own = {"program": kind.program, "kinds": {}, "tests": self.tests.model_copy(update=tests), "precision": bound}
        if self.gradient is None:
            own["reference"] = kind.reference or kind.program
        return self.model_copy(update=own)

    def of_kind(self, name: str | None) -> MapSpec:
        return self.by_kind[name] if name in self.kinds else self


class ListTensor(MapTensor):
    """A list of arrays, or a single number in memory."""

    dims: Annotated[tuple[Expression, ...], Field(max_length=1, strict=False)]
    """The dim, for a list of arrays; `[]` for an array of no axes, whose number all elements read."""
    layout: Literal["contiguous"] = "contiguous"
    """The arrays of a list have no gaps."""

    @property
    def held(self) -> str:
        """What its argument holds: a "list" of arrays, or an "array" of no axes."""
        return "list" if self.dims else "array"


class ListSpec(MapSpec):
    """An op on every element of each array of some lists, which run as one launch."""

    inputs: Annotated[dict[Ident, ListTensor], Arguments]
    """Input -> what it is, in the order of the plan's arguments; for example `{lr: {dims: [], dtype: f32, doc: learning
    rate}}`."""
    outputs: Annotated[dict[Ident, ListTensor], Arguments]
    """Output -> what it is, in the order of the plan's arguments, after the inputs; for example `{p_new: {updates: p,
    doc: the parameters}}`."""

    @property
    def tensors(self) -> dict[str, ListTensor]:
        return {**self.inputs, **self.outputs}

    @property
    def arguments(self) -> dict[str, ListTensor]:
        return {name: t for name, t in self.tensors.items() if t.updates is None}


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
    def tensors(self) -> dict[str, BodyTensor]:
        return {**self.inputs, **self.outputs}

    @property
    def arguments(self) -> dict[str, BodyTensor]:
        return {name: t for name, t in self.tensors.items() if t.updates is None}


FAMILY_SPECS: dict[str, type[OpSpec]] = {"row": RowSpec, "map": MapSpec, "list": ListSpec, "body": BodySpec}


def spec_of(family: object) -> type[OpSpec]:
    """What a file of that family may say; of the first one when the family is unknown."""
    return FAMILY_SPECS.get(family, RowSpec) if isinstance(family, str) else RowSpec


def arch_number(arch: str) -> int:
    """90 for sm_90 and sm_90a."""
    return int(arch[3:].rstrip("a"))
