"""How computed places change from cell to cell, by which kernels read those of many cells at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...program.kinds import Kinds, kind_of
from ...program.tree import Call, Const, Expr, Name, Query, Read, children
from ...spec.names import in_kernel
from .program import Parts, groups_of
from .spec import MapSpec

_COMPARES = {"less": "less", "less_equal": "less_equal", "greater": "less_equal", "greater_equal": "less"}
_MOST_PIECES = 30  # comparisons, each a bit of a number
_LOGIC = ("logical_and", "logical_or", "logical_not")


@dataclass(frozen=True, slots=True)
class Step:
    """An expression grows by the same number from cell to cell of a run.

    It does if none of the `still` operands moves and none of the `pieces`, comparisons, changes. One that is the same
    for two cells is the same for all between them.
    """

    still: frozenset[str] = frozenset()
    pieces: tuple[Expr, ...] = ()
    same: tuple[int, ...] = ()  # of several, those that do not grow at all

    def __or__(self, other: Step) -> Step:
        return Step(self.still | other.still, tuple(dict.fromkeys(self.pieces + other.pieces)))


class Steps:
    """Of the expressions of a program whose names have these kinds."""

    def __init__(self, parts: Parts, spec: MapSpec, kinds: Kinds) -> None:
        self.parts, self.inputs, self.kinds = parts, frozenset(spec.inputs), kinds
        space = [dim for group in groups_of(spec, parts) for dim in group]
        self.last = {f"{dim}_index" for dim in (*_last(space, parts.summed), *parts.summed[-1:])}
        self._moves, self._steps = dict[str, frozenset[str]](), dict[Expr, Step]()

    def of(self, places: Sequence[Expr]) -> Step:
        """Of all places of a read."""
        step = self._all(places)
        # Along a run, what does not move with the last cells or terms mostly does not move at all.
        changing = tuple(e for e in step.pieces if self._moving(e) & self.last - step.still)
        changing = changing if len(changing) <= _MOST_PIECES else ()
        others = (self._moving(e) for e in step.pieces if e not in changing)
        still = step.still.union(*others)
        return Step(still, changing, tuple(n for n, place in enumerate(places) if self._moving(place) <= still))

    def _moving(self, expr: Expr) -> frozenset[str]:
        """The operands whose step from cell to cell changes the value of `expr`."""
        match expr:
            case Query(what="index", of=dim):
                return frozenset({f"{dim}_index"})
            case Name(id=name) if (line := self.parts.line(name)) is not None:
                if name not in self._moves:  # lines may name others twice, and these others
                    self._moves[name] = self._moving(line.expr)
                return self._moves[name]
            case Name(id=name):
                return frozenset[str]({in_kernel(name)} if name in self.inputs else ())
            case Read(tensor=tensor, dims=dims, places=places):
                # Along dims whose own index is the place, the tensor's operand has the step.
                others = (place for dim, place in zip(dims, places, strict=True) if place != Query("index", dim))
                return frozenset[str]({in_kernel(tensor)}).union(*map(self._moving, others))
        return frozenset[str]().union(*map(self._moving, children(expr)))

    def _step(self, expr: Expr) -> Step:
        if expr not in self._steps:  # comparisons, and lines that name others twice, ask again
            self._steps[expr] = self._new_step(expr)
        return self._steps[expr]

    def _new_step(self, expr: Expr) -> Step:
        match expr:
            case Query() | Const():
                return Step()
            case Name(id=name) if (line := self.parts.line(name)) is not None:
                return self._step(line.expr)
            case Call(op="add" | "sub" | "neg", args=args):
                return self._all(args)
            case Call(op="mul", args=(a, b)):
                ways = ((a, b), (b, a))
                steps = (self._step(one) | Step(self._moving(other)) for one, other in ways)
                return min(steps, key=lambda step: (len(step.still), len(step.pieces)))
            case Call(op="abs", args=(a,)) if kind_of(a, self.kinds) == "int":
                return self._step(a) | self._cut(Call("less", (a, Const(0))))
            case Call(op="minimum" | "maximum", args=(a, b)) if kind_of(expr, self.kinds) == "int":
                return self._step(a) | self._step(b) | self._cut(Call("less", (a, b)))
            case Call(op="where", args=(condition, a, b)):
                return self._step(a) | self._step(b) | self._cut(condition, self._moving(a) | self._moving(b))
        return Step(self._moving(expr))

    def _all(self, exprs: Iterable[Expr]) -> Step:
        step = Step()
        for expr in exprs:
            step |= self._step(expr)
        return step

    def _cut(self, condition: Expr, along: frozenset[str] | None = None) -> Step:
        """Where a condition stays the same: cells are compared only if it moves with what else moves `along` them."""
        moving = self._moving(condition)
        if along is not None and moving.isdisjoint(along):
            return Step(moving)
        match condition:
            case Name(id=name) if (line := self.parts.line(name)) is not None:
                return self._cut(line.expr, along)
            case Call(op=op, args=args) if op in _LOGIC:
                step = Step()
                for arg in args:
                    step |= self._cut(arg, along)
                return step
            case Call(args=(a, b) as args) if all(kind_of(arg, self.kinds) == "int" for arg in args):
                if found := _comparisons(condition, a, b):
                    return self._all(args) | Step(pieces=found)
        return Step(moving)


def _last(space: list[str], summed: tuple[str, ...]) -> list[str]:
    return [dim for dim in space if dim not in summed][-1:]


def _comparisons(condition: Call, a: Expr, b: Expr) -> tuple[Expr, ...]:
    """What `condition` changes with, as one or two comparisons."""
    if condition.op in ("equal", "not_equal"):
        return Call("less", (a, b)), Call("less_equal", (a, b))
    same = _COMPARES.get(condition.op)
    return (Call(same, (a, b)),) if same else ()
