"""The keys of a spec of the map family."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import Field

from ...spec.once import once
from ...spec.parts import Bounds, Case, Dim, Range, ReadTensor
from ...spec.spec import ProgramSpec
from ...spec.types import Arguments, Expression, Ident, Place, Strict, Text


class KindSpec(Strict):
    """One of the functions of a table of kinds, and what its tests need that the others' do not."""

    FOLLOW = ("program",)
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


class AxesSpec(Dim):
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
    def groups(self) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(part.strip() for part in entry.split("*")) for entry in self.dims)


class MapSpec(ProgramSpec):
    """An op on every cell of an index space; outputs are cells' values, or made of reductions over some of the dims."""

    FOLLOW = (*ProgramSpec.FOLLOW, "dims")
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
    chunks: Annotated[dict[Ident, Expression], Field(max_length=1)] = {}
    """Of several passes: a dim, and how much of it passes take at once, which bounds what they hand over; for example
    `{token: chunk}`."""
    kinds: Annotated[dict[Ident, KindSpec], Field(max_length=200)] = {}
    """In place of a program: kind -> program, of which the plan's field `kind` chooses one; for example `{relu:
    relu(x), sine: sin(x)}`. A list names functions of all inputs: `[relu, gelu]`."""
    reference: Text | None = None
    """The oracle of a forward op: the same in the same language, written from the definition, evaluated in float64; for
    example `y = x`."""

    @property
    def bounds(self) -> dict[Place, Bounds]:
        return super().bounds | {("kinds", name, "bound"): kind.bound for name, kind in self.kinds.items()}

    @property
    def by_kind(self) -> dict[str, MapSpec]:
        return _by_kind(self)

    @property
    def other_expressions(self) -> Iterable[str]:
        return self.chunks.values()

    def _of(self, kind: KindSpec) -> MapSpec:
        tests = {"ranges": {**self.tests.ranges, **kind.ranges}, "defaults": {**self.tests.defaults, **kind.defaults}}
        bound = self.precision.model_copy(update={"bound": {**self.precision.bound, **kind.bound}})
        own = {"program": kind.program, "kinds": {}, "tests": self.tests.model_copy(update=tests), "precision": bound}
        if self.gradient is None:
            own["reference"] = kind.reference or kind.program
        return self.model_copy(update=own)

    def of_kind(self, name: str | None) -> MapSpec:
        return self.by_kind[name] if name in self.kinds else self


@once
def _by_kind(spec: MapSpec) -> dict[str, MapSpec]:
    return {name: spec._of(kind) for name, kind in spec.kinds.items()} or {"": spec}
