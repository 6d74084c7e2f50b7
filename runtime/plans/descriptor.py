"""Descriptors: a problem as plain hashable data, before any array."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from ..arrays.element import ElementKind
from ..computing import computing
from ..errors import InvalidProblem, Unsupported
from ..values import shown

Convert = Callable[[str, Any], Any]  # a field's name and value to its canonical value


@dataclass(frozen=True, slots=True)
class _SameAs:
    field: str


def same_as(field: str) -> Any:
    """Default of a field: the value of another one."""
    return _SameAs(field)


class Descriptor:
    """Base of the generated descriptors: frozen dataclasses that convert their fields to canonical types."""

    __slots__ = ()
    element: ElementKind | str
    _plan: ClassVar[str]
    _elements: ClassVar[tuple[ElementKind, ...]]
    _types: ClassVar[dict[str, Convert]]

    def __post_init__(self) -> None:
        for name in self._types:
            if type(other := getattr(self, name)) is _SameAs:
                object.__setattr__(self, name, getattr(self, other.field))
        for name, convert in self._types.items():
            object.__setattr__(self, name, convert(name, getattr(self, name)))
        object.__setattr__(self, "element", ElementKind.of(self.element, "element"))

    @classmethod
    def unchecked(cls, **values: Any) -> Self:
        """A descriptor with `values` as they are, for shapes only: a tracer's symbolic extents are not ints."""
        made = object.__new__(cls)
        given = {field.name: field.default for field in fields(cls)} | values  # type: ignore[arg-type]
        for name, value in given.items():
            object.__setattr__(made, name, given[value.field] if type(value) is _SameAs else value)
        return made

    def check(self) -> None:
        """Raise the error of the first violated requirement."""
        with computing(self):
            self._check()

    def _check(self) -> None:
        raise AssertionError("generated descriptors define this")

    def _violated(self, kind: type[InvalidProblem] | type[Unsupported], needs: str, names: Iterable[str]) -> Exception:
        seen = ", ".join(f"{name}={shown(getattr(self, name))}" for name in names)
        return kind(f"{self._plan}: needs {needs}; got {seen}")

    def _check_element(self) -> None:
        if self.element not in self._elements:
            known = ", ".join(self._elements)
            raise Unsupported(f"{self._plan}: needs element in ({known}); got element={str(self.element)!r}")
