"""An op as `baracuda.ops` makes a function of it, for the stub that editors and type checkers read."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from baracuda.ops.usual import USUAL

from .lower_op import type_lines
from .model import DescriptorField, Op, Tensor

_SEQUENCES = {"tuple[int, ...]": "Sequence[int]"}  # a call takes any


@dataclass(frozen=True, slots=True)
class Parameter:
    """`default` is Python text, or "" where a call must say."""

    name: str
    annotation: str
    default: str = ""


@dataclass(frozen=True, slots=True)
class Function:
    """What the template prints; an op without `results` returns one array, or what depends on the call."""

    name: str
    doc: str
    inputs: tuple[Parameter, ...]
    keywords: tuple[Parameter, ...]
    lines: tuple[str, ...]
    results: tuple[str, ...]

    @property
    def result(self) -> str:
        """The name of its tuple."""
        return f"_{self.name}"

    @property
    def returns(self) -> str:
        return self.result if self.results else "Any"


def function_of(op: Op) -> Function:
    """The function that `baracuda.ops` makes of the op's plan: the same names, in the same order."""
    inputs = [t for t in op.tensors if t.role != "out"]
    outputs = [t for t in op.tensors if t.role == "out"]
    shown = {extent.field for extent in op.extents} | {t.optional for t in inputs}
    fields = [f for f in op.fields if f.name not in shown]
    chosen = [Parameter(f"{t.name}_dtype", "DTypeLike | None", "None") for t in outputs if len(t.dtypes) > 1]
    given = [Parameter(t.name, "rt.Array", "None") for t in outputs]
    optional = any(t.optional for t in outputs)
    return Function(
        name=op.name,
        doc=op.doc,
        inputs=tuple(_inputs(inputs)),
        keywords=(*map(_field, fields), *given, *chosen, Parameter("stream", "rt.Stream", "None")),
        lines=tuple(_lines(op, inputs, outputs, fields)),
        results=() if optional or len(outputs) == 1 else tuple(t.name for t in outputs),
    )


def _inputs(tensors: list[Tensor]) -> Iterator[Parameter]:
    """Those behind one that may be left out have a default as well, for Python's sake."""
    left_out = False
    for tensor in tensors:
        left_out = left_out or bool(tensor.optional)
        yield Parameter(tensor.name, "rt.Array", "None" if left_out else "")


def _field(field: DescriptorField) -> Parameter:
    kind = _SEQUENCES.get(field.annotation, field.annotation)
    if field.name in USUAL or field.default.startswith("rt."):
        return Parameter(field.name, f"{kind} | None", "None")
    return Parameter(field.name, kind, field.default)


def _lines(op: Op, inputs: list[Tensor], outputs: list[Tensor], fields: list[DescriptorField]) -> Iterator[str]:
    for tensor in inputs:
        yield from tensor.told("may be left out")
    for field in fields:
        usual = "; when left out, what `baracuda.ops.usual` has" if field.name in USUAL else ""
        yield from _wrapped(" ".join(map(str.strip, field.lines)) + usual)
    for tensor in outputs:
        yield from tensor.told(f"there if {tensor.optional}")
    yield from [f"{t.name}_dtype: the type of {t.name}, where it is not given" for t in outputs if len(t.dtypes) > 1]
    yield "stream: a raw handle or a stream object; by default the current one of the arrays' library"
    yield ""
    yield from type_lines(op.tensors, op.shapes_told)
    names = ", ".join(t.name for t in outputs)
    several = f"a named tuple of {names}"
    only = f"{several}, or the only one there is" if any(t.optional for t in outputs) else several
    made = "Outputs that are not given are allocated by the first input's library, on its device."
    yield from _wrapped(f"{made} Returns {names if len(outputs) == 1 else only}.")
    yield "Raises what the plan raises: InvalidProblem, Unsupported and others."


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 100, subsequent_indent="    " if ": " in text else "")
