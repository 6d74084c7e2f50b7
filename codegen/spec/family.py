"""What serves the ops of a family: one object, which its folder in `codegen/families` holds.

Everything else asks `family_of` and the properties of specs, and knows no family by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, get_args

from baracuda.runtime import Argument, Descriptor, Extent, KernelSource, Plan, Registered

if TYPE_CHECKING:
    from ..lower.op import Op
    from ..program import Expr, Line
    from .checks.finding import Rule
    from .parts import Drawn, Requirement
    from .spec import OpSpec

# A family is registered here; the folders of this name are in `codegen`, in `runtime` and, of problems, in `checking`.
FamilyName = Literal["row", "map", "list", "matmul", "body"]

Data = Mapping[str, Any]
Denied = tuple[str, str, str]  # an output, what it cannot promise, and why not, with the remedy


@dataclass(frozen=True, kw_only=True)
class Family:
    """How specs of a family are read, checked and lowered. What has a default is not asked of every family."""

    name: FamilyName
    doc: str  # how it has the mathematics given, for authors
    model: type[OpSpec]  # what its files may say
    rules: tuple[Rule, ...]  # in order; the first that finds something is the last one asked
    lower: Callable[[Any, str], Op]  # makes the decisions for a checked spec, of the file that is named
    templates: tuple[str, ...]  # which become `<op>.cu` and `<op>.py`
    plan: type[Plan[Any]]  # what its plan classes derive from
    table: Callable[..., Iterable[Registered]]  # of the runtime, which makes the kernel table of a module
    declares: Callable[[Any], tuple[dict[str, Any], ...]]  # of an op: members of both classes, arguments of `table`
    descriptor: type[Descriptor] = Descriptor  # what its descriptors derive from
    # Names of the runtime that its modules call, and which of their arguments are formulas, by place or by name.
    declarations: Mapping[str, frozenset[int | str]] = field(default_factory=dict)
    # Of a row of the kernel table, arguments and a layout: what is compiled, where that rests on no problem.
    source: Callable[[Registered, Sequence[Argument], str], KernelSource] | None = None
    formulas: frozenset[str] = frozenset()  # members of its classes that are tables of formulas
    # Of a file that names no family: the JSON Schema of one that reads like this family's; None if it must be named.
    claim: Data | None = None
    takes_the_rest: bool = False  # whether it also has the files that read like no family's
    all_dims_share: bool = False  # whether every dim is some of the axes of one shape
    skeleton: str = ""  # of a new spec, for `string.Template`; without one, `new` does not offer the family
    spills: str = ""  # bytes by layout that kernels of the skeleton's gradient spill

    @property
    def has_dims(self) -> bool:
        """Whether its specs have dims."""
        return "dims" in self.model.model_fields

    # Reading

    @staticmethod
    def claims(data: Data) -> bool:
        """Whether a file that names no family reads like one of this family's, by `claim`; it may be malformed."""
        return False

    @staticmethod
    def filled(data: dict[str, Any]) -> dict[str, Any]:
        """The data of a file with what follows from the keys that only this family has."""
        return data

    @staticmethod
    def conditions(spec: Any, said: set[str]) -> Iterator[Requirement]:
        """What goes without saying beside ranks and extents, but for what is `said`."""
        yield from ()

    @staticmethod
    def extents(spec: Any) -> set[str]:
        """The fields and expressions that are extents of arrays by themselves."""
        return set()

    @staticmethod
    def usual_cases(spec: Any) -> Iterable[dict[str, Any]]:
        """The usual test problems, fields -> values, without what has defaults."""
        return ()

    @staticmethod
    def usual_draw(spec: Any) -> dict[str, Drawn]:
        """How random problems are drawn."""
        return {}

    @staticmethod
    def batch_of(spec: Any) -> str | None:
        """The field whose half gives the same bits where an output promises so."""
        batch: str | None = spec.tests.batch
        return batch

    def denied(self, spec: Any) -> Iterator[Denied]:
        """What no kernel of the program could keep; raises ProgramError for what cannot be scheduled."""
        yield from ()

    def has_a_price(self, spec: Any) -> Iterator[Denied]:
        """What a program keeps where a spec asks for it, and leaves out otherwise, because it costs speed."""
        yield from ()

    def cannot_promise(self, spec: Any) -> set[tuple[str, str]]:
        """Outputs, each with a guarantee of its bits that it is not expected to keep."""
        raise NotImplementedError

    def notes(self, spec: Any) -> Iterator[tuple[int, str]]:
        """Lines of a program that its author may want otherwise, and why; nothing is wrong with them."""
        yield from ()

    # Programs and their derivatives

    @staticmethod
    def lines(spec: Any) -> tuple[Line, ...]:
        """The program's lines as its derivative is made of; raises ProgramError."""
        raise NotImplementedError

    @staticmethod
    def pulled(spec: Any) -> frozenset[str]:
        """The dims of reductions whose derivative is computed before that of what is reduced."""
        return frozenset()

    @staticmethod
    def multiplied(spec: Any) -> frozenset[Expr]:
        """The sums of products whose factors kernels take as elements, which gradients are rounded to first."""
        return frozenset()

    @staticmethod
    def sizes(spec: Any) -> dict[str, frozenset[Expr]]:
        """What says the size of each dim in a program: the int field that gives it."""
        return {}

    @staticmethod
    def mismatched(spec: Any, forward: Any, pairs: Mapping[str, str]) -> Iterator[tuple[tuple[str, ...], str]]:
        """Places and messages where tensors of a gradient have other shapes than those of the forward in `pairs`."""
        yield from ()

    @staticmethod
    def shown(spec: Any, name: str) -> Iterator[Extent]:
        """Fields of the descriptor that the shape of an input shows."""
        yield from ()

    @staticmethod
    def factors(spec: Any, name: str, known: set[str]) -> Iterator[Extent]:
        """Fields that it shows where the caller gives others; `known` are those that inputs show."""
        yield from ()


@cache
def families() -> dict[str, Family]:
    """Every family by name, in the order of `FamilyName`."""
    root = __package__.rpartition(".")[0]
    return {name: import_module(f"{root}.families.{name}.family").FAMILY for name in get_args(FamilyName)}


def family_of(spec: OpSpec) -> Family:
    """The family of a spec."""
    return families()[spec.family]


def model_of(family: object) -> type[OpSpec]:
    """What a file of that family may say; of the first one when the family is unknown."""
    known = families()
    named = known.get(family) if isinstance(family, str) else None
    return (named or next(iter(known.values()))).model
