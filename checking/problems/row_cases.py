"""Problems that the row family's kernels are tested on beside the spec's: the edges of their tiles, and random ones."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from baracuda.runtime import ElementKind, KernelSku

from .cases import fills_packs, skus_of
from .problem import Problem
from .subject import Subject

_TALL = 2048  # columns, up to which there is a problem with more rows than these


def random_rows(subject: Subject, sku: KernelSku, count: int, seed: int, limit: int) -> list[Problem]:
    """Problems of any size that selection gives to `sku`, half of them of whole packs; always the same for a seed."""
    rng = np.random.default_rng([seed, zlib.crc32(sku.symbol.encode())])
    base, field = _simplest(subject, sku.element)
    vec, (low, high) = 16 // sku.element.row.bytes, _widths(subject, sku)
    rows_vary = bool(_rows_of(subject, base, sku.element).row_axes)
    problems: list[Problem] = []
    for turn in range(count):
        cols = int(rng.integers(low, high + 1))
        cols = max(low, cols // vec * vec) if turn % 2 else cols
        rows = int(rng.integers(1, max(2, min(64, limit // cols) + 1))) if rows_vary else 1
        case = {**base, field: _resized(subject, base, field, sku.element, rows, cols)}
        problem = _rows_of(subject, case, sku.element, sku.tile.arch or None)
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
    has_rows = bool(_rows_of(subject, base, sku.element).row_axes)
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
    base, shape_field = _simplest(subject, sku.element)
    vec = 16 // sku.element.row.bytes
    for cols in (1, vec + 1):
        yield {**base, shape_field: _resized(subject, base, shape_field, sku.element, 2 * vec + 1, cols)}


def _axes(subject: Subject, sku: KernelSku) -> Iterator[Mapping[str, Any]]:
    """Rows and columns of as many axes as the spec's cases have, two long each but the last of the columns."""
    problems = [
        _rows_of(subject, {k: v for k, v in case.items() if k != "dtype"}, sku.element)
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
        problem = _rows_of(subject, fields, element)
        keyed.append((not problem.row_axes, len(problem.shape), len(keyed), fields, problem.descriptor._shape))
    *_, fields, field = min(keyed, key=lambda f: f[:3])
    return fields, field


def _resized(
    subject: Subject, base: Mapping[str, Any], field: str, element: ElementKind, rows: int, cols: int
) -> list[int]:
    problem = _rows_of(subject, base, element)
    shape = [1] * len(problem.shape)
    shape[problem.col_axes[-1]] = cols
    if problem.row_axes:
        shape[problem.row_axes[0]] = rows
    return shape


def _rows_of(subject: Subject, case: Mapping[str, Any], element: ElementKind, arch: str | None = None) -> Any:
    """The problem of a case, whose rows and columns are asked for."""
    return Problem.of(subject, case, element, arch)


def on_two_blocks(sku: KernelSku, bases: Sequence[Problem]) -> Problem:
    """Short rows of whole packs, and a plan that starts two blocks, or clusters: kernels are told their number."""
    vec, tile = 16 // sku.element.row.bytes, sku.tile
    several = [problem for problem in bases if problem.size and problem.batch]
    if not several or not tile.blocks:
        return min(several or bases, key=lambda problem: problem.size)
    base = min(several, key=lambda problem: (not fills_packs(problem, vec), problem.size // (problem.batch or 1)))
    problem = base.with_batch(4 * tile.rows + 1)
    row = replace(base.plan._row, sku=replace(sku, schedule=replace(tile, blocks=2)))
    problem.plan = type(base.plan)(problem.descriptor, row, base.plan.layouts)
    return problem


def drawn_rows(
    subject: Subject, skus: list[KernelSku], rng: np.random.Generator, limit: int
) -> Iterator[Mapping[str, Any]]:
    """Rows that fit one of the tiles, with as many axes as one of the spec's cases and any other fields."""
    spec = subject.spec
    while True:
        sku = skus[int(rng.integers(len(skus)))]
        sizes = random_rows(subject, sku, 2, int(rng.integers(1 << 31)), limit)
        spec_case = spec.tests.cases[int(rng.integers(len(spec.tests.cases)))]
        case = {n: v for n, v in spec_case.items() if n != "dtype"}
        if not sizes:
            yield case
            continue
        size: Any = sizes[int(rng.integers(len(sizes)))]
        problem = _rows_of(subject, case, sku.element)
        rows, cols = size.rows, size.cols
        if rng.random() < 0.5:
            rows = int(math.exp(rng.uniform(0, math.log(max(1, limit // cols) + 1))))
        if rng.random() < 0.03:
            rows, cols = (0, cols) if rng.random() < 0.5 else (rows, 0)
        shape = [1] * len(problem.shape)
        for axes, extent in ((problem.row_axes, rows), (problem.col_axes, cols)):
            for axis, part in zip(axes, _split(extent, len(axes), rng), strict=True):
                shape[axis] = part
        drawn = {n: _any_value(f.type, problem.values[n], rng) for n, f in spec.descriptor.items() if f.is_number}
        yield {**problem.values, **drawn, problem.descriptor._shape: shape}


def _split(extent: int, axes: int, rng: np.random.Generator) -> list[int]:
    """Extents of several axes whose product is at most `extent`, and close to it."""
    parts = []
    for _ in range(axes - 1):
        part = int(math.exp(rng.uniform(0, math.log(extent + 1)))) if extent else 1
        parts.append(max(1, min(part, extent or 1)))
        extent //= parts[-1]
    return [int(n) for n in rng.permutation([*parts, extent])] if axes else []


def _any_value(kind: str, value: Any, rng: np.random.Generator) -> Any:
    """Another value of a field: a flag either way, a float of another size; ints name axes and stay."""
    if kind == "bool":
        return bool(rng.integers(2))
    return value * 10.0 ** rng.integers(-3, 4) if kind == "float" else value
