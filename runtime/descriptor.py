"""Descriptors: what a problem is, as plain hashable data, before any array is seen."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from .element import ElementKind
from .errors import InvalidProblem, Unsupported

_WORD = 1 << 63  # ints travel to kernels in signed words of 64 bits


def as_shape(name: str, value: Any) -> tuple[int, ...]:
    """Extents as a tuple of ints of 64 bits; raises InvalidProblem for anything else."""
    try:
        shape = tuple(operator.index(n) for n in value)
    except TypeError:
        raise InvalidProblem(f"{name!r} must be a sequence of ints, got {_shown(value)}") from None
    if not all(-_WORD <= n < _WORD for n in shape):
        raise InvalidProblem(f"{name!r} must be a sequence of ints of 64 bits, got {_shown(value)}")
    return shape


def as_int(name: str, value: Any) -> int:
    """An int of 64 bits; raises InvalidProblem for anything else."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidProblem(f"{name!r} must be an int, got {_shown(value)}") from None
    if not -_WORD <= number < _WORD:
        raise InvalidProblem(f"{name!r} must be an int of 64 bits, got {_shown(value)}")
    return number


def as_float(name: str, value: Any) -> float:
    """A float; raises InvalidProblem for what does not convert to one, text included."""
    try:
        return float(value.__float__())  # which text has not, though `float` reads it
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise InvalidProblem(f"{name!r} must be a float, got {_shown(value)}") from None


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:  # Python prints no int of more than some thousand digits
        return f"a {type(value).__name__} with too many digits to print"


def as_bool(name: str, value: Any) -> bool:
    """A bool; raises InvalidProblem for anything else, numbers included."""
    if value is True or value is False:
        return bool(value)
    raise InvalidProblem(f"{name!r} must be True or False, got {value!r}")


Convert = Callable[[str, Any], Any]  # a field's name and value to its canonical value


@dataclass(frozen=True, slots=True)
class _SameAs:
    field: str


def same_as(field: str) -> Any:
    """Default of a field that takes the value of another one."""
    return _SameAs(field)


class Descriptor:
    """Root of the generated descriptors: frozen dataclasses whose fields are put in their canonical types."""

    __slots__ = ()
    element: ElementKind | str
    _plan: ClassVar[str]
    _elements: ClassVar[tuple[ElementKind, ...]]
    _types: ClassVar[dict[str, Convert]]

    def __post_init__(self) -> None:
        for name in self._types:
            if isinstance(other := getattr(self, name), _SameAs):
                object.__setattr__(self, name, getattr(self, other.field))
        for name, convert in self._types.items():
            object.__setattr__(self, name, convert(name, getattr(self, name)))
        object.__setattr__(self, "element", ElementKind(self.element))

    @classmethod
    def unchecked(cls, **values: Any) -> Self:
        """One that holds `values` as they are, for shapes alone: what a tracer knows of an extent is no int."""
        made = object.__new__(cls)
        given = {field.name: field.default for field in fields(cls)} | values  # type: ignore[arg-type]
        for name, value in given.items():
            object.__setattr__(made, name, given[value.field] if isinstance(value, _SameAs) else value)
        return made

    def check(self) -> None:
        """Raise the error of the first requirement that these values violate."""
        raise AssertionError("generated descriptors define this")

    def _violated(self, kind: type[InvalidProblem] | type[Unsupported], needs: str, names: Iterable[str]) -> Exception:
        seen = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return kind(f"{self._plan}: needs {needs}; got {seen}")

    def _check_element(self) -> None:
        if self.element not in self._elements:
            known = ", ".join(self._elements)
            raise Unsupported(f"{self._plan}: needs element in ({known}); got element={str(self.element)!r}")
