"""Which cell reads an element at a computed place, and what values are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .derived_lines import DerivedLines
from .error import ProgramError
from .invert import Inverse, indices_in, inverses
from .source import to_source
from .tree import Call, Cast, Const, Expr, Name, Query, Read, Reduce, mapped, reads, varies

NO_READER = (
    "{read!r} has no gradient of its own: more than one cell may read an element by {place!r}; read one place only, "
    "by an array of ints that does not vary along {dim}: an input, or an output that `gradient: {{saved: [...]}}` "
    "names; or write it out in a program under `backward`, as a sum of where(index({dim}) == {place}, ..., 0.0) over "
    "the cells; or leave the input out of gradient: wrt"
)
_NOT_HERE = (
    "the gradient of {read!r} needs {value!r} of other cells; make that an output and name it under `backward`, in "
    "`gradient: {{saved: [...]}}`"
)
Reader = tuple[str, Inverse]  # a dim of the cells that read an element, and where along it the cell is


@dataclass(slots=True)
class DerivedPlaces(DerivedLines):
    """Lines whose values can be told in another cell."""

    def _is_fixed(self, place: Expr) -> bool:
        """Whether all cells read the same place."""
        return not indices_in(place) and not varies(place, self.dims)

    def _keyed(self, read: Read, fixed: Iterable[str]) -> str | None:
        """The dim along which an array of ints has the place, if no other is computed: many cells may read one."""
        match [(d, p) for d, p in zip(read.dims, read.places, strict=True) if d in read.computed and d not in fixed]:
            case [(dim, Name(id=keys))] if keys in self.forward.tensors and dim not in self.dims[keys]:
                return dim
        return None

    def _rests_on_arrays(self, place: Expr) -> bool:
        return any(self.dims[name] for name in self._behind([place])[0] if name in self.forward.tensors)

    def _written_out(self, place: Expr) -> Expr:
        """A place without the names of lines that say where it is along dims, if no array does."""
        if self._rests_on_arrays(place):
            return place
        lines = {line.name: line.expr for line in self.values if self.dims[line.name]}

        def written(expr: Expr) -> Expr:
            return written(lines[expr.id]) if isinstance(expr, Name) and expr.id in lines else mapped(expr, written)

        return written(place)

    def _readers_of(self, read: Read, dim: str, first: frozenset[str]) -> list[Reader]:
        """A dim along which few cells read each place along `dim`, and which; of several dims, one in `first`, then one
        of the values that are differentiated.
        """
        by_dim = {d: self._written_out(p) for d, p in zip(read.dims, read.places, strict=True)}
        place = by_dim.pop(dim)
        own = indices_in(place) - frozenset[str]().union(*map(indices_in, by_dim.values()))
        outer = frozenset[str]().union(*(self.dims[name] for name in self.cotangents))
        for cell in sorted(own, key=lambda d: (d not in first, d not in outer, d)):
            sizes = self.forward.sizes.get(cell, frozenset()) | {Query("size", cell)}
            found = inverses(place, cell, Query("index", dim), sizes)
            if found is not None and not any(cell in self.dims[name] for name in reads(place)):
                return [(cell, of) for of in found]
        return []

    def _in_cell(self, expr: Expr, places: Mapping[str, Expr], read: Read) -> Expr:
        """`expr` in the cell whose index along each dim of `places` is the one there."""
        if varies(expr, self.dims).isdisjoint(places):
            return expr
        match expr:
            case Query(of=of):
                return places[of]
            case Name(id=name) if name in self.forward.tensors:
                dims = self.forward.tensors[name]
                return Read(name, dims, tuple(places.get(d, Query("index", d)) for d in dims), Const(0.0))
            case Name(id=name) if line := next((x for x in (*self.values, *self.made) if x.name == name), None):
                return self._in_cell(line.expr, places, read)
            case Read(tensor=tensor, dims=dims, places=own, outside=outside):
                return Read(tensor, dims, tuple(self._in_cell(p, places, read) for p in own), outside)
            case Call(op=op, args=args):
                return Call(op, tuple(self._in_cell(a, places, read) for a in args))
            case Cast(to=to, arg=arg):
                return Cast(to, self._in_cell(arg, places, read))
            case Reduce(kind=kind, arg=arg, dims=dims) if {*dims}.isdisjoint(self._dims_of(places)):
                return Reduce(kind, self._in_cell(arg, places, read), dims)
        raise ProgramError(_NOT_HERE.format(read=to_source(read), value=to_source(expr)))

    def _dims_of(self, places: Mapping[str, Expr]) -> frozenset[str]:
        return frozenset(places).union(*(varies(place, self.dims) for place in places.values()))
