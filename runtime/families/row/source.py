"""What a kernel of the row family compiles from, for arrays of a kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ...arrays.arguments import Argument
from ...arrays.element import ElementKind
from ...device import KernelSource
from ...plans.registry import Registered
from ...plans.sku import VECTOR_BYTES, KernelSku
from .geometry import MAX_AXES


def row_axes_of(sku: KernelSku, layout: str, arguments: Iterable[Argument]) -> tuple[int, ...]:
    """Along how many axes at most rows lie in a kernel of its own, the usual number first.

    Along one axis nothing is divided, which takes a third less time to compile. What is not done for each row then has
    the compiler begin more at once, so that where registers are short, in dense rows, in those of doubles and beside
    two column sums, it would spill.
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
    held: Mapping[str, ElementKind] | None = None,
) -> KernelSource:
    """The source of `row` for one layout, with rows along `row_axes` axes at most, by default the usual number.

    `present` says which optional arguments are there, `held` what those hold whose element type is the caller's choice,
    by default the usual one.
    """
    sku, given = row.sku, tuple(arguments)
    kinds = {a.name: (held or {}).get(a.name, a.elements(sku.element)[0]) for a in given}
    defines = [f"SKU_{sku.symbol}=1", f"BARACUDA_LAYOUT={layout.upper()}"]
    defines += [f"BARACUDA_ROW_AXES={row_axes or row_axes_of(sku, layout, given)[0]}"]
    defines += [f"BARACUDA_HAS_{a.name.upper()}={int(present(a.name))}" for a in given if a.optional]
    defines += [f"BARACUDA_TYPE_{a.name.upper()}={kinds[a.name].row.cuda}" for a in given if len(a.dtypes) > 1]
    read = [a.name for a in given if a.over == "element" and a.role != "out" and present(a.name)]
    shared = ahead_bytes(sku, [kinds[name] for name in read]) if layout == "packed" else 0
    defines += [f"DYN_SHARED_BYTES={shared}"] if shared else []
    file, symbol = row.source, sku.symbol
    policy = file.contraction, file.flush_subnormals, shared
    return KernelSource(file.path, file.text, symbol, tuple(defines), *policy)


def ahead_bytes(sku: KernelSku, read: Iterable[ElementKind]) -> int:
    """Shared memory for the packs that a block has on their way, one of each tensor for each that a thread owns."""
    if not sku.tile.blocks:
        return 0
    chunks = 1 if sku.tile.wide else sku.tile.chunks
    packs = sum(VECTOR_BYTES // sku.element.row.bytes * kind.row.bytes for kind in read)
    return sku.tile.threads * chunks * packs
