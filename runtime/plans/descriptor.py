"""Descriptors: a problem as plain hashable data, before any array."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, fields
from dataclasses import field as _field
from typing import Any, ClassVar, NamedTuple, Self, dataclass_transform

from ..arrays.element import ElementKind
from ..errors import BaracudaError, InvalidProblem, Unsupported
from ..values import as_bool, as_float, as_int, as_shape, as_text, near, one_line, short_repr, some_of
from .formula import NO_VALUE, evaluate, in_words, names_in, no_value

_COMPARED = 100  # characters of a kind that is looked for
Convert = Callable[[str, Any], Any]  # a field's name and value to its canonical value


class _SameAs(NamedTuple):
    field: str


def same_as(field: str) -> Any:
    """Default of a field: the value of another one."""
    return _SameAs(field)


def field(doc: str, **default: Any) -> Any:
    """A field of a descriptor: what it is, and its default if it has one."""
    return _field(**default, metadata={"doc": doc})


class Requirement(NamedTuple):
    """A condition on the fields of a descriptor, and the error of a problem that violates it."""

    condition: str
    error: type[InvalidProblem] | type[Unsupported] = InvalidProblem


_CONVERT: dict[str, Convert] = {"tuple[int, ...]": as_shape, "int": as_int, "float": as_float, "bool": as_bool}
_CONVERT["str"] = as_text


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class _Fields:
    """What derives from this has the fields that it annotates, of which `element` is the last."""

    __slots__ = ()


class _FieldSignature:
    """What `inspect.signature` says of a descriptor class: its fields, as keywords."""

    def __get__(self, instance: object, owner: type[Descriptor]) -> object:
        from inspect import Parameter, Signature

        absent, parameters = {MISSING: Parameter.empty}, list[Parameter]()
        for name, declared in getattr(owner, "__dataclass_fields__", {}).items():
            default = absent.get(declared.default, declared.default)
            parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=declared.type))
        return Signature(parameters)


class Descriptor(_Fields):
    """Base of the generated descriptors: frozen dataclasses that convert their fields to canonical types.

    A generated class declares its fields and the element types that it may have; the rest is made of these.
    """

    __slots__ = ()
    element: ElementKind | str
    _elements: ClassVar[tuple[str, ...]]
    _requires: ClassVar[tuple[Requirement | str, ...]] = ()  # a condition alone raises InvalidProblem
    _kinds: ClassVar[tuple[str, ...]] = ()  # what the field `kind` may be; without kinds there is no such field
    _plan: ClassVar[str]
    _types: ClassVar[dict[str, Convert]]  # of the fields that are annotated with a type of `_CONVERT`
    _any_rank: ClassVar[bool] = False  # whether problems make one with an axis more, as `_stacked` says
    _evaluate: ClassVar[staticmethod[[str, Mapping[str, Any]], Any]] = staticmethod(evaluate)

    def __init_subclass__(cls) -> None:
        cls._plan = f"{cls.__name__.removesuffix('Descriptor')}Plan"
        annotated = cls.__annotations__.items()
        cls._types = {name: _CONVERT[kind] for name, kind in annotated if kind in _CONVERT}
        if "_elements" in vars(cls):
            cls._requires = tuple([Requirement(of) if type(of) is str else of for of in cls._requires])
            cls._make()

    @classmethod
    def _make(cls) -> None:
        """Make a documented dataclass of it."""
        own = [(name, vars(cls).get(name)) for name in cls.__annotations__]
        docs = [f"{name}: {of.metadata['doc']}" for name, of in own if isinstance(of, Field)]
        docs.append(f"element: type of the elements, one of {', '.join(cls._elements)}")
        cls.__annotations__["element"] = "rt.ElementKind | str"
        cls.__doc__ = "\n".join([f"What {cls._plan} works on. Keyword arguments:\n", *docs])
        dataclass(init=False, eq=False, repr=False, match_args=False)(cls)

    # As frozen data classes have them, but written once: making those of a class takes a millisecond.
    __signature__ = _FieldSignature()

    def __init__(self, /, **values: Any) -> None:
        given, missing = vars(self), []
        for name, declared in self.__dataclass_fields__.items():
            if (value := values.pop(name, declared.default)) is MISSING:
                missing.append(name)
            given[name] = value
        if values or missing:
            what, names = ("got unexpected", [*values]) if values else ("missing required", missing)
            raise TypeError(f"{type(self).__name__}() {what} keyword arguments: {', '.join(map(repr, names))}")
        self._convert()

    def __setattr__(self, name: str, value: object) -> None:
        if name in vars(self) or name not in self.__dataclass_fields__:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((*vars(self).values(),))

    def __repr__(self) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def _convert(self) -> None:
        """Give each field its canonical type."""
        for name in self._types:
            if type(other := getattr(self, name)) is _SameAs:
                object.__setattr__(self, name, getattr(self, other.field))
        for name, convert in self._types.items():
            object.__setattr__(self, name, convert(name, getattr(self, name)))
        object.__setattr__(self, "element", ElementKind.of(self.element, "element"))

    def _stacked(self, size: int) -> Self | None:
        """Of `size` such problems as one, along a new first axis; None if that is another axis of what they compute."""
        raise NotImplementedError

    @classmethod
    def unchecked(cls, **values: Any) -> Self:
        """A descriptor with `values` as they are, for shapes only: a tracer's symbolic extents are not ints."""
        descriptor = object.__new__(cls)
        by_field = {field.name: field.default for field in fields(cls)} | values
        for name, value in by_field.items():
            object.__setattr__(descriptor, name, by_field[value.field] if type(value) is _SameAs else value)
        return descriptor

    def _value_of(self, text: str, values: Mapping[str, Any] | None = None) -> Any:
        """Evaluate a formula over the fields, or over `values`; raises InvalidProblem if it has no value."""
        numbers = vars(self) if values is None else values
        try:
            return self._evaluate(text, numbers)
        except NO_VALUE as error:
            raise no_value(self._plan, text, numbers, error) from None

    def check(self) -> None:
        """Raise the error of the first requirement that these values violate."""
        if self._kinds and (kind := self.kind) not in self._kinds:  # type: ignore[attr-defined]
            meant = near(kind[:_COMPARED], self._kinds)
            hint = f"did you mean {meant!r}?" if meant else f"kinds are {some_of(self._kinds, len(self._kinds))}"
            raise InvalidProblem(f"{self._plan}: no kind {short_repr(kind)}; {hint}")
        for requirement in self._requires:
            assert type(requirement) is Requirement
            if not self._value_of(requirement.condition):
                names = names_in(requirement.condition)
                raise self._violated(requirement.error, in_words(requirement.condition), names)
        with self._computing():
            self._check_extents()
        if self.element not in self._elements:
            elements = ", ".join(self._elements)
            raise Unsupported(f"{self._plan}: needs element in ({elements}); got element={str(self.element)!r}")

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Turn arithmetic errors into InvalidProblem."""
        try:
            yield
        except BaracudaError:
            raise
        except NO_VALUE as error:
            raise InvalidProblem(f"{self._plan}: {one_line(error)}") from None

    def _check_extents(self) -> None:
        """Raise InvalidProblem if the fields ask for more elements than 63 bits can count."""

    def _violated(self, kind: type[InvalidProblem] | type[Unsupported], needs: str, names: Iterable[str]) -> Exception:
        got = ", ".join(f"{name}={short_repr(getattr(self, name))}" for name in names)
        return kind(f"{self._plan}: needs {needs}; got {got}")
