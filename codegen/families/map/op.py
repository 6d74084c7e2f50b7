"""The model of the map family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isinf
from typing import Any

from baracuda.runtime import MapPlan, Schedule

from ...lower.op import Op, Scalar, Tensor, Value
from ...program import Call, Expr
from ...program.tree import Const, Query, walk
from ...program.tree import Name as FieldName
from ...spec.names import in_kernel
from ...text import Code, Name


@dataclass(frozen=True, slots=True)
class Store:
    """An output and its value, or the input that it `copies` element by element."""

    tensor: Tensor
    expr: Expr | None
    copies: Name | None


_PART_BYTES = {"int": 8, "bool": 1, "float": 0}  # of a value in scratch; 0: as many as the accumulator's


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """A value reduced over the summed dims, if the descriptor's flag `optional` requests it."""

    name: Name
    slot: Name  # where kernels keep it
    beside: bool  # a sum whose slot holds the spread of the same terms, and their mean
    how: str  # "sum", "max", ...
    arg: Expr
    of: str  # what is reduced: "float", "int" or "bool"
    kind: str  # what that gives
    place: Expr | None  # of a cell, for the place of an extreme
    optional: str
    zero_if_missing: bool  # for a cell that does not exist, whose inputs are 0, the term is 0 (or -0)

    @property
    def part_bytes(self) -> int:
        if self.how == "spread":  # count, mean and spread of the widest accumulator
            return 24
        return 16 if self.place else _PART_BYTES[self.kind]

    @property
    def local(self) -> Name:
        return in_kernel(self.name)


@dataclass(frozen=True, slots=True)
class Made:
    """A factor that cells make of codes of four bits: what reads these, and up to two arrays that groups share.

    `high`: elements of codes have the first one in their high bits; `paired`: a factor is `T((code - zero) * scale)`.
    """

    codes: Name
    tensor: Name  # that has them
    groups: tuple[Name, ...] = ()
    high: bool = False
    paired: bool = False


@dataclass(frozen=True, slots=True)
class PlacedRead:
    """An input's element at a computed place: a place along each axis that has one, and what these are computed of.

    If the `still` operands do not change from cell to cell, places are equally far apart where `pieces` are the same,
    and those along the axes in `same` do not change.
    """

    name: Name
    tensor: Tensor
    places: tuple[Expr, ...]
    outside: Expr
    placed: tuple[PlacedRead, ...]
    uniform: tuple[Tensor, ...]
    converted: tuple[Tensor, ...]
    indices: tuple[Name, ...]
    sizes: tuple[Name, ...]
    scalars: tuple[Scalar, ...]
    values: tuple[Value, ...]
    still: tuple[Name, ...]
    pieces: tuple[Expr, ...]
    same: tuple[int, ...]

    @property
    def kind(self) -> str:
        return self.tensor.kind

    @property
    def swapped(self) -> tuple[Name, int] | None:
        """The dim whose index is the only place but for some bits, and these."""
        match self.places:
            case (Query(what="index", of=dim),):
                return Name(dim), 0
            case (Call(op="bitwise_xor", args=(Query(what="index", of=dim), Const(value=int(mask)))),) if mask > 0:
                return Name(dim), mask
        return None

    @property
    def local(self) -> Name:
        return in_kernel(self.name)


@dataclass(frozen=True, slots=True)
class Body:
    """What is computed of one cell: tensors to read, indices and values, then what becomes of them."""

    name: Name
    known: tuple[Sum, ...]  # sums that are computed already
    reads: tuple[Tensor, ...]
    placed: tuple[PlacedRead, ...]
    uniform: tuple[Tensor, ...]  # numbers in memory that all cells compute with
    converted: tuple[Tensor, ...]  # of those, the ones whose value the program computes with
    indices: tuple[Name, ...]
    sizes: tuple[Name, ...]
    scalars: tuple[Scalar, ...]
    shared: tuple[Value, ...]  # of all cells
    values: tuple[Value, ...]
    stores: tuple[Store, ...]
    sums: tuple[Sum, ...]
    kinds: tuple[tuple[Name, Body], ...] = ()  # the computation of each kind, where they differ

    @property
    def queried(self) -> tuple[Name, ...]:
        """The dims whose index it reads, for places too."""
        return tuple(dict.fromkeys((*self.indices, *(d for read in self.placed for d in read.indices))))

    @property
    def operands(self) -> frozenset[Name]:
        """The tensors and indices whose place it finds for each cell."""
        tensors = (*self.reads, *(read.tensor for read in self.placed), *(store.tensor for store in self.stores))
        return frozenset((*(t.name for t in tensors), *self.queried))

    @property
    def random(self) -> bool:
        """Whether it draws random numbers."""
        if self.kinds:
            return any(body.random for _, body in self.kinds)
        exprs = [v.expr for v in (*self.shared, *self.values)]
        exprs += [*(s.expr for s in self.stores if s.expr), *(s.arg for s in self.sums)]
        exprs += [x for read in self.placed for x in (*read.places, *(v.expr for v in read.values))]
        return any(isinstance(e, Call) and e.op == "philox" for x in exprs for e in walk(x))


def joined(bodies: Mapping[Name, Body]) -> Body:
    """One body for all kinds: it reads what any of them needs, and stores and sums what each does."""
    first = next(iter(bodies.values()))

    def union(part: str) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(value for body in bodies.values() for value in getattr(body, part)))

    parts = ("reads", "uniform", "converted", "indices", "sizes", "scalars", "shared")
    needed: dict[str, Any] = {part: union(part) for part in parts}
    return replace(first, **needed, kinds=tuple(bodies.items()))


@dataclass(frozen=True, slots=True)
class Entry:
    """One SKU: an element type and how its work is cut up."""

    element: Name
    schedule: Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class MapOp(Op):
    """An op of the map family: a program for each cell of an index space."""

    arch: Name
    dims: tuple[tuple[Name, str], ...]  # dim -> the field, or the expression over fields, that gives its extents
    shares: tuple[tuple[Name, str], ...]  # dim -> which axes of its shape, or the rest
    space: tuple[tuple[str, ...], ...]  # the dims in row-major order; those of one group are interleaved axis by axis
    axes: tuple[tuple[Name, tuple[tuple[str, ...], ...]], ...]  # argument -> the group of dims of each run of its axes
    summed: tuple[str, ...]
    placed: tuple[tuple[Name, tuple[Name, ...]], ...]  # argument -> the dims along which its places are computed
    indices: tuple[Name, ...]  # dims whose index the program reads
    sizes: tuple[Name, ...]  # dims whose size it reads
    scalars: tuple[Scalar, ...]
    cells: Body  # when only values of cells are wanted
    terms: Body  # when sums are, too
    epilogue: Body  # once the sums are known
    invariant: tuple[Name, ...]  # dims of which sums along others have one order of additions, however long they are
    lists: tuple[Name, ...]  # of sums by an index: the array of keys, and the dim whose index they are compared with
    copies: tuple[tuple[Name, Name], ...]  # output -> the input that it equals
    entries: tuple[Entry, ...]
    kinds: Mapping[str, str]  # of the program's names: "float", "int" or "bool"
    number: int = 0  # of a pass, from 1
    loop: int = 0  # of a pass that runs for each chunk of a dim: with which others
    served: tuple[Name, ...] = ()  # of a pass: the kinds that take it, of an op that has some
    passes: tuple[MapOp, ...] = ()  # in order, of a program that takes several; then the op itself has no bodies
    made: Made | None = None  # how its cells make a factor
    bounds: tuple[str, ...] = ()  # of its whole numbers
    long_scalars: frozenset[str] = frozenset()  # the fields that have 64 bits nevertheless
    divisors: frozenset[str] = frozenset()  # the fields by which it divides numbers that have bounds
    in_order: bool = False  # whether places of extremes are counted in the order of the summed axes
    makers: tuple[int, ...] = ()  # of a pass whose cells make a factor: the numbers of all that do

    @property
    def has_places(self) -> bool:
        """Whether it finds places of extremes."""
        return any(s.place is not None for s in self.sums)

    @property
    def layout_names(self) -> tuple[str, ...]:
        return MapPlan.LAYOUTS

    @property
    def walks(self) -> Name:
        """The folder of the header that has its walks."""
        return Name("map")

    def folder_of(self, of: MapOp) -> Name:
        """The folder of the headers of a pass."""
        return self.walks

    @property
    def fills(self) -> tuple[tuple[Name, Name], ...]:
        """The fields that are read outside of arrays, each with an array; () if something else that is inexact is."""
        placed = [read for body in self.bodies for read in body.placed]
        others = [of.outside.value for of in placed if isinstance(of.outside, Const)]
        if any(other and not isinf(other) for other in others):
            return ()
        fields = ((of.outside.id, of.tensor.name) for of in placed if isinstance(of.outside, FieldName))
        return tuple(dict.fromkeys((Name(field), Name(tensor)) for field, tensor in fields))

    @property
    def headers(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The headers of its walks, each with the passes that it is for, where passes have several."""
        found: dict[str, list[int]] = {}
        passes = [(self.folder_of(of), of) for of in self.passes or (self,)]
        by_index = {folder for folder, of in passes if of.lists}
        for folder, of in passes:
            header = "by_index" if folder in by_index else "walk"
            found.setdefault(f"{folder}/{header}.cuh", []).append(of.number)
        return tuple((path, tuple(numbers) if len(found) > 1 else ()) for path, numbers in found.items())

    @property
    def phases(self) -> Code:
        """For each sum, the last one first, when it is reduced; empty if all are at once."""
        return Code("")

    @property
    def is_shared(self) -> bool:
        """Whether a pass is one kernel for several kinds."""
        return len(self.served) > 1 and not self.kinds_offered

    @property
    def operands(self) -> tuple[Name, ...]:
        """What has a place for each cell: tensors that are not one number, and the indices that the program reads."""
        numbers = {name for name, groups in self.axes if not groups} - {of for _, of in self.copies}
        cells = (t for t in self.tensors if t.role != "in" or t.name not in numbers)
        return (*(t.local for t in cells), *(Name(f"{d}_index") for d in self.indices))

    @property
    def bodies(self) -> tuple[Body, ...]:
        """The device functions that do something."""
        summed = (self.terms, self.epilogue) if self.sums else ()
        return (*((self.cells,) if self.cells.stores and not self.makers else ()), *summed)

    @property
    def sums(self) -> tuple[Sum, ...]:
        return self.terms.sums

    @property
    def sum_flags(self) -> tuple[str, ...]:
        """For each sum, the descriptor's flag that says it is wanted."""
        return tuple(s.optional for s in self.sums)

    @property
    def sum_bytes(self) -> tuple[int, ...]:
        """For each sum, the bytes of a part in scratch; empty if all have the accumulator's type."""
        sizes = tuple(s.part_bytes for s in self.sums)
        return sizes if any(sizes) else ()

    @property
    def sum_outputs(self) -> tuple[str, ...]:
        """The arguments that are made of sums."""
        return tuple(s.tensor.name for s in self.epilogue.stores)
