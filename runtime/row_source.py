"""What a kernel of the row family compiles from, for arrays of a kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from .arguments import Argument
from .device import KernelSource
from .element import ElementKind
from .registry import Registered
from .sku import VECTOR_BYTES, KernelSku


def row_source(
    row: Registered,
    arguments: Iterable[Argument],
    layout: str,
    *,
    interleaved: bool = False,
    present: Callable[[str], bool] = lambda name: True,
    held: Mapping[str, ElementKind] | None = None,
) -> KernelSource:
    """The source of `row` for one layout, for rows that are no whole packs `interleaved`.

    `present` says which optional arguments are there, `held` what those hold whose element type is the caller's choice,
    by default the usual one.
    """
    sku, given = row.sku, tuple(arguments)
    kinds = {a.name: (held or {}).get(a.name, a.elements(sku.element)[0]) for a in given}
    defines = [f"SKU_{sku.symbol}=1", f"BARACUDA_LAYOUT={layout.upper()}", f"BARACUDA_INTERLEAVED={int(interleaved)}"]
    defines += [f"BARACUDA_HAS_{a.name.upper()}={int(present(a.name))}" for a in given if a.optional]
    defines += [f"BARACUDA_{a.name.upper()}={kinds[a.name].row.cuda}" for a in given if len(a.dtypes) > 1]
    read = [a.name for a in given if a.over == "element" and a.role != "out" and present(a.name)]
    shared = _ahead_bytes(sku, [kinds[name] for name in read]) if layout == "packed" else 0
    if layout == "dense" and stages(given):
        shared = _staged_bytes(sku, len(read))
    defines += [f"DYN_SHARED_BYTES={shared}"] if shared else []
    file, symbol = row.source, sku.symbol
    policy = file.contraction, file.flush_subnormals, shared
    return KernelSource(file.path, file.text, symbol, tuple(defines), *policy)


class Whole(Protocol):
    """What an argument and a spec's tensor have in common."""

    @property
    def role(self) -> str: ...
    @property
    def over(self) -> str: ...
    @property
    def dtypes(self) -> tuple[str, ...]: ...
    @property
    def optional(self) -> str: ...


def stages(arguments: Iterable[Whole]) -> bool:
    """Whether rows that begin anywhere go through shared memory: where an output finds room in the first input's."""
    whole = [a for a in arguments if a.over == "element"]
    inputs = [a for a in whole if a.role == "in"]
    alike = all(a.dtypes == ("T",) for a in whole)
    return alike and bool(inputs) and not inputs[0].optional and len(whole) - len(inputs) <= 1


def _ahead_bytes(sku: KernelSku, read: Iterable[ElementKind]) -> int:
    """Shared memory for the packs that a block has on their way, one of each tensor for each that a thread owns."""
    if not sku.tile.blocks:
        return 0
    chunks = 1 if sku.tile.wide else sku.tile.chunks
    packs = sum(VECTOR_BYTES // sku.element.row.bytes * kind.row.bytes for kind in read)
    return sku.tile.threads * chunks * packs


def _staged_bytes(sku: KernelSku, tensors: int) -> int:
    """Shared memory for the rows of a block; each has room to begin where its address does."""
    tile = sku.tile
    return 0 if tile.wide else tensors * tile.rows * (tile.lanes * tile.chunks + 1) * VECTOR_BYTES
