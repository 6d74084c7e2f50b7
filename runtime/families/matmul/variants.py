"""How factors may lie, and what a kernel of the family is compiled for."""

from __future__ import annotations

from typing import NamedTuple

from ...plans.sku import VECTOR_BYTES


class Layout(NamedTuple):
    """Whether the sides of each factor are contiguous, not the depth; whether anything else is allowed."""

    left_side: bool
    right_side: bool
    strided: bool = False


LAYOUTS = {
    "kk": Layout(False, False),
    "kn": Layout(False, True),
    "mk": Layout(True, False),
    "mn": Layout(True, True),
    "strided": Layout(False, False, strided=True),
}


class Variant(NamedTuple):
    """What a source is compiled for: the layout of the factors, and what the copy engine moves."""

    layout: str
    tma: bool
    staged: bool = False  # whether it stores the result, too
    copied: bool = False  # whether threads move what it would
    merges: bool = False  # whether it adds up what others have summed of parts
    packs: str = ""  # "left" or "right": it only copies that factor, for the copy engine to address it


def fits_span(layout: Layout, span: tuple[str, str, bool]) -> bool:
    """Whether packs of a layout do not lie along a dim of which matrices have parts: these may begin anywhere."""
    _, of, segments = span
    return layout.strided or (
        layout.left_side and layout.right_side if of == "depth" else not (segments and layout.left_side)
    )


def whole(count: int, size: int) -> int:
    """So many elements in whole packs."""
    pack = VECTOR_BYTES // size
    return -(-count // pack) * pack
