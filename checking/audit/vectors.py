"""Whether a packed row kernel reads and writes in whole vectors.

A thread of the row family owns 16-byte packs and accesses a row in moves of 16 bytes, or of the whole pack where a
narrower type makes it smaller. In the packed layout, for the tensors that a pass along the row touches:

- every move is at least that wide, by the PTX, which says whose memory it is, but for elements read at computed places;
- each tensor has a move for every pack of the tile, so that all are in flight at once;
- the machine code has no fewer moves of that width than the tile needs: the assembler split none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from baracuda.codegen.lower.op import Tensor
from baracuda.codegen.program.tree import Read
from baracuda.runtime import ElementKind, KernelSku, Tile
from baracuda.runtime.families.row.geometry import MAX_AXES
from baracuda.runtime.plans.sku import VECTOR_BYTES

from .facts import Facts
from .ptx import UNKNOWN

_WORD = 8
_HEAD_WORDS = 1 + 3 + 2 * (1 + MAX_AXES)  # the stage, the sizes with 1 over the columns, the axes of both with extents
_WORDS = {"element": 1 + 2 * MAX_AXES + 2, "row": 1 + MAX_AXES, "col": 1 + MAX_AXES}


@dataclass(frozen=True, slots=True)
class _Claim:
    """`moves` instructions of at least `width` bytes each, and no more than `single` narrower ones."""

    tensor: Tensor
    width: int
    moves: int
    single: int = 0


def vectors(op: Any, sku: KernelSku, layout: str, facts: Facts) -> Iterator[str]:
    """Accesses narrower than the schedule requires."""
    if layout != "packed" or not isinstance(sku.schedule, Tile):
        return
    offsets = pointers(op)
    sides = (
        ("read", _reads(op, sku), facts.ptx.loads, facts.sass.loads),
        ("written", _writes(op, sku), facts.ptx.stores, facts.sass.stores),
    )
    for verb, claims, by_pointer, in_machine_code in sides:
        if UNKNOWN in by_pointer:
            yield f"memory {verb} through a pointer that is not followed: {_listed(by_pointer[UNKNOWN])}"
        needed = 0
        for claim in claims:
            moves = by_pointer.get(offsets[claim.tensor.name], {})
            wide = sum(count for width, count in moves.items() if width >= claim.width)
            if sum(moves.values()) - wide > claim.single or wide < claim.moves:
                yield (
                    f"{claim.tensor.name!r} is {verb} in moves of {_listed(moves) or 'nothing'}, "
                    f"needed are {claim.moves} or more, all of {claim.width} bytes"
                )
            elif claim.width == VECTOR_BYTES:
                needed += claim.moves
        total = sum(count for width, count in in_machine_code.items() if width >= VECTOR_BYTES)
        if total < needed:
            yield f"{total} moves of {VECTOR_BYTES} bytes are {verb} in the machine code, needed are {needed}"


def pointers(op: Any) -> dict[str, int]:
    """The byte offset of each tensor's pointer in the kernel's parameter."""
    offsets: dict[str, int] = {}
    at = _HEAD_WORDS
    for tensor in op.tensors:
        offsets[tensor.name] = at * _WORD
        at += _WORDS[tensor.over]
    return offsets


def _reads(op: Any, sku: KernelSku) -> list[_Claim]:
    """Reads of each tensor by passes along the row, except columns that are also read one by one at the end."""
    by_strip = sku.tile.wide and bool(op.column_sums)  # the last pass takes one pack at a time
    claims = []
    for tensor in op.tensors:
        passes = [p for p in op.passes if tensor in p.reads]
        if not passes or tensor in op.columns.reads:
            continue
        is_single = by_strip and passes == [op.last]
        claims.append(_claim(tensor, sku, 1 if is_single else sku.tile.chunks, _picked(op, tensor)))
    return claims


def _picked(op: Any, tensor: Tensor) -> int:
    """How many elements of a row are read at computed places, before or as a part of what is reduced."""
    exprs = [value.expr for along in op.passes for value in along.row_values]
    exprs += [reduction.arg for along in op.passes for reduction in along.reductions]
    return sum(isinstance(expr, Read) and expr.tensor == tensor.name for expr in exprs)


def _writes(op: Any, sku: KernelSku) -> list[_Claim]:
    packs = 1 if sku.tile.wide and op.column_sums else sku.tile.chunks
    return [_claim(store.tensor, sku, packs) for store in op.last.stores]


def _claim(tensor: Tensor, sku: KernelSku, packs: int, single: int = 0) -> _Claim:
    element = sku.element.row
    kinds = {"T": element, "acc": element.acc.row}
    stored = kinds.get(tensor.dtypes[0]) or ElementKind(tensor.dtypes[0]).row
    pack = VECTOR_BYTES // element.bytes * stored.bytes
    width = min(pack, VECTOR_BYTES)
    return _Claim(tensor, width, packs * (pack // width), single)


def _listed(widths: Mapping[int, int]) -> str:
    return " and ".join(f"{count} x {width} bytes" for width, count in sorted(widths.items()))
