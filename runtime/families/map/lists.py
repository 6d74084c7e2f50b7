"""Reductions by an index: how positions are ordered by key, and how the list of each key is reduced."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...arrays.arguments import Views
from ...arrays.workspace import rounded
from ...plans.plan import Launch
from ...plans.schedule import Schedule
from ..row.geometry import Geometry
from .geometry import MAX_AXES, Axis, IndexSpace, divisor_words

MOST = 2**31 - 2**16  # positions, lists, and cells of a list: with those of a block, 31 bits number them
_DIGIT_BITS = 9  # of a key that a pass of the sort orders by
_KEYS = 4  # that a thread has at a time
_MOST_CHUNKS = 128  # whose digits every block adds up
_LEAST_SECTION, _MOST_SECTION = 64, 1024
_TURNS = 4  # of a block
_OWNERS = 32  # of a section: a warp's packs are neighbours
_ENOUGH_BLOCKS = 264  # two for each of an H100's multiprocessors
_MAX_GRID_Y = 65535
_WORD = 4  # bytes of a position


class Listed(NamedTuple):
    """The axes of a reduction by an index.

    `keyed`: those along which lists lie: the axes that the array of keys varies along, and those of the index.
    """

    keyed: tuple[Axis, ...]
    indexed: tuple[Axis, ...]
    others: tuple[Axis, ...]
    summed: tuple[Axis, ...]

    @classmethod
    def of(cls, space: IndexSpace, varying: set[Axis], dim: str, dims: Sequence[str]) -> Listed:
        kept = [axis for axis in space.extent if axis[0] not in dims]
        indexed = tuple(axis for axis in kept if axis[0] == dim)
        keyed = (*(axis for axis in kept if axis in varying and axis not in indexed), *indexed)
        others = tuple(axis for axis in kept if axis not in keyed)
        return cls(keyed, indexed, others, tuple(axis for axis in space.extent if axis[0] in dims))

    def ordered(self, steps: Mapping[Axis, int]) -> Listed:
        """As an array lies in memory that has these strides. Of an index along several axes, these stay last."""

        def along(axes: Sequence[Axis]) -> tuple[Axis, ...]:
            return tuple(sorted(axes, key=lambda axis: -abs(steps.get(axis, 0))))

        keyed = along(self.keyed) if len(self.indexed) == 1 else (*along(self.groups), *self.indexed)
        return self._replace(keyed=keyed, others=along(self.others))

    def numbers(self, extent: Mapping[Axis, int]) -> dict[Axis, int]:
        """How far lists are apart in their number, along each axis that they lie along."""
        return {axis: math.prod(extent[a] for a in self.keyed[n + 1 :]) for n, axis in enumerate(self.keyed)}

    @property
    def groups(self) -> tuple[Axis, ...]:
        """The axes of keys that are not reduced."""
        return tuple(axis for axis in self.keyed if axis not in self.indexed)

    @property
    def kept(self) -> tuple[Axis, ...]:
        return (*self.keyed, *self.others)


class ListCut(NamedTuple):
    """How lists are reduced, from the shape alone: the order of additions follows from these numbers and their lengths.

    A list of more than `section` positions is reduced in sections. `slices` threads share a cell of a list, `parts` one
    of a section. Owners are packs of `vec` cells where a list has whole packs, else cells.
    """

    lists: int
    cells: int  # of each list
    keys: int
    positions: int
    vec: int
    slices: int
    parts: int

    @classmethod
    def of(cls, lists: int, cells: int, keys: int, positions: int, vec: int, schedule: Schedule) -> ListCut:
        vec = vec if cells % vec == 0 else 1
        owners, most = lists * cells // vec, min(32, positions // max(1, lists) // schedule["packs"])
        slices = 1
        while 2 * slices <= most and owners * slices < _ENOUGH_BLOCKS * schedule.threads:
            slices *= 2
        shared = min(_OWNERS, 1 << max(0, cells // vec - 1).bit_length())
        return cls(lists, cells, keys, positions, vec, slices, schedule.threads // shared)

    @property
    def walk(self) -> str:
        return "lists"

    @property
    def section(self) -> int:
        """The most positions of a list that are reduced at once: about as many as there are then sections of all."""
        return min(_MOST_SECTION, max(_LEAST_SECTION, 1 << (self.positions.bit_length() + 1) // 2))

    @property
    def sections(self) -> int:
        """Places for what sections make: of each window of as many positions, one that begins a list and one more."""
        return 2 * -(-self.positions // self.section) if self.positions > self.section else 0

    @property
    def passes(self) -> int:
        """Of the sort, whose largest key is that of positions without a list."""
        return -(-self.lists.bit_length() // _DIGIT_BITS) if self.positions else 0

    def per_chunk(self, schedule: Schedule) -> int:
        tile = schedule.threads * _KEYS
        return tile * max(1, -(-self.positions // (tile * _MOST_CHUNKS)))

    def chunks(self, schedule: Schedule) -> int:
        return -(-self.positions // self.per_chunk(schedule))

    def arrays(self, schedule: Schedule) -> list[int]:
        """Bytes of each array that the sort has: keys and positions, twice, digits, and where lists start."""
        order, digits = self.positions * _WORD, self.chunks(schedule) * _WORD << _DIGIT_BITS
        return [rounded(size) for size in (order, order, order, order, digits, (self.lists + 1) * _WORD)]

    def words(self, schedule: Schedule) -> list[int]:
        """`Cut` as the kernel has it."""
        return [self.positions, self.slices.bit_length() - 1, 1, self.positions, self.parts.bit_length() - 1]

    def list_words(self, step: int, groups: Sequence[int], schedule: Schedule) -> list[int]:
        """`Lists` as the kernel has it, up to its arrays."""
        bits = -(-self.lists.bit_length() // max(1, self.passes))
        sort = [self.passes, bits, self.per_chunk(schedule), *groups[::-1], *[0] * (MAX_AXES - len(groups))]
        divisor = divisor_words(self.cells, wide=False)
        return [self.lists, self.cells, *divisor, self.keys, step, self.positions, self.section, *sort]

    def sort_grids(self, schedule: Schedule) -> tuple[tuple[int, int, int], ...]:
        """The blocks of each launch of the sort."""
        if self.lists * self.cells == 0:
            return ()
        return (*[(self.chunks(schedule), 1, 1)] * (2 * self.passes), (self.lists // schedule.threads + 1, 1, 1))

    def grids(self, lanes: int, schedule: Schedule) -> tuple[tuple[int, int, int], ...]:
        """The blocks of sections and of lists, whose threads have packs of `lanes` cells."""
        if self.lists * self.cells == 0:
            return ()
        across = -(-self.cells // (lanes * (schedule.threads // self.parts)))
        block = schedule.threads // self.slices * lanes * _TURNS
        return (self.sections, min(across, _MAX_GRID_Y), 1), (-(-self.lists * self.cells // block), 1, 1)

    def depth(self, vec: int, schedule: Schedule) -> int:
        """The maximum number of roundings of a term; those of a compensated sum count twice."""
        thread = schedule["packs"].bit_length() + 2
        of_section = self.parts.bit_length() + 2 if self.sections else 0
        return thread + of_section + self.slices.bit_length() - 1

    def too_many(self) -> str | None:
        """Why the numbers of the problem have no room, or None."""
        for what, count in (("positions", self.positions), ("lists", self.lists), ("cells of a list", self.cells)):
            if count > MOST:
                return f"reduces by an index over {count} {what}, there is room for {MOST}"
        return None


class ListGeometry(NamedTuple):
    """The launches of the sort and of the reductions; each waits for the one before."""

    order: Geometry
    lists: Geometry

    def launches(self, views: Views, workspace: int) -> list[Launch]:
        """Of those that have blocks."""
        made = [*self.order.launches(views, workspace), *self.lists.launches(views, workspace)]
        return [x._replace(overlaps=number > 0) for number, x in enumerate(x for x in made if x.grid[0])]
