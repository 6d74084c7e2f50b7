"""Problems that the row family's kernels are tested on beside the spec's: the edges of their tiles, and random ones."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from baracuda.runtime import ElementKind, KernelSku

from .row import RowProblem
from .subject import Subject

_TALL = 2048  # columns, up to which there is a problem with more rows than these


def skus_of(subject: Subject) -> list[KernelSku]:
    """Every SKU of the op, importing its plan if need be."""
    return [row.sku for row in subject.plan.kernels()]


def random_rows(subject: Subject, sku: KernelSku, count: int, seed: int, limit: int = 1 << 16) -> list[RowProblem]:
    """Problems of any size that selection gives to `sku`, half of them of whole packs; always the same for a seed."""
    rng = np.random.default_rng([seed, zlib.crc32(sku.symbol.encode())])
    base, field = _simplest(subject, sku.element)
    vec, (low, high) = 16 // sku.element.row.bytes, _widths(subject, sku)
    rows_vary = bool(RowProblem(subject, base, sku.element).row_axes)
    problems = []
    for turn in range(count):
        cols = int(rng.integers(low, high + 1))
        cols = max(low, cols // vec * vec) if turn % 2 else cols
        rows = int(rng.integers(1, max(2, min(64, limit // cols) + 1))) if rows_vary else 1
        case = {**base, field: _resized(subject, base, field, sku.element, rows, cols)}
        problem = RowProblem(subject, case, sku.element, sku.tile.arch or None)
        if problem.plan.sku == sku:
            problems.append(problem)
    return problems


def _widths(subject: Subject, sku: KernelSku) -> tuple[int, int]:
    """The shortest and the longest row that selection gives to `sku`; for a wide one the longest to be tried."""
    columns = sku.tile.columns(sku.element.row.bytes)
    narrower = [
        s.tile.columns(s.element.row.bytes)
        for s in skus_of(subject)
        if s.element == sku.element and not s.tile.wide and s.arch <= sku.arch
    ]
    below = max((n for n in narrower if n < columns or sku.tile.wide), default=0)
    return below + 1, max(below, 2 * columns) + 1 if sku.tile.wide else columns


def edges(subject: Subject, sku: KernelSku) -> Iterator[Mapping[str, Any]]:
    """Rows as long as the tile, one longer and shorter than its vectors like, each optional tensor there and not, more
    rows than blocks, and more rows than columns."""
    base, shape_field = _simplest(subject, sku.element)
    vec = 16 // sku.element.row.bytes
    columns, below = sku.tile.columns(sku.element.row.bytes), _widths(subject, sku)[0] - 1
    widths = (below + 1, below + vec, 2 * columns + vec + 1) if sku.tile.wide else (below + 1, below + vec, columns)
    has_rows = bool(RowProblem(subject, base, sku.element).row_axes)
    for cols in widths:
        for rows in (1, 2 * sku.tile.rows + 1) if has_rows else (1,):
            yield {**base, shape_field: _resized(subject, base, shape_field, sku.element, rows, cols)}
    few = 2 * sku.tile.rows + 1 if has_rows else 1
    for flag in sorted({t.optional for t in subject.spec.tensors.values() if t.optional}):
        shape = _resized(subject, base, shape_field, sku.element, few, below + vec)
        yield {**base, shape_field: shape, flag: not subject.values(base)[flag]}
    if not has_rows:
        return
    yield from _axes(subject, sku)
    many = sku.tile.blocks * sku.tile.rows + 1  # so that a block has to take a second turn
    yield {**base, shape_field: _resized(subject, base, shape_field, sku.element, many, below + vec)}
    if below < _TALL:
        yield {**base, shape_field: _resized(subject, base, shape_field, sku.element, below + 2, below + 1)}


def short_rows(subject: Subject, sku: KernelSku) -> Iterator[Mapping[str, Any]]:
    """Rows of one element and of one more than a pack: packs around them reach into others."""
    if subject.spec.family != "row":
        return
    base, shape_field = _simplest(subject, sku.element)
    vec = 16 // sku.element.row.bytes
    for cols in (1, vec + 1):
        yield {**base, shape_field: _resized(subject, base, shape_field, sku.element, 2 * vec + 1, cols)}


def _axes(subject: Subject, sku: KernelSku) -> Iterator[Mapping[str, Any]]:
    """Rows and columns of as many axes as the spec's cases have, two long each but the last of the columns."""
    problems = [
        RowProblem(subject, {k: v for k, v in case.items() if k != "dtype"}, sku.element)
        for case in subject.spec.tests.cases
    ]
    for axes in ("row_axes", "col_axes"):
        problem = max(problems, key=lambda p: (min(len(getattr(p, axes)), 3), min(len(p.row_axes), len(p.col_axes))))
        shape = [2] * len(problem.shape)
        others = 2 ** (len(problem.col_axes) - 1)
        shape[problem.col_axes[-1]] = max(2, -(-_widths(subject, sku)[0] // others))
        yield {**problem.values, problem.descriptor._shape: shape}


def _simplest(subject: Subject, element: ElementKind) -> tuple[dict[str, Any], str]:
    """The spec's case of fewest axes, with a row axis if there is such a case, and the name of its shape."""
    keyed: list[tuple[bool, int, int, dict[str, Any], str]] = []
    for case in subject.spec.tests.cases:
        fields = {k: v for k, v in case.items() if k != "dtype"}
        problem = RowProblem(subject, fields, element)
        keyed.append((not problem.row_axes, len(problem.shape), len(keyed), fields, problem.descriptor._shape))
    *_, fields, field = min(keyed, key=lambda f: f[:3])
    return fields, field


def _resized(
    subject: Subject, base: Mapping[str, Any], field: str, element: ElementKind, rows: int, cols: int
) -> list[int]:
    problem = RowProblem(subject, base, element)
    shape = [1] * len(problem.shape)
    shape[problem.col_axes[-1]] = cols
    if problem.row_axes:
        shape[problem.row_axes[0]] = rows
    return shape
