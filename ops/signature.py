"""A plan as a function: how tensors and keywords become a descriptor.

Tensors come first, in the plan's order; then keywords for the descriptor fields that no input determines and for the
element types of outputs that the caller may choose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from functools import cached_property
from inspect import Parameter
from inspect import Signature as PythonSignature
from types import ModuleType
from typing import Any, TypeVar

import baracuda.runtime as rt
from baracuda.runtime.values import near

from .usual import Value, usual_of

Tensors = Mapping[str, Any]  # by argument; None for one that is absent
Keywords = Mapping[str, Any]  # keywords; None or left out for the default
T = TypeVar("T")


class NoSuchOp(rt.InvalidProblem, KeyError):
    """What a mapping raises where a package has no such op."""

    __str__ = Exception.__str__


class OfEachOp(Mapping[str, T]):
    """What `make` makes of the plan of each op of a generated package, by the op's name, when it is first asked for."""

    def __init__(self, package: ModuleType, make: Callable[[type[rt.Plan[Any]]], T]) -> None:
        self._package, self._make, self._made = package, make, dict[str, T]()
        # Plans pinned to an architecture have no descriptor of their own.
        self._plans = {
            module.rpartition(".")[2]: name
            for name, module in package.MODULES.items()
            if name.endswith("Plan") and name.removesuffix("Plan") + "Descriptor" in package.MODULES
        }

    def __getitem__(self, op: str) -> T:
        if op not in self._plans:
            meant = near(str(op), self._plans)
            hint = f"did you mean {meant!r}?" if meant else f"there are {', '.join(self._plans)}"
            raise NoSuchOp(f"{self._package.__name__} has no op {op!r}; {hint}")
        if op not in self._made:
            made = self._make(getattr(self._package, self._plans[op]))
            self._made.setdefault(op, made)  # threads may have made one each
        return self._made[op]

    def __iter__(self) -> Iterator[str]:
        return iter(self._plans)

    def __len__(self) -> int:
        return len(self._plans)


def plans_of(package: ModuleType) -> Iterator[type[rt.Plan[Any]]]:
    """The plan of each op of a generated package, without the plans pinned to an architecture."""
    for name in package.MODULES:
        plan = getattr(package, name)
        if issubclass(plan, rt.Plan) and "OP" in vars(plan):
            yield plan


_KINDS: dict[rt.Convert, str] = {
    rt.as_shape: "shape",
    rt.as_int: "int",
    rt.as_float: "float",
    rt.as_bool: "bool",
    rt.as_text: "kind",
}


@dataclass(frozen=True)
class Signature:
    """A plan class as a function of tensors, of any library whose tensors have a `shape`."""

    plan: type[rt.Plan[Any]]

    @property
    def name(self) -> str:
        return self.plan.OP

    @cached_property
    def inputs(self) -> tuple[rt.Argument, ...]:
        return tuple(a for a in self.plan.ARGUMENTS.values() if a.role != "out")

    @cached_property
    def outputs(self) -> tuple[rt.Argument, ...]:
        return tuple(a for a in self.plan.ARGUMENTS.values() if a.role == "out")

    @property
    def is_functional(self) -> bool:
        """Whether it updates no input in place."""
        return not any(a.written for a in self.inputs)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Descriptor fields that are keywords, required or not."""
        declared: tuple[Field[Any], ...] = fields(self.plan.DESCRIPTOR)
        by_default = {f.name for f in declared if f.default is not MISSING}
        inferred = {e.field for e in self.plan.EXTENTS if e.field in by_default or e.field not in self._sometimes}
        inferred |= {a.optional for a in self.inputs}
        return tuple(name for name in self.plan.DESCRIPTOR._types if name not in inferred)

    @cached_property
    def _sometimes(self) -> frozenset[str]:
        """Fields that only optional inputs show."""
        always = {e.field for e in self.plan.EXTENTS if not self.plan.ARGUMENTS[e.tensor].optional}
        return frozenset(e.field for e in self.plan.EXTENTS) - always

    @cached_property
    def chosen(self) -> dict[str, rt.Argument]:
        """Outputs whose element type the caller may choose, by keyword."""
        return {f"{a.name}_dtype": a for a in self.outputs if len(a.dtypes) > 1}

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """Defaults of keywords, without those that default to another field's value."""
        declared: tuple[Field[Any], ...] = fields(self.plan.DESCRIPTOR)
        return {f.name: f.default for f in declared if isinstance(f.default, bool | int | float)}

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """Keywords without a default."""
        declared: tuple[Field[Any], ...] = fields(self.plan.DESCRIPTOR)
        return tuple(f.name for f in declared if f.default is MISSING and f.name in self.parameters)

    @cached_property
    def usual(self) -> dict[str, Value]:
        """Defaults of keywords that follow from their names."""
        return usual_of({name: _KINDS[convert] for name, convert in self.plan.DESCRIPTOR._types.items()})

    @cached_property
    def python(self) -> PythonSignature:
        """The signature for `inspect.signature`; None stands for what may be omitted."""
        inputs, left_out = [], False
        for argument in self.inputs:
            left_out = left_out or bool(argument.optional)
            default = None if left_out else Parameter.empty
            inputs.append(Parameter(argument.name, Parameter.POSITIONAL_OR_KEYWORD, default=default))
        known = {*self.usual, *self._sometimes}
        required = {name: Parameter.empty for name in self.needed if name not in known}
        defaults = {name: (required | self.defaults).get(name) for name in self.parameters}
        if self.takes_element:
            defaults["element"] = None if self.typed or len(self.elements) == 1 else Parameter.empty
        defaults |= dict.fromkeys([*(a.name for a in self.outputs), *self.chosen, "stream"])
        keywords = (Parameter(n, Parameter.KEYWORD_ONLY, default=d) for n, d in defaults.items())
        return PythonSignature([*inputs, *keywords])

    def named(self, tensors: Sequence[Any]) -> dict[str, Any]:
        """The inputs by name; trailing ones may be omitted."""
        missing = len(self.inputs) - len(tensors)
        return {a.name: t for a, t in zip(self.inputs, [*tensors, *[None] * missing], strict=True)}

    def fields(self, tensors: Tensors, keywords: Keywords) -> dict[str, Any]:
        """The descriptor's fields, without those left at their defaults."""
        inferred: dict[str, Any] = {}
        for argument in self.inputs:
            if argument.optional:  # one flag may stand for several
                is_present = tensors[argument.name] is not None
                inferred[argument.optional] = inferred.get(argument.optional, False) or is_present
        values = {name: keywords[name] for name in self.parameters if keywords.get(name) is not None}
        given = {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}
        for extent in sorted(self.plan.EXTENTS, key=lambda extent: len(extent.by)):
            known = self.defaults | inferred | given
            if extent.field in inferred or not known.keys() >= {*extent.by}:
                continue
            if (tensor := tensors[extent.tensor]) is not None:
                inferred[extent.field] = self._inferred(extent, tuple(tensor.shape), known)
        return inferred | given

    def _inferred(self, extent: rt.Extent, shape: tuple[int, ...], known: Mapping[str, Any]) -> Any:
        value = extent.of(shape, known)
        if value is None:
            least = f"at least {extent.least_rank} {'axes' if extent.least_rank > 1 else 'axis'}"
            raise rt.InvalidProblem(f"{self.plan.__name__}: {extent.tensor!r} must have {least}, got shape {shape}")
        return value

    @property
    def elements(self) -> tuple[str, ...]:
        """What the descriptor's element type may be."""
        return self.plan.DESCRIPTOR._elements

    @cached_property
    def typed(self) -> tuple[str, ...]:
        """The inputs that show the descriptor's element type, as they may have no other: a required one, or optional
        ones.
        """
        alone = [a for a in self.inputs if a.dtypes == ("T",)]
        return tuple([a.name for a in alone if not a.optional][:1] or [a.name for a in alone])

    @cached_property
    def takes_element(self) -> bool:
        """Whether the element type is a keyword, because no required input shows it."""
        return all(self.plan.ARGUMENTS[name].optional for name in self.typed)

    def element(self, types: Mapping[str, Any], given: Any, kind_of: Callable[[Any], rt.ElementKind]) -> rt.ElementKind:
        """The descriptor's element type: the keyword's, if given, else what an input shows. `types` are the inputs' by
        name, in a library whose types `kind_of` knows.
        """
        shown = given if given is not None else next((t for n in self.typed if (t := types.get(n)) is not None), None)
        if shown is not None:
            return kind_of(shown)
        if len(self.elements) > 1:
            known = f"one of {', '.join(self.elements)}; no array shows it"
            raise rt.InvalidProblem(f"{self.name} takes element as well; pass element=, {known}")
        return rt.ElementKind(self.elements[0])
