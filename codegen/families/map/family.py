"""The map family: a program on each cell of an index space, with reductions over any dims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from baracuda.runtime import MapDescriptor, MapPlan, map_kernels

from ...program import Line, Name, to_source
from ...program.tree import Call, Expr, Reduce, varies, walk
from ...spec.checks import FIRST, LAST, PROGRAM, READ, everywhere
from ...spec.family import Data, Denied
from ...spec.promises import BATCH
from ..programs import ProgramFamily
from . import kind_rules as kinds
from . import rules
from .batches import batch_dims, of_whole_batches, reductions_behind
from .declared import declares
from .defaults import conditions, usual_cases, usual_draw
from .extents import factors, shown
from .lower import lower_map
from .passes import passes, reduced_between
from .program import split
from .skeleton import SKELETON, SPILLS
from .spec import MapSpec


class MapFamily(ProgramFamily):
    """The first dim is what is independent."""

    conditions = staticmethod(conditions)
    usual_cases = staticmethod(usual_cases)
    usual_draw = staticmethod(usual_draw)
    pulled = staticmethod(reduced_between)
    shown = staticmethod(shown)
    factors = staticmethod(factors)

    @staticmethod
    def claims(data: Data) -> bool:
        return "kinds" in data

    @staticmethod
    def extents(spec: MapSpec) -> set[str]:
        return {dim.of for dim in spec.dims.values()}

    @staticmethod
    def batch_of(spec: MapSpec) -> str | None:
        if spec.tests.batch or not any(BATCH in rungs for rungs in spec.reproducibility.values()):
            return spec.tests.batch
        first = next((dim.of for dim in spec.dims.values()), "")
        return first if first in spec.descriptor else None

    def batch_dim(self, spec: MapSpec) -> str:
        return next(iter(spec.dims), "")

    def scheduled(self, spec: MapSpec) -> tuple[Line, ...]:
        return split(spec).lines

    def notes(self, spec: MapSpec) -> Iterator[tuple[int, str]]:
        """Products of matrices that are computed term by term."""
        for parts in map(split, spec.by_kind.values()):
            for line in parts.lines:
                if text := next((to_source(e) for e in walk(line.expr) if _is_product(e, parts.dims)), ""):
                    remedy = "`family: matmul` multiplies inputs, or what is rounded to T(...)"
                    yield line.number, f"{text} is computed term by term; {remedy}"

    def rests_on_batch(self, spec: MapSpec) -> Iterator[Denied]:
        lines = split(spec).lines
        exprs = {line.name: line.expr for line in lines}
        batch = batch_dims(spec, spec.tests.batch or next((dim.of for dim in spec.dims.values()), None))
        whole = of_whole_batches(lines, passes(spec), batch)
        for name in spec.outputs:
            if not whole.isdisjoint(reductions_behind(name, exprs)):
                yield name, BATCH, f"{name!r} is a sum, which depends on how much is summed; drop {BATCH}"

    def has_a_price(self, spec: MapSpec) -> Iterator[Denied]:
        for name in sorted(split(spec).late & set(spec.outputs)):
            yield name, BATCH, "an order of additions that is the same for all batches costs speed"

    @staticmethod
    def sizes(spec: MapSpec) -> dict[str, frozenset[Expr]]:
        return {name: frozenset({Name(dim.of)}) for name, dim in spec.dims.items() if dim.of.isidentifier()}

    @staticmethod
    def mismatched(spec: MapSpec, forward: Any, pairs: Mapping[str, str]) -> Iterator[tuple[tuple[str, ...], str]]:
        """Dims are told by their place."""
        if not isinstance(forward, MapSpec):
            return
        names, listed = dict(zip(forward.dims, spec.dims, strict=False)), ", ".join(forward.dims)
        if len(spec.dims) < len(forward.dims):
            yield ("dims",), f"dims must begin with those of {forward.op!r}, {listed}; got {', '.join(spec.dims)}"
            return
        for name, target in pairs.items():
            wanted = [" * ".join(names[dim] for dim in group) for group in forward.tensors[target].groups]
            got = [" * ".join(group) for group in spec.tensors[name].groups]
            if got != wanted:
                order = f"; dims begin with those of {forward.op!r}, {listed}, in that order"
                hint = "" if {*names.items()} <= {(n, n) for n in forward.dims} else order
                text = f"{name!r} belongs to {target!r}, so its dims are [{', '.join(wanted)}], got [{', '.join(got)}]"
                yield ("inputs" if name in spec.inputs else "outputs", name, "dims"), f"{text}{hint}"


def _is_product(expr: Expr, over: dict[str, frozenset[str]]) -> bool:
    """Whether it sums products of two values, each of which varies along a dim of its own."""
    match expr:
        case Reduce(kind="sum", arg=arg, dims=dims):
            along = [varies(factor, over) for factor in _factors(arg)]
            return any(a - b and b - a and a & b & {*dims} for a, b in combinations(along, 2))
    return False


def _factors(expr: Expr) -> Iterator[Expr]:
    match expr:
        case Call(op="mul", args=args):
            yield from (factor for arg in args for factor in _factors(arg))
        case _:
            yield expr


FAMILY = MapFamily(
    name="map",
    doc="a program on each cell of an index space, with reductions over any dims",
    model=MapSpec,
    rules=(
        *(*FIRST, rules.dims, everywhere.conditions, rules.whole, rules.own_memory, rules.tensors, kinds.table),
        *(*(kinds.each(rule) for rule in PROGRAM), *READ, *LAST),
        *(kinds.each(rules.contradictions), rules.outside, kinds.sorts, everywhere.cases),
    ),
    lower=lower_map,
    templates=("map.cu.jinja", "plan.py.jinja"),
    plan=MapPlan,
    table=map_kernels,
    declares=declares,
    descriptor=MapDescriptor,
    declarations={"MapPass": frozenset()},
    formulas=frozenset({"_dims", "_axes"}),
    claim={"required": ["kinds"]},
    takes_the_rest=True,
    skeleton=SKELETON,
    spills=SPILLS,
)
