"""The keys of a spec of the row family."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ...spec.parts import Dim, ReadTensor
from ...spec.spec import ProgramSpec
from ...spec.types import Arguments, Expression, Ident, Text


class DimSpec(Dim):
    """A group of axes of the field `of`: those that the expression `axes` lists, or the `rest`."""

    of: Ident
    """A field of type `shape`; for example `input_shape`."""
    axes: Expression
    """An expression for a tuple of axes, for example `(axis,)`; or `rest`, the axes that the other dim leaves."""


class RowTensor(ReadTensor):
    """A tensor with a value for each element, each row or each column."""

    dims: Annotated[tuple[Ident, ...], Field(min_length=1, max_length=16, strict=False)]
    """What it has a value for: both dims, the rows or the columns; for example `[rows, cols]`."""


class RowSpec(ProgramSpec):
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
    def rows(self) -> str:
        """The dim of rows."""
        return next(name for name, dim in self.dims.items() if dim.axes == "rest")

    @property
    def batch_extent(self) -> str | None:
        return "rows"
