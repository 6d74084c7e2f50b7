"""Invariant: places that are equally far apart in pieces, or differ from the cell's own in some bits, are read right.

The packs of a row are in one piece, in two, and outside; places that only look like those of a pack are among them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from baracuda.codegen.emit.generate import texts
from baracuda.codegen.emit.plan_classes import plan_of, rows_of
from baracuda.codegen.lower.lower import lower
from baracuda.codegen.spec.load import load_spec

ROWS, COLS = 8, 40
SPEC = """\
op: sample
doc: A sample.
descriptor: {{rows: int, cols: int, at: {{type: int, doc: where a piece ends, default: 4}}}}
dims: {{i: rows, j: cols}}
inputs: {{x: {{dims: [i, j], outside: -1}}}}
outputs: {{y: {{dims: [i, j]}}}}
program: y = x[{row}, {column}] + at
"""
rows, cols = np.arange(ROWS)[:, None], np.arange(COLS)[None, :]
PLACES: dict[str, tuple[str, Callable[[int], Any]]] = {
    "halves exchanged": (
        "where(index(j) < at, j + size(j) // 2, j - size(j) // 2)",
        lambda at: np.where(at > cols, cols + COLS // 2, cols - COLS // 2),
    ),
    "the last place of a pack that is not one": (
        "where(index(j) < at, 2 * index(j), index(j))",
        lambda at: np.where(at > cols, 2 * cols, cols),
    ),
    "one place moved": ("where(index(j) == at, 0, index(j))", lambda at: np.where(at == cols, 0, cols)),
    "a pack's first place kept": (
        "where(index(j) == at, index(j), 2 * index(j) - 15)",
        lambda at: np.where(at == cols, cols, 2 * cols - 15),
    ),
    "all but one moved": ("where(index(j) != at, j - 8, index(j))", lambda at: np.where(at != cols, cols - 8, cols)),
    "two conditions": (
        "where(index(j) < at or index(j) >= 24, index(j), j + 8)",
        lambda at: np.where((at > cols) | (cols >= 24), cols, cols + 8),
    ),
    "reflected": ("abs(index(j) - at)", lambda at: abs(cols - at)),
    "reflected at the end": ("size(j) - 1 - abs(index(j) - at)", lambda at: COLS - 1 - abs(cols - at)),
    "clamped": ("minimum(maximum(j - 8, at), 24)", lambda at: np.minimum(np.maximum(cols - 8, at), 24)),
    "more pieces than a number has bits": (
        " + ".join(f"where(index(j) < {of}, index(j), 0) - index(j)" for of in range(100, 132))
        + " + where(index(j) < at, 2 * index(j), index(j))",
        lambda at: np.where(at > cols, 2 * cols, cols),
    ),
    "pieces of pieces": (
        f"{'maximum(' * 40}index(j), {'), '.join(map(str, range(-20, 20)))})",
        lambda _: np.maximum(cols, 19),
    ),
    "neighbours exchanged": ("j ^ 1", lambda _: cols ^ 1),
    "packs reversed": ("j ^ 7", lambda _: cols ^ 7),
    "packs exchanged": ("j ^ 9", lambda _: cols ^ 9),
}


def plan(folder: Path, row: str, column: str) -> Any:
    path = folder / "sample.yaml"
    path.write_text(SPEC.format(row=row, column=column))
    op: Any = lower(load_spec(path).spec, "sample.yaml")
    return plan_of(op, rows_of(op, texts([op])["custom/sample.cu"]))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("row", ["i", "index(i) - 1"])
@pytest.mark.parametrize("column", PLACES)
def test_every_element_is_that_of_its_place(tmp_path: Path, column: str, row: str, order: Any) -> None:
    text, places = PLACES[column]
    of = plan(tmp_path, row, text)
    x = np.arange(ROWS * COLS).reshape(ROWS, COLS) % 199
    for at in (0, 4, 8, 20, 21):
        chosen = of.select(of.DESCRIPTOR(element="bf16", rows=ROWS, cols=COLS, at=at), device="host")
        y = np.zeros(x.shape, ml_dtypes.bfloat16, order)
        chosen._run((x.astype(y.dtype, order), y), None, None)
        line, column_of = np.broadcast_arrays(rows - (row != "i"), places(at))
        inside = (line >= 0) & (column_of >= 0) & (column_of < COLS)
        wanted = np.where(inside, x[line * inside, column_of * inside], -1) + at
        assert np.array_equal(y, wanted.astype(y.dtype)), at
