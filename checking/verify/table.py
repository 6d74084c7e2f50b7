"""Which kernels each check of the suite runs on.

On a GPU every check runs on every kernel. On the host device it runs on one kernel per op and combination of the traits
in its row, because kernels that share them run the same code. A sampled run takes the number of kernels in the row,
spread evenly over ops and within an op over traits. Checks take the same kernels of an op, which are compiled once, but
those that compile for themselves take others. If there are more ops than that, those in BARACUDA_TEST_FIRST come
first, then others chosen by the word in BARACUDA_TEST_SAMPLE, for each check different ones.

Traits of a kernel:
  element  the element type
  bytes    the sizes of the element and accumulator types
  path     the code path, as the family's problems tell it
  tile     the tile or schedule, the architecture and the layout
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from baracuda.runtime import KernelSku, Schedule, Tile

from ..problems.cases import skus
from ..problems.problem import Problem, ProgramProblem
from ..problems.shrunken import shrinks
from ..problems.subject import Subject
from ..sampling import share, spread
from ..variables import FIRST, SAMPLE

T = TypeVar("T")


class Row(NamedTuple):
    """What a check of the suite runs on."""

    one_for_each: tuple[str, ...]  # combinations of traits, as "element path"
    sampled: int  # kernels in a sampled run, over all ops
    of: Callable[[type[Problem]], bool] = lambda problems: True  # only kernels of families with such problems
    archs: tuple[str, ...] = ()  # only kernels for these, if any are named
    clusters: bool = False  # only kernels whose blocks form clusters
    by_numbers: bool = False  # whether a sample differs in single numbers of schedules, too
    apart: bool = False  # whether it compiles for itself, so that its sample may differ from that of other checks
    problems: int | None = None  # of a kernel in a sampled run, of checks that take many
    which: Callable[[KernelSku], bool] = lambda sku: True  # only these kernels

    def is_of(self, sku: KernelSku) -> bool:
        """Whether the check runs on kernels like `sku`."""
        is_cluster = isinstance(sku.schedule, Tile) and sku.schedule.cluster > 1
        fits = (not self.archs or sku.arch in self.archs) and (is_cluster or not self.clusters)
        return fits and self.which(sku)


TABLE = {
    "accuracy": Row(("element path", "tile"), 24),
    "edges": Row(("bytes path", "tile"), 12, problems=6),
    "feature_pairs": Row(("bytes path", "tile"), 12, problems=6),
    "shrunken": Row(("bytes path", "tile"), 8, problems=3, which=shrinks),
    "layouts": Row(("element path",), 14),
    "special_values": Row(("element path",), 14),
    "batch_invariance": Row(("element path",), 14),
    "orders": Row(("bytes path",), 12),
    "accesses": Row(("bytes path", "tile"), 12, apart=True, problems=4),
    "asynchrony": Row(("bytes path", "tile"), 4, archs=("sm_90a",), by_numbers=True),
    "clusters": Row(("bytes path", "tile"), 4, clusters=True),
    "lone_layouts": Row(("bytes path", "tile"), 8),
    "texts": Row(("element path",), 8),
    "gpu_code": Row(("element path",), 6, apart=True, archs=("sm_80", "sm_89"), problems=5),
    "explicit_formula": Row(("bytes path",), 20, lambda problems: issubclass(problems, ProgramProblem)),
    "compensation": Row(("bytes path",), 4, lambda problems: problems.walks_space),
    "stored_types": Row(("bytes path",), 12),
    "broadcast_inputs": Row(("bytes path",), 12),
    "huge_strides": Row(("bytes path",), 10),
    "in_place": Row(("bytes path",), 14),
    "argument_refusals": Row(("bytes path",), 20),
    "preferences": Row(("bytes path",), 20),
    "check_order": Row(("bytes path",), 12),
    "entry_points": Row(("bytes path",), 12),
    # Per op, not per kernel.
    "conversions": Row((), 1),
    "requirements": Row((), 60),
    "types": Row((), 60),
    "elements": Row((), 60),
    "declarations": Row((), 60),
    "definition": Row((), 60),
    "defaults": Row((), 60),
    "batch_choice": Row((), 60),
    "architectures": Row((), 60),
    "remembered": Row((), 60),
    "capture": Row((), 60),
    "selections": Row((), 60),
    "keys": Row((), 60),
}


_MOST = "accuracy"  # the check of most kernels


def some(check: str, derived: Iterable[T], problem_of: Callable[[T], Problem]) -> Iterator[T]:
    """All that a check derives for a kernel; in a sampled run a few that need the same code, to compile once."""
    count = TABLE[check].problems
    if count is None or SAMPLE not in os.environ:
        yield from derived
        return
    by_code: dict[Hashable, list[T]] = {}
    for item in islice(derived, 2 * count):
        by_code.setdefault(code_of(problem_of(item)), []).append(item)
    yield from max(by_code.values(), key=len, default=[])[:count]


def code_of(problem: Problem) -> Hashable:
    """The same for problems that need the same code, whatever their arrays."""
    return frozenset((source.symbol, source.defines) for source in problem.plan.sources())


def traits(subject: Subject, sku: KernelSku) -> dict[str, Hashable]:
    """The traits of a kernel, by name."""
    element = sku.element.row
    return {
        "element": sku.element,
        "bytes": (element.bytes, element.acc.row.bytes),
        "path": Problem.kind_of(subject).path_of(subject, sku),
        "tile": (sku.arch, sku.layout, sku.schedule),
    }


def _entries(sku: KernelSku) -> tuple[tuple[str, int], ...]:
    return tuple(sku.schedule.numbers) if isinstance(sku.schedule, Schedule) else ()


def kernels(check: str, subjects: Sequence[Subject]) -> list[KernelSku]:
    """The kernels that `check` runs on with the host device, in the order of `subjects`."""
    chosen = _all(check, subjects)
    if (seed := os.environ.get(SAMPLE)) is None:
        return [sku for skus in chosen.values() for sku in skus]
    sampled = set(_sample(check, subjects, chosen, seed))
    return [sku for skus in chosen.values() for sku in skus if sku in sampled]


def _all(check: str, subjects: Sequence[Subject]) -> dict[str, list[KernelSku]]:
    row = TABLE[check]
    return {s.spec.op: _first_of_each(row, s) for s in subjects if row.of(Problem.kind_of(s))}


def _sample(
    check: str, subjects: Sequence[Subject], chosen: dict[str, list[KernelSku]], seed: str
) -> list[KernelSku]:
    """The kernels of a sampled run; where they are compiled for the check alone, others than those of `_MOST`."""
    row, by_op = TABLE[check], {subject.spec.op: subject for subject in subjects}
    others = _sample(_MOST, subjects, _all(_MOST, subjects), seed) if row.apart else []
    differing = {}
    for op, tested in chosen.items():
        traits_of = _traits_of(by_op[op], row.by_numbers)
        known = {trait for sku in others if sku.op == op for trait in traits_of(sku)}
        differing[op] = spread(tested, traits_of, lambda sku: f"{seed} {sku.symbol}", known)
    return share(differing, row.sampled, f"{seed} {check}", os.environ.get(FIRST, "").split())


def is_for(check: str, subject: Subject) -> bool:
    """Whether `check` is one for kernels of the op's family."""
    return TABLE[check].of(Problem.kind_of(subject))


def runs_on(check: str, subject: Subject, sku: KernelSku) -> bool:
    """Whether `check` is one for kernels such as `sku`."""
    return is_for(check, subject) and TABLE[check].is_of(sku)


def ops(check: str, subjects: Sequence[Subject]) -> list[Subject]:
    """The ops that a check per op runs on."""
    if (seed := os.environ.get(SAMPLE)) is None:
        return list(subjects)
    first = os.environ.get(FIRST, "").split()
    sampled = share({subject.spec.op: [subject.spec.op] for subject in subjects}, TABLE[check].sampled, seed, first)
    return [subject for subject in subjects if subject.spec.op in sampled]


def _first_of_each(row: Row, subject: Subject) -> list[KernelSku]:
    seen: set[Hashable] = set()
    chosen = []
    for sku in filter(row.is_of, skus(subject, "host")):
        values = traits(subject, sku)
        new = {(names, *(values[name] for name in names.split())) for names in row.one_for_each} - seen
        seen |= new
        if new:
            chosen.append(sku)
    return chosen


def _traits_of(subject: Subject, by_numbers: bool) -> Callable[[KernelSku], set[Hashable]]:
    return lambda sku: {*traits(subject, sku).items(), *(_entries(sku) if by_numbers else ())}
