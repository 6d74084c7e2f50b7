"""The signature of an op's function in `baracuda.ops`, for the stub that editors and type checkers read."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass

from baracuda.ops.usual import usual_of

from ..lower.op import DescriptorField, Op, Tensor
from ..text import Code, Name, Text, names, packed, wrapped
from .declared import annotation, default
from .docs import WIDTH

_SEQUENCES = {Code("tuple[int, ...]"): Code("Sequence[int]")}  # a call takes any


_ARRAY, _NONE, _REQUIRED = Code("rt.Array"), Code("None"), Code("")


@dataclass(frozen=True, slots=True)
class Parameter:
    """`default` is empty for required ones."""

    name: Name
    annotation: Code
    default: Code = _REQUIRED

    @property
    def code(self) -> str:
        return f"{self.name}: {self.annotation}{f' = {self.default}' if self.default else ''}"


_STREAM = Parameter(Name("stream"), Code("rt.Stream"), _NONE)


@dataclass(frozen=True, slots=True)
class Function:
    """What the template prints; without `results`, the op returns one array, or what depends on the call."""

    name: Name
    inputs: tuple[Parameter, ...]
    keywords: tuple[Parameter, ...]
    lines: tuple[Text, ...]
    results: tuple[Name, ...]

    @property
    def head(self) -> Code:
        """Its first line, or lines."""
        given, keywords = ([p.code for p in of] for of in (self.inputs, self.keywords))
        return packed(f"def {self.name}(", [*given, "*", *keywords], f") -> {self.returns}:")

    @property
    def result(self) -> Name:
        """The name of its result tuple."""
        return Name(f"_{self.name}")

    @property
    def result_type(self) -> Code:
        """Its declaration."""
        fields = [f'("{name}", Any)' for name in self.results]
        return packed(f'{self.result} = NamedTuple("{self.result}", [', fields, "])")

    @property
    def returns(self) -> Name:
        return self.result if self.results else Name("Any")


def function_of(op: Op) -> Function:
    """The function of the op's plan: the same names in the same order."""
    inputs = [t for t in op.tensors if t.role != "out"]
    outputs = [t for t in op.tensors if t.role == "out"]
    required = {t.name for t in inputs if not t.optional}
    sometimes = {e.field for e in op.extents} - {e.field for e in op.extents if e.tensor in required}
    flags = {t.optional for t in inputs}
    fields = [f for f in op.fields if f.name not in flags and not _is_shown(f, op, sometimes)]
    chosen = [Parameter(Name(f"{t.name}_dtype"), Code("DTypeLike | None"), _NONE) for t in outputs if t.chosen]
    output_arguments = [Parameter(t.name, _ARRAY, _NONE) for t in outputs]
    optional = any(t.optional for t in outputs)
    usual = usual_of({str(f.name): str(f.kind) for f in op.fields})
    return Function(
        name=op.name,
        inputs=tuple(_inputs(inputs)),
        keywords=(
            *(_field(f, (f.name in usual and f.default is None) or f.name in sometimes) for f in fields),
            *_element(op, inputs),
            *output_arguments,
            *chosen,
            _STREAM,
        ),
        lines=wrapped(f"{op.doc} See `{op.plan}.run`, `{op.descriptor}`.", WIDTH - 2),
        results=() if optional or len(outputs) == 1 else names(t.name for t in outputs),
    )


def _inputs(tensors: list[Tensor]) -> Iterator[Parameter]:
    """Inputs after an optional one get a default too, as Python requires."""
    left_out = False
    for tensor in tensors:
        left_out = left_out or bool(tensor.optional)
        yield Parameter(tensor.name, _ARRAY, _NONE if left_out else _REQUIRED)


def _is_shown(field: DescriptorField, op: Op, sometimes: Set[str]) -> bool:
    """Whether an input shows the field, or the field has a default where only optional inputs do."""
    has_default = field.default is not None or bool(field.same_as)
    return any(e.field == field.name for e in op.extents) and (has_default or field.name not in sometimes)


def _element(op: Op, inputs: list[Tensor]) -> Iterator[Parameter]:
    """The element type, where no required input shows it."""
    alone = [t for t in inputs if t.dtypes == ("T",)]
    if all(t.optional for t in alone):
        is_known = alone or len(op.elements) == 1
        kind = Code("DTypeLike | None" if is_known else "DTypeLike")
        yield Parameter(Name("element"), kind, _NONE if is_known else _REQUIRED)


def _field(field: DescriptorField, usual: bool) -> Parameter:
    kind = _SEQUENCES.get(annotation(field), annotation(field))
    if usual or field.same_as:
        return Parameter(field.name, Code(f"{kind} | None"), _NONE)
    return Parameter(field.name, kind, default(field))
