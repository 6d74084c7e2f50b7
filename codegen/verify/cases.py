"""Which problems a SKU is tested on: the spec's own, those it is selected for, and a few of its own making."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from baracuda.runtime import REGISTRY, ElementKind, KernelSku

from .problem import Problem, Subject


def skus(subject: Subject) -> list[KernelSku]:
    """Every SKU of the op, importing its plan if need be."""
    op = subject.plan.OP
    return [row.sku for row in REGISTRY.candidates(op)]


def problems(subject: Subject, sku: KernelSku, limit: int = 1 << 21) -> list[Problem]:
    """The problems that selection gives to `sku`: of the spec's cases, and of the edges of its tile.

    Every SKU has at least one with more than one row, as long as its tile allows.
    """
    cases = [*subject.spec.tests.cases, *_edges(subject, sku)]
    found: dict[Any, Problem] = {}
    for case in cases:
        if case.get("dtype", sku.element) != sku.element:
            continue
        given = {k: v for k, v in case.items() if k != "dtype"}
        problem = Problem(subject, given, sku.element)
        if problem.plan.sku == sku and problem.rows * problem.cols <= limit:
            found.setdefault(problem.descriptor, problem)
    return list(found.values())


def _edges(subject: Subject, sku: KernelSku) -> Iterator[Mapping[str, Any]]:
    """Rows as long as the tile, one longer and shorter than its vectors like, and more rows than blocks."""
    base, shape_field = _simplest(subject, sku.element)
    vec = 16 // sku.element.row.bytes
    held = sku.schedule.columns(sku.element.row.bytes)
    narrower = [
        s.schedule.columns(s.element.row.bytes)
        for s in skus(subject)
        if s.element == sku.element and not s.schedule.wide
    ]
    below = max((n for n in narrower if n < held or sku.schedule.wide), default=0)
    widths = (below + 1, below + vec, 2 * held + vec + 1) if sku.schedule.wide else (below + 1, below + vec, held)
    has_rows = bool(Problem(subject, base, sku.element).row_axes)
    for cols in widths:
        for rows in (1, 2 * sku.schedule.rows + 1) if has_rows else (1,):
            yield {**base, shape_field: _resized(subject, base, shape_field, sku.element, rows, cols)}
    if not has_rows:
        return
    many = sku.schedule.blocks * sku.schedule.rows + 1  # so that a block has to take a second turn
    yield {**base, shape_field: _resized(subject, base, shape_field, sku.element, many, below + vec)}


def _simplest(subject: Subject, element: ElementKind) -> tuple[dict[str, Any], str]:
    """The spec's case of fewest axes, with a row axis if there is such a case, and the name of its shape."""
    found: list[tuple[bool, int, int, dict[str, Any], str]] = []
    for case in subject.spec.tests.cases:
        given = {k: v for k, v in case.items() if k != "dtype"}
        problem = Problem(subject, given, element)
        found.append((not problem.row_axes, len(problem.shape), len(found), given, problem.descriptor._shape))
    *_, given, field = min(found, key=lambda f: f[:3])
    return given, field


def _resized(
    subject: Subject, base: Mapping[str, Any], field: str, element: ElementKind, rows: int, cols: int
) -> list[int]:
    problem = Problem(subject, base, element)
    shape = [1] * len(problem.shape)
    shape[problem.col_axes[-1]] = cols
    if problem.row_axes:
        shape[problem.row_axes[0]] = rows
    return shape
