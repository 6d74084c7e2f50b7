"""The kernels that represent an op, and what of their source they are compiled from."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cache

from baracuda.runtime import REGISTRY, ElementKind, KernelSku, Registered, SourceFile, Tile

from ...problems.cases import problems, skus
from ...problems.subject import Subject
from ...verify.table import traits
from .inline_headers import with_headers
from .scopes import Definition, definitions, reached
from .tokens import tokenize

_ENTRY = "BARACUDA_SYMBOL"


@cache
def representatives(subject: Subject) -> list[Registered]:
    """Kernels of an op that cover the branches of its source.

    Of a row op a tile of rows within a warp in f32, one of rows of several warps in a 16-bit type, a wide one in f64
    and one of a cluster; another element type where the op lacks these. Of others one for each code path and size of
    elements.
    """
    subject.plan  # noqa: B018  registers the kernels
    if all(isinstance(sku.schedule, Tile) for sku in skus(subject, "host")):
        return _tiles(subject)
    chosen: dict[Hashable, KernelSku] = {}
    for sku in skus(subject, "host"):
        of_sku = traits(subject, sku)
        chosen.setdefault((of_sku["bytes"], of_sku["path"]), sku)
    return [REGISTRY.lookup(sku) for sku in chosen.values()]


def _tiles(subject: Subject) -> list[Registered]:
    op, rows = subject.spec.op, [REGISTRY.lookup(sku) for sku in skus(subject, "host")]
    halves = (ElementKind.BF16, ElementKind.F16) if len(op) % 2 else (ElementKind.F16, ElementKind.BF16)
    wanted = ("warp", (ElementKind.F32,)), ("block", halves), ("wide", (ElementKind.F64,)), ("cluster", ())
    chosen = []
    for kind, elements in wanted:
        of_kind = [row for row in rows if _kind(row.sku) == kind]
        fit = [row for element in elements for row in of_kind if row.sku.element == element]
        chosen += (fit or of_kind)[:1]
    return chosen


def _kind(sku: KernelSku) -> str:
    if sku.tile.cluster > 1:
        return "cluster"
    return "wide" if sku.tile.wide else "warp" if sku.tile.lanes <= 32 else "block"


def pasted(row: Registered) -> str:
    """The kernel's source with the project's headers inlined."""
    return _pasted(row.source, _defined(row.sku))


@cache
def _pasted(source: SourceFile, defined: frozenset[str]) -> str:
    return with_headers(source.text, source.path, defined)


def _defined(sku: KernelSku) -> frozenset[str]:
    """The macros that are defined for some kernels only."""
    is_cluster = isinstance(sku.schedule, Tile) and sku.schedule.cluster > 1
    return frozenset({f"BARACUDA_{sku.arch.upper()}", *({"BARACUDA_CLUSTER"} if is_cluster else ())})


@cache
def reached_by(subject: Subject, row: Registered) -> Sequence[Definition]:
    """The definitions in the pasted text that the kernel uses."""
    return _reached(row.source, _defined(row.sku), frozenset({_ENTRY, *_launched(subject, row.sku)}))


@cache
def _reached(source: SourceFile, defined: frozenset[str], entries: frozenset[str]) -> Sequence[Definition]:
    tokens = tokenize(_pasted(source, defined), source.path, defined)
    found = list(definitions(tokens))
    missing = entries - {definition.name for definition in found} - ({_ENTRY} if len(entries) > 1 else set())
    assert not missing, f"{source.path} defines no {', '.join(sorted(missing))}"
    return reached(found, entries)


def _launched(subject: Subject, sku: KernelSku) -> set[str]:
    """The functions of a body that problems of the kernel launch."""
    names = [kernel.name for kernel in getattr(subject.plan, "KERNELS", ())]
    if len(names) > 1:
        symbols = {source.symbol for problem in problems(subject, sku) for source in problem.plan.sources()}
        names = [name for name in names if f"{sku.symbol}_{name}" in symbols]
    return {f"{sku.op}_{name}" for name in names}
