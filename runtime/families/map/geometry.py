"""A map problem in integers: an index space of named dims, how sums are split, and axes as kernels divide by them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import ClassVar, NamedTuple, Self

from ...errors import InvalidProblem
from ...plans.descriptor import Descriptor
from ...plans.formula import names_in
from ...plans.schedule import Schedule

MAX_AXES = 16
LARGEST = 2**63 - 1  # an extent, or a number of elements
_MOST_COPIES = 16  # that a block makes, so that the last blocks do not take long
_MAX_GRID_Y = 65535
_WORTH_SPLITTING = 4  # turns of a block: below that, a second launch costs more than it saves
# Of 100,011 cells and 16 terms, singles take 5.8 us on an H200, columns 7.6.
_MANY_CELLS, _MANY_TERMS = 100_000, 16
_ENOUGH_BLOCKS = 1056  # eight for each of an H200's multiprocessors
_PLACE = 16  # bytes of an extreme and its place
_NEARLY_FULL, _MOSTLY_FULL = 0.05, 0.2  # of a single wave, what is next to nothing idle, and what may be
_TURNS_OF_INVARIANT = 64  # of a block, of a sum with one order for all batches: with fewer, other blocks take a part
_WARP = 32
Axis = tuple[str, int]  # of a dim, counted from the front
Group = tuple[str, ...]  # dims whose product runs along each of a tensor's axes


class MapDescriptor(Descriptor):
    """A descriptor whose fields are the extents of an index space."""

    __slots__ = ()
    _dims: ClassVar[dict[str, str]]  # dim -> what gives its extents: a field, or an expression over fields
    _axes: ClassVar[dict[str, str]] = {}  # dim -> the axes of its shape that it is, or "rest": dims that share it out
    _chunks: ClassVar[dict[str, str]] = {}  # a dim of which passes take so much at once, an expression over fields
    _space: ClassVar[tuple[Group, ...]] = ()  # row-major; the dims of one group are interleaved axis by axis

    def _check_extents(self) -> None:
        space = IndexSpace.of(self)
        fields = tuple(dict.fromkeys(name for text in self._dims.values() for name in names_in(text)))
        products = [math.prod(space.extent[a] for a in axes) for axes in space.axes_along(self._space)]
        if max([*products, math.prod(space.extent.values()), *space.beside.values()]) > LARGEST:
            raise self._violated(InvalidProblem, "extents, and as many elements, as fit in 63 bits", fields)

    def _extents_of(self, dim: str) -> tuple[int, ...]:
        """The extents along a dim's axes."""
        text = self._dims[dim]
        extents = getattr(self, text) if text in self._types else self._value_of(text)
        if dim in self._axes:
            return tuple(extents[axis] for axis in self._shares[dim])
        return extents if isinstance(extents, tuple) else (extents,)

    def _chunk_starts(self, dim: str) -> range:
        """Where the chunks of a dim begin; there is always one."""
        return range(0, max(1, getattr(self, self._dims[dim])), self._chunk_of(dim))

    def _in_chunks(self, dim: str) -> tuple[Self, Self]:
        """The problem with no more of a dim than the first chunk, and than the last one."""
        size, starts = getattr(self, self._dims[dim]), self._chunk_starts(dim)
        return self._with(dim, min(size, starts.step)), self._with(dim, size - starts[-1])

    def _chunk_of(self, dim: str) -> int:
        """How much of a dim is a chunk."""
        most: int = self._value_of(self._chunks[dim])
        return max(1, most)

    def _with(self, dim: str, size: int) -> Self:
        """The problem with so much of a dim that is a field."""
        return type(self)(**vars(self) | {self._dims[dim]: size})

    @property
    def _shares(self) -> dict[str, tuple[int, ...]]:
        """Dims that share out the axes of a shape -> which these are, in order."""
        if not self._axes:
            return {}
        given = {dim: tuple(sorted(self._value_of(text))) for dim, text in self._axes.items() if text != "rest"}
        rank = len(getattr(self, self._dims[next(iter(self._axes))]))
        taken = {axis for axes in given.values() for axis in axes}
        rest = tuple(axis for axis in range(rank) if axis not in taken)
        return {dim: given.get(dim, rest) for dim in self._axes}


class IndexSpace(NamedTuple):
    """The axes of all dims in row-major order, each with its extent.

    Along those `beside` there are no cells: they are axes of arrays that are read at computed places.
    """

    extent: dict[Axis, int]
    beside: dict[Axis, int]
    shares: dict[str, tuple[int, ...]]  # dims of one shape -> which of its axes they are

    @classmethod
    def of(cls, descriptor: MapDescriptor, space: Sequence[Group] | None = None) -> IndexSpace:
        """The space of a problem, or of one pass, whose cells are along the dims of `space` only."""
        shapes = {dim: descriptor._extents_of(dim) for dim in descriptor._dims}
        shares = descriptor._shares
        within = descriptor._space if space is None else space
        places = _axes_along(within, {dim: len(shape) for dim, shape in shapes.items()}, shares)
        extent = {(dim, axis): shapes[dim][axis] for axes in places for dim, axis in axes}
        axes = {(dim, axis): n for dim, shape in shapes.items() for axis, n in enumerate(shape)}
        return cls(extent, {axis: n for axis, n in axes.items() if axis not in extent}, shares)

    def size(self, dim: str) -> int:
        return math.prod(n for (of, _), n in (*self.extent.items(), *self.beside.items()) if of == dim)

    def run_apart_from(self, summed: Sequence[str], batch: Collection[str] = ()) -> int:
        """The number of kept cells before the next step along a summed axis; 0 if the last long axis is summed.

        Axes of the `batch` count as long.
        """
        run = 1
        for (dim, _), n in reversed(self.extent.items()):
            if n > 1 and dim in summed:
                break
            run *= max(2 if dim in batch else 1, n)
        return run if run > 1 else 0

    def axes_along(self, groups: Sequence[Group]) -> list[tuple[Axis, ...]]:
        """For each axis of a tensor whose axes are products of `groups`, those of the space, the last fastest."""
        return _axes_along(groups, Counter(dim for dim, _ in (*self.extent, *self.beside)), self.shares)

    def shape_of(self, groups: Sequence[Group]) -> tuple[int, ...]:
        extent = {**self.extent, **self.beside}
        return tuple(math.prod(extent[a] for a in axes) for axes in self.axes_along(groups))

    def places(self, dim: str) -> dict[Axis, int]:
        """How far a step along each axis of `dim` is when its cells are counted, the last axis fastest."""
        steps, step = {}, 1
        for axis in reversed([a for a in self.extent if a[0] == dim]):
            steps[axis] = step
            step *= self.extent[axis]
        return steps

    def strides_of(self, groups: Sequence[Group], strides: Sequence[int]) -> dict[Axis, int]:
        """A tensor's strides along each axis of the space that it varies along."""
        by_axis, steps, extent = {}, iter(strides), {**self.extent, **self.beside}
        for axes in self.axes_along(groups):
            step = next(steps)
            for axis in reversed(axes):
                by_axis[axis] = step
                step *= extent[axis]
        return by_axis


def _axes_along(
    groups: Sequence[Group], ranks: Mapping[str, int], shares: Mapping[str, tuple[int, ...]]
) -> list[tuple[Axis, ...]]:
    """The axes of `groups`, one after the other; neighbours that share out a shape keep the order of its axes."""
    along: list[tuple[Axis, ...]] = []
    for sharing, run in groupby(groups, lambda group: group[0] in shares):
        if sharing:
            axes = [((dim, axis), place) for (dim,) in run for axis, place in enumerate(shares[dim])]
            along += [(axis,) for axis, _ in sorted(axes, key=lambda pair: pair[1])]
        else:
            along += [tuple((dim, axis) for dim in group) for group in run for axis in range(ranks[group[0]])]
    return along


class Cut(NamedTuple):
    """How sums are split, from the shape alone: the order of every addition follows from these numbers.

    ROWS: an owner is a kept cell, whose terms come in packs along the last axis. COLUMNS: an owner is a pack of kept
    cells along the last axis. SINGLES: an owner is a kept cell. `slices` threads of a block share an owner, `splits`
    blocks share a sum; singles have one of each. All of these follow from the number of terms alone, whatever is kept,
    in an `invariant` cut.
    """

    walk: str
    kept: int
    units: int  # packs of terms (ROWS) or terms of one owner
    slices: int
    blocks: int
    splits: int
    per_split: int
    invariant: bool = False

    @classmethod
    def of(cls, kept: int, summed: int, run: int, vec: int, schedule: Schedule, *, part_bytes: int = 0) -> Cut:
        """`run`: so many kept cells come before the next step along a summed axis; 0 if the last long axis is one.

        Singles are what can never be whole packs, with cells and terms enough for a thread to have one cell. Where
        terms are no whole packs, or it is not cheap to add slices up, a warp has an owner, if there are enough of them:
        var of bf16 16384x14336 by its last axis takes 168 us on an H100, 182 with a block for each. `part_bytes`: of
        the widest value that is reduced; 0 if all are numbers of the accumulator, which are cheap to add up.
        """
        threads, packs, blocks = schedule.threads, schedule["packs"], schedule["blocks"]
        if run % vec and kept >= _MANY_CELLS and summed >= _MANY_TERMS:
            return cls("singles", kept, summed, 1, -(-kept // threads), 1, summed)
        last_is_summed = run == 0
        units = -(-summed // vec) if last_is_summed else summed
        all_owners = kept if last_is_summed else -(-kept // vec)
        if last_is_summed:
            slices = min(threads, power_of_two(-(-units // packs)))
            few = part_bytes or summed % vec
            while few and slices > _WARP and _blocks(kept, threads, slices // 2) >= max(blocks, _ENOUGH_BLOCKS):
                slices //= 2
        else:
            slices = least = threads // min(threads, power_of_two(all_owners))
            most = min(threads // 32, units // packs)
            while 2 * slices <= most and _blocks(all_owners, threads, slices) < blocks:
                slices *= 2
        groups = _blocks(all_owners, threads, slices)
        turn = slices * packs  # what a block takes at a time
        turns = -(-units // turn)
        splits = 1 if turns < _WORTH_SPLITTING else max(1, min(-(-blocks // max(1, groups)), turns))
        if splits > 1 and groups and not last_is_summed:
            splits = _filling(splits, groups, turns, wave=max(1, blocks // 2))
            wave = blocks // 4
            alone = part_bytes >= _PLACE and run % vec == 0
            if alone and (way := _in_one_wave(all_owners, units, (least, slices), schedule, wave)):
                slices, splits = way
                groups, turn = _blocks(all_owners, threads, slices), slices * packs
                turns = -(-units // turn)
        per_split = -(-turns // splits) * turn
        splits = max(1, -(-units // max(1, per_split)))
        return cls("rows" if last_is_summed else "columns", kept, units, slices, groups, splits, per_split)

    @classmethod
    def invariant_of(cls, kept: int, summed: int, run: int, vec: int, schedule: Schedule) -> Cut:
        """One order of additions, however many cells are kept: a thread has some terms at least, a block many turns."""
        threads, packs, by_row = schedule.threads, schedule["packs"], run == 0
        units, owners = (-(-summed // vec), kept) if by_row else (summed, -(-kept // vec))
        most = threads if by_row else threads // _WARP
        slices = min(most, power_of_two(max(1, units // (packs * _WORTH_SPLITTING))))
        turn = slices * packs
        turns = -(-units // turn)
        splits = max(1, turns // _TURNS_OF_INVARIANT) if schedule["blocks"] > 1 else 1
        per_split = max(1, -(-turns // splits)) * turn
        walk, groups = "rows" if by_row else "columns", _blocks(owners, threads, slices)
        return cls(walk, kept, units, slices, groups, max(1, -(-units // per_split)), per_split, invariant=True)

    def reduce_slices(self, schedule: Schedule) -> int:
        """How many threads share a kept cell when splits are added up."""
        owners = _WARP if self.invariant else min(_WARP, power_of_two(self.kept))
        return schedule.threads // owners

    def words(self, schedule: Schedule) -> list[int]:
        """`Cut` as the kernel has it."""
        return [self.units, _log(self.slices), self.splits, self.per_split, _log(self.reduce_slices(schedule))]

    def grids(self, schedule: Schedule) -> tuple[tuple[int, int, int], ...]:
        """The blocks of each launch."""
        if self.kept == 0:
            return ()
        sums = (self.blocks, self.splits, 1)
        if self.splits == 1:
            return (sums,)
        return sums, (-(-self.kept * self.reduce_slices(schedule) // schedule.threads), 1, 1)

    def depth(self, vec: int, schedule: Schedule) -> int:
        """The maximum number of roundings of a term; those of a compensated sum count twice."""
        turn = schedule["packs"] * {"rows": 2 * vec, "columns": 2, "singles": vec}[self.walk] // 2
        in_block = _log(turn) + 3 + _log(self.slices)
        return in_block if self.splits == 1 else in_block + 3 + _log(self.reduce_slices(schedule))


class CellCut(NamedTuple):
    """How cells are dealt to blocks: neighbours per block, and copies of them."""

    cells: int
    per_block: int
    copies: int
    per_split: int

    @classmethod
    def of(cls, cells: int, copies: int, layout: str, vec: int, schedule: Schedule) -> CellCut:
        per_block = schedule.threads * (schedule["packs"] if layout == "strided" else vec)
        blocks = -(-cells // per_block) if cells else 1
        splits = max(-(-copies // _MOST_COPIES), min(copies, -(-2 * schedule["blocks"] // blocks)))
        return cls(cells, per_block, copies, max(1, -(-copies // min(max(1, splits), _MAX_GRID_Y))))

    def words(self, schedule: Schedule) -> list[int]:
        """The kernel's `Cut`."""
        return [self.copies, 0, 0, self.per_split, 0]

    def grids(self, schedule: Schedule) -> tuple[tuple[int, int, int], ...]:
        """The blocks of the launch."""
        if self.cells * self.copies == 0:
            return ()
        return ((-(-self.cells // self.per_block), -(-self.copies // self.per_split), 1),)


def _filling(least: int, groups: int, turns: int, wave: int) -> int:
    """How many parts of `turns` turns each of the groups has, at least as many, so that blocks fill whole waves.

    A `wave` are those that run at once, half of a schedule's: four on each multiprocessor. Sums of bf16 16384x14336 by
    the first axis take 177 us of an H100 in 1064 blocks, 160 us in 2072.
    """
    return min(range(least, min(2 * least, turns) + 1), key=lambda splits: _idle(splits, groups, turns, wave))


def _in_one_wave(
    owners: int, units: int, slices: tuple[int, int], schedule: Schedule, wave: int
) -> tuple[int, int] | None:
    """As many slices, between the least and the most, and parts as fill most of a single wave, if any do.

    Blocks that keep much, or compute much, do so once then. Of bf16 16384x14336 by the first axis, argmax takes 121 us
    of an H200 in 252 blocks, two on a multiprocessor, and 124 in 504; a variance 148 in 252 blocks with 4 slices, 159
    in 224 with 8. Where cells are no packs, more blocks hide more: 434 and 253 us with 14335 columns.
    """
    idle = {}
    for bits in range(_log(slices[1]), _log(slices[0]) - 1, -1):
        groups, turns = _blocks(owners, schedule.threads, 1 << bits), -(-units // ((1 << bits) * schedule["packs"]))
        if splits := min(wave // groups, turns):
            idle[1 << bits, splits] = _idle(splits, groups, turns, wave)
    best = next((way for way in idle if idle[way] <= _NEARLY_FULL), min(idle, key=lambda way: idle[way], default=None))
    return best if best and idle[best] <= _MOSTLY_FULL else None


def _idle(splits: int, groups: int, turns: int, wave: int) -> float:
    """The part of whole waves that no block fills."""
    blocks = groups * -(-turns // -(-turns // splits))
    return -blocks % wave / (blocks + -blocks % wave)


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least `n`."""
    return 1 << max(0, n - 1).bit_length()


def _log(power: int) -> int:
    return power.bit_length() - 1


def _blocks(owners: int, threads: int, slices: int) -> int:
    return -(-owners // (threads // slices))


def divisor_words(n: int, *, wide: bool) -> tuple[int, int]:
    """The magic divisor and the shift by which kernels divide by `n`; zeros for 0 and 1.

    With l = ceil(log2 d) and m = floor(2^(B - 1 + l) / d) + 1, n // d == (n * m) >> (B - 1 + l) for n < 2^(B - 1)
    (Granlund and Montgomery, Division by Invariant Integers using Multiplication, 1994).
    """
    if n < 2:
        return 0, 0
    bits, log = 64 if wide else 32, (n - 1).bit_length()
    magic = (1 << (bits - 1 + log)) // n + 1
    return (magic + 2**63) % 2**64 - 2**63, log - 1


def short_divisor(n: int) -> tuple[int, int]:
    """By the same theorem a magic divisor, also for 1, and l: k // n is (k * magic) >> (31 + l) for k < 2^31."""
    log = (n - 1).bit_length()
    return (1 << (31 + log)) // n + 1, log


def space_words(extents: Sequence[int], *, wide: bool) -> list[int]:
    """`Space` as the kernel has it: numbers of cells and axes, then extents and their divisors, last axis first."""
    padding = [0] * (MAX_AXES - len(extents))
    magics, shifts = zip(*(divisor_words(n, wide=wide) for n in extents), strict=True)
    return [
        math.prod(extents),
        len(extents),
        *(*extents[::-1], *padding),
        *(*magics[::-1], *padding),
        *(*shifts[::-1], *padding),
    ]
