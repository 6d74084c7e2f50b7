"""An op's kernels as table rows: schedule, problems, resources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from baracuda.runtime import ElementKind, KernelSku, Registered, Tile

from ..lower.op import Op
from ..spec.types import arch_number
from ..text import Name
from .table import Ready, Row, code

Resources = Callable[[Registered], Sequence[Row]]


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels of one element type; `resources` has what the compiled ones occupy."""

    element: Name
    rows: list[Row]
    resources: list[Row]


def kernels_by_element(op: Op, kernels: Sequence[Registered], resources: Resources) -> list[Kernels]:
    """The op's kernels in order of preference."""
    groups = []
    for element in map(ElementKind, op.elements):
        same_element = [kernel for kernel in kernels if kernel.sku.element == element]
        rows = [_row(op, kernel.sku) for kernel in same_element]
        occupied = [row for kernel in same_element for row in _resource_rows(kernel, resources)]
        groups.append(Kernels(Name(element), rows, occupied))
    return groups


def by_arch(kernels: Sequence[Registered]) -> dict[str, int]:
    """The number of kernels per architecture, lowest first."""
    count = Counter(kernel.sku.arch for kernel in kernels)
    return {arch: count[arch] for arch in sorted(count, key=lambda arch: (arch_number(arch), arch))}


def grid_rows(op: Op, kernels: Sequence[Registered]) -> list[Row]:
    """The number of kernels per element type and architecture."""
    archs = by_arch(kernels)
    rows: list[Row] = []
    for element in map(ElementKind, op.elements):
        counts = by_arch([kernel for kernel in kernels if kernel.sku.element == element])
        rows.append({"element": Ready(f"[{element}](#{element})"), **{arch: counts.get(arch) for arch in archs}})
    return rows


def tuned_rows(op: Op) -> list[Row]:
    """Problems with a measured choice, and the microseconds of both kernels."""
    choices = [
        (arch, case, KernelSku.parse(tuned.sku).symbol, times)
        for arch, measured in op.tuned
        for tuned in measured
        for case, times in tuned.cases.items()
    ]
    return [
        {"architecture": arch, "case": case, "kernel": code(symbol), "us": us, "by rule": by_rule}
        for arch, case, symbol, (us, by_rule) in choices
    ]


def _row(op: Op, sku: KernelSku) -> Row:
    return {
        "kernel": code(sku.symbol),
        "tile": code(str(sku.schedule) if isinstance(sku.schedule, Tile) else ""),  # else the symbol says it all
        "architecture": sku.arch,
        "layout": sku.layout,
        "serves": _serves(op, sku),
    }


def _serves(op: Op, sku: KernelSku) -> str | Ready:
    """The problems of its element type and architecture that a kernel may serve."""
    if isinstance(sku.schedule, Tile):
        longest = sku.schedule.columns(sku.element.row.bytes)
        return "rows of any length" if sku.schedule.wide else f"rows up to {longest}"
    served = op.serves(sku)
    return code(served) if served else ""


def _resource_rows(kernel: Registered, resources: Resources) -> list[Row]:
    return [{"kernel": code(kernel.sku.symbol), **row} for row in resources(kernel)]
