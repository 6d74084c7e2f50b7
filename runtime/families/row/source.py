"""The source of a row kernel for arrays of a given layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ...arrays.arguments import Argument
from ...arrays.element import ElementKind
from ...device import KernelSource
from ...plans.registry import Registered
from ...plans.sku import VECTOR_BYTES, KernelSku
from ..kernel_source import kernel_source
from .geometry import MAX_AXES


def row_axes_of(sku: KernelSku, layout: str, arguments: Iterable[Argument]) -> tuple[int, ...]:
    """For each separate kernel, the maximum number of axes that rows lie along, the default first.

    Along one axis nothing is divided, which compiles in two thirds of the time. Less work per row lets the compiler
    overlap more, so where registers are short (dense rows, doubles, two column sums) it would spill; there is no such
    kernel then.
    """
    sums = sum(a.over == "col" and a.written for a in arguments)
    roomy = layout == "packed" and sku.element.row.bytes <= 4 and sums < 2
    return (1, MAX_AXES) if roomy else (MAX_AXES,)


def row_source(
    row: Registered,
    arguments: Iterable[Argument],
    layout: str,
    *,
    row_axes: int | None = None,
    present: Callable[[str], bool] = lambda name: True,
    types: Mapping[str, ElementKind] | None = None,
) -> KernelSource:
    """The source of `row` for one layout, with rows along at most `row_axes` axes.

    `present` says which optional arguments are there, `types` the element types that the caller chose.
    """
    sku, declared = row.sku, tuple(arguments)
    kinds = {a.name: (types or {}).get(a.name, a.elements(sku.element)[0]) for a in declared}
    constants = {"LAYOUT": layout.upper(), "ROW_AXES": row_axes or row_axes_of(sku, layout, declared)[0]}
    read = [a.name for a in declared if a.over == "element" and a.role != "out" and present(a.name)]
    return kernel_source(
        row,
        constants | ({"CLUSTER": sku.tile.cluster} if sku.tile.cluster > 1 else {}),
        present={a.name: present(a.name) for a in declared if a.optional},
        types={a.name: kinds[a.name] for a in declared if len(a.dtypes) > 1},
        shared=prefetch_bytes(sku, [kinds[name] for name in read]) if layout == "packed" else 0,
    )


def prefetch_bytes(sku: KernelSku, read: Iterable[ElementKind]) -> int:
    """Shared memory of a block for prefetched or staged packs, one per tensor and pack of a thread."""
    tile = sku.tile
    chunks = tile.staged or (1 if tile.wide else tile.chunks) * bool(tile.blocks)
    packs = sum(VECTOR_BYTES // sku.element.row.bytes * kind.row.bytes for kind in read)
    return tile.threads * chunks * packs
