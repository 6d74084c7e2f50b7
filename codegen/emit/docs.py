"""What documentation says of an op's arguments, fields and shapes: the generator's English."""

from __future__ import annotations

from collections.abc import Iterator

from ..lower.op import DescriptorField, Op, Tensor
from ..spec.family import families
from ..text import Text, wrapped

WIDTH = 112
STREAM = Text("stream: a raw handle or a stream object; by default the current one of the arrays' library")
_STRIDES = {"any": "any strides", "contiguous": "contiguous strides", "inner": "any strides, the last 1"}


def tensor_lines(tensor: Tensor, absence: str) -> tuple[Text, ...]:
    """A tensor's meaning, shape, types and strides; `absence` is about optional ones."""
    layout = f"{tensor.shape} of {' or '.join(tensor.dtypes)}, {_STRIDES[tensor.layout]}"
    if tensor.over == "list":
        layout = f"a list of arrays of {' or '.join(tensor.dtypes)} without gaps, {tensor.shape} in all"
    alias = f"; may be the memory of {' or '.join(tensor.may_alias)}" if tensor.may_alias else ""
    optional = f"; {absence}" if tensor.optional else ""
    return wrapped(f"{tensor.name} ({tensor.role}): {tensor.doc}; {layout}{alias}{optional}", WIDTH, "    ")


def formula_lines(op: Op) -> Iterator[Text]:
    """The formula, long lines in several."""
    for line in op.formula:
        yield from (line,) if len(line) <= WIDTH else wrapped(line, WIDTH, "    ")


def field_lines(field: DescriptorField) -> tuple[Text, ...]:
    return wrapped(f"{field.name}: {field.doc}", WIDTH, "    ")


def element_lines(op: Op) -> tuple[Text, ...]:
    return wrapped(f"element: type of the elements, one of {', '.join(op.elements)}", WIDTH, "    ")


def type_lines(op: Op) -> tuple[Text, ...]:
    """What names in shapes and types mean."""
    wide = any("acc" in t.dtypes for t in op.tensors)
    types = f"T is the descriptor's element{', acc f64 where that is f64, else f32' if wide else ''}"
    return wrapped(f"Here {'; '.join(filter(None, (families()[op.family].shapes_in_words(op), types)))}.", WIDTH)


def run_lines(op: Op) -> Iterator[Text]:
    """The arguments of a plan's `run`."""
    for tensor in op.tensors:
        yield from tensor_lines(tensor, f"given exactly when {tensor.optional}")
    yield Text("workspace: any contiguous array of at least `workspace_bytes` bytes, on the device of the others")
    yield STREAM
    yield Text("")
    yield from type_lines(op)
    yield Text("Raises InvalidProblem, Unsupported, BufferTooSmall, MisalignedOperand or WorkspaceTooSmall.")


FILTERS = {function.__name__: function for function in (formula_lines, field_lines, element_lines, run_lines)}
