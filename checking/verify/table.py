"""Which kernels each check of the suite runs on.

On a GPU every check runs on every kernel. On the host device it runs on one kernel of an op for each combination of the
traits in its row: kernels that share them run the same code. A sampled run takes so many kernels of all ops together as
the row says, whatever their number: as many of one op as of another, in each op those that differ most, and with more
ops than that those in BARACUDA_TEST_FIRST, then others by the word in BARACUDA_TEST_SAMPLE.

Traits of a kernel:
  element  the element type
  bytes    the size of an element and of what elements are summed in
  path     how the work is done. Row ops: rows within a warp, within a block, or longer. Others: the architecture if
           the op has a kernel of its own for it, the layout, and which numbers the schedule has
  tile     the tile or schedule, the architecture and the layout
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from baracuda.codegen.spec.spec import BodySpec
from baracuda.runtime import KernelSku, Schedule
from baracuda.runtime.families.row.geometry import WARP

from ..problems.cases import skus
from ..problems.subject import Subject
from ..sampling import share, spread
from ..variables import FIRST, SAMPLE


class Row(NamedTuple):
    """A check of the suite, and what it runs on."""

    one_for_each: tuple[str, ...]  # combinations of traits, as "element path"
    sampled: int  # kernels of all ops together in a sampled run
    families: tuple[str, ...] = ("row", "map", "body")


TABLE = {
    "accuracy": Row(("element path", "tile"), 48),
    "layouts": Row(("element path",), 30),
    "special_values": Row(("element path",), 30),
    "batch_invariance": Row(("element path",), 30),
    "accesses": Row(("bytes path", "tile"), 30),
    "explicit_formula": Row(("bytes path",), 20, ("row", "map")),
    "stored_types": Row(("bytes path",), 20),
    "broadcast_inputs": Row(("bytes path",), 20),
    "huge_strides": Row(("bytes path",), 20),
    "in_place": Row(("bytes path",), 20),
    "argument_refusals": Row(("bytes path",), 20),
    "preferences": Row(("bytes path",), 20),
    "check_order": Row(("bytes path",), 20),
    "entry_points": Row(("bytes path",), 20),
    # Of an op rather than of its kernels.
    "requirements": Row((), 60),
    "types": Row((), 60),
    "elements": Row((), 60),
    "declarations": Row((), 60),
}


def traits(subject: Subject, sku: KernelSku) -> dict[str, Hashable]:
    """The traits of a kernel, by name."""
    element = sku.element.row
    path: Hashable
    if subject.spec.family == "row":
        path = (sku.tile.wide, sku.tile.lanes > WARP)
    else:
        own = isinstance(subject.spec, BodySpec) and sku.arch in subject.spec.body
        path = (sku.arch if own else "", sku.layout, numbers(sku))
    return {
        "element": sku.element,
        "bytes": (element.bytes, element.acc.row.bytes),
        "path": path,
        "tile": (sku.arch, sku.layout, sku.schedule),
    }


def numbers(sku: KernelSku) -> frozenset[str]:
    """What a schedule counts, which tells the ways apart that a hand-written body has to do its work."""
    known = sku.schedule.numbers if isinstance(sku.schedule, Schedule) else ()
    return frozenset(name for name, _ in known) - {"blocks_per_sm"}


def kernels(check: str, subjects: Sequence[Subject]) -> list[KernelSku]:
    """What `check` runs on with the host device, in the order of `subjects`."""
    row = TABLE[check]
    chosen = {one.spec.op: _first_of_each(row, one) for one in subjects if one.spec.family in row.families}
    if (seed := os.environ.get(SAMPLE)) is None:
        return [sku for skus in chosen.values() for sku in skus]
    known = {one.spec.op: one for one in subjects}
    differing = {
        op: spread(skus, _traits_of(known[op]), lambda sku: f"{seed} {sku.symbol}")
        for op, skus in chosen.items()
    }
    sampled = set(share(differing, row.sampled, seed, os.environ.get(FIRST, "").split()))
    return [sku for skus in chosen.values() for sku in skus if sku in sampled]


def ops(check: str, subjects: Sequence[Subject]) -> list[Subject]:
    """The ops that a check of whole ops runs on."""
    if (seed := os.environ.get(SAMPLE)) is None:
        return list(subjects)
    first = os.environ.get(FIRST, "").split()
    sampled = share({one.spec.op: [one.spec.op] for one in subjects}, TABLE[check].sampled, seed, first)
    return [one for one in subjects if one.spec.op in sampled]


def _first_of_each(row: Row, subject: Subject) -> list[KernelSku]:
    seen: set[Hashable] = set()
    found = []
    for sku in skus(subject, "host"):
        known = traits(subject, sku)
        new = {(names, *(known[name] for name in names.split())) for names in row.one_for_each} - seen
        seen |= new
        if new:
            found.append(sku)
    return found


def _traits_of(subject: Subject) -> Callable[[KernelSku], set[Hashable]]:
    return lambda sku: set(traits(subject, sku).items())
