"""Reductions by an index on the host device: which programs they are, and that only the listed terms are reduced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda.runtime as rt
from baracuda.codegen.emit.generate import texts
from baracuda.codegen.emit.plan_classes import plan_of, rows_of
from baracuda.codegen.lower.lower import lower
from baracuda.codegen.spec.load import load_spec
from baracuda.runtime.families.map.lists import MOST

HEAD = """\
op: sample
doc: A sample.
descriptor: {batch: int, cells: int, keys: int, width: int}
dims: {b: batch, i: cells, row: keys, d: width}
"""
X, IDS = "x: {dims: [b, i, d]}", "ids: {dims: [b, i], dtype: [i64, i32]}"
Arrays = dict[str, Any]


def spec_of(tmp_path: Path, inputs: str, outputs: str, program: str) -> Any:
    path, lines = tmp_path / "sample.yaml", "".join(f"  {line}\n" for line in program.splitlines())
    path.write_text(f"{HEAD}inputs: {{{inputs}}}\noutputs: {{{outputs}}}\nprogram: |\n{lines}reference: |\n{lines}")
    return load_spec(path).spec


def plan_class(spec: Any) -> Any:
    op = lower(spec, "sample.yaml")
    return plan_of(op, rows_of(op, texts([op])["custom/sample.cu"]))


def plan_for(spec: Any, *, element: str = "f32", **fields: int) -> Any:
    made = plan_class(spec)
    return made.select(made.DESCRIPTOR(element=element, **fields))


def run(plan: Any, **arrays: Any) -> None:
    scratch = np.full(plan.workspace_bytes, 0xAA, np.uint8) if plan.workspace_bytes else None
    plan._run(tuple(arrays[name] for name in plan.ARGUMENTS), scratch, None)


@pytest.fixture
def watched() -> Iterator[None]:
    device: Any = rt.get_device("host")
    device.check = True
    yield
    device.check = False


def rows_of_keys(x: Any, ids: Any, keys: int) -> Any:
    """The sums of x[b, i, d] for each batch and key."""
    total = np.zeros((x.shape[0], keys, x.shape[2]))
    for b, i in np.ndindex(ids.shape):
        if 0 <= ids[b, i] < keys:
            total[b, ids[b, i]] += x[b, i].astype(np.float64)
    return total


def test_which_programs_are_reductions_by_an_index(tmp_path: Path) -> None:
    by_index = {
        "sum(where(ids == index(row), x, 0.0), i)": True,
        "sum(where(index(row) == ids, 2.0 * x, 0.0), i)": True,
        "sum(where(x > 0.0 and ids == index(row) and x < 9.0, x, 0.0), i)": True,
        "max(where(ids == index(row), x, -inf), i)": True,
        "min(where(ids == index(row), x, inf), i)": True,
        "prod(where(ids == index(row), x, 1.0), i)": True,
        "sum(where(ids == index(row), x, 0.0), i) * index(d)": True,
        "sum(where(ids == index(row), x, 1.0), i)": False,
        "max(where(ids == index(row), x, 0.0), i)": False,
        "sum(where(ids == index(row) or x > 0.0, x, 0.0), i)": False,
        "sum(where(ids != index(row), x, 0.0), i)": False,
        "sum(where(ids + 1 == index(row), x, 0.0), i)": False,
        "sum(where(x == index(row) and ids > 0, x, 0.0), i)": False,
        "sum(where(ids == index(row), x, 0.0), i) + sum(where(ids == index(row), 1.0, 0.0), i)": True,
    }
    for program, expected in by_index.items():
        spec = spec_of(tmp_path, f"{X}, {IDS}", "y: {dims: [b, row, d]}", f"y = {program}")
        assert bool(plan_class(spec).LISTS) == expected, program


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("width", [1, 3, 4, 64])
@pytest.mark.parametrize("kind", [np.int64, np.int32])
def test_each_batch_has_lists_of_its_own(tmp_path: Path, width: int, kind: Any) -> None:
    spec = spec_of(
        tmp_path, f"{X}, {IDS}", "y: {dims: [b, row, d]}", "y = sum(where(ids == index(row), x, 0.0), i)"
    )
    rng = np.random.default_rng(1)
    x, ids = rng.integers(-8, 9, (3, 150, width)).astype(np.float32), rng.integers(-2, 6, (3, 150)).astype(kind)
    plan, y = plan_for(spec, batch=3, cells=150, keys=4, width=width), np.full((3, 4, width), np.nan, np.float32)
    run(plan, x=x, ids=ids, y=y)
    assert np.array_equal(y, rows_of_keys(x, ids, 4))


def test_keys_that_vary_along_what_is_kept(tmp_path: Path) -> None:
    """As in the gradient of a gather along one axis, where each list is a cell."""
    spec = spec_of(
        tmp_path, f"{X}, ids: {{dims: [b, i, d], dtype: i64}}", "y: {dims: [b, row, d]}",
        "y = sum(where(ids == index(row), x, 0.0), i)",
    )  # fmt: skip
    rng = np.random.default_rng(2)
    x, ids = rng.integers(-8, 9, (2, 70, 8)).astype(np.float32), rng.integers(-1, 5, (2, 70, 8))
    plan, y = plan_for(spec, batch=2, cells=70, keys=5, width=8), np.full((2, 5, 8), np.nan, np.float32)
    run(plan, x=x, ids=ids, y=y)
    expected = [np.where(ids == row, x, 0).sum(axis=1) for row in range(5)]
    assert np.array_equal(y, np.stack(expected, axis=1))


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("cells", [64, 65, 127, 200, 1100])
def test_lists_of_many_positions_are_reduced_in_sections(tmp_path: Path, cells: int) -> None:
    spec = spec_of(
        tmp_path, f"{X}, {IDS}", "y: {dims: [row, d]}, n: {dims: [row], dtype: i64}, top: {dims: [row, d]}",
        "y = sum(where(ids == index(row), x, 0.0), b, i)\ntop = max(where(ids == index(row), x, -inf), b, i)\n"
        "n = sum(where(ids == index(row), 1, 0), b, i)",
    )  # fmt: skip
    rng = np.random.default_rng(cells)
    x = rng.integers(-8, 9, (2, cells, 4)).astype(np.float32)
    plan = plan_for(spec, batch=2, cells=cells, keys=30, width=4)
    for ids in (
        np.full((2, cells), 7), np.full((2, cells), 99), np.arange(2 * cells).reshape(2, cells) % 3 * 11,
        (np.arange(2 * cells) * 29 // (2 * cells)).reshape(2, cells),
        np.where(np.arange(2 * cells) < 70, 3, 4).reshape(2, cells),
    ):  # fmt: skip
        y, top, n = np.full((30, 4), np.nan, np.float32), np.full((30, 4), np.nan, np.float32), np.full(30, -1)
        run(plan, x=x, ids=ids, y=y, top=top, n=n)
        flat = ids.reshape(-1)
        lists = [x.reshape(-1, 4)[flat == row] for row in range(30)]
        assert np.array_equal(y, [rows.sum(axis=0) for rows in lists])
        assert np.array_equal(top, [rows.max(axis=0, initial=-np.inf) for rows in lists])
        assert n.tolist() == [len(rows) for rows in lists]


def test_the_order_of_additions_is_that_of_positions_whatever_the_layout(tmp_path: Path) -> None:
    spec = spec_of(
        tmp_path, f"{X}, {IDS}", "y: {dims: [b, row, d]}", "y = sum(where(ids == index(row), x, 0.0), i)"
    )
    rng = np.random.default_rng(3)
    x, ids = rng.normal(size=(2, 500, 8)).astype(np.float32), rng.integers(0, 3, (2, 500))
    plan = plan_for(spec, batch=2, cells=500, keys=3, width=8)
    dense, y = np.empty((2, 3, 8), np.float32), np.empty((3, 8, 2), np.float32).transpose(2, 0, 1)
    run(plan, x=x, ids=ids, y=dense)
    turned = np.ascontiguousarray(x.transpose(2, 1, 0)).transpose(2, 1, 0)
    run(plan, x=turned, ids=np.repeat(ids, 2, axis=1)[:, ::2], y=y)
    assert y.tobytes() == dense.tobytes()


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("keys", [1, 511, 512, 70_000])
def test_keys_of_any_number_of_digits(tmp_path: Path, keys: int) -> None:
    spec = spec_of(
        tmp_path, "x: {dims: [i]}, ids: {dims: [i], dtype: i64}", "y: {dims: [row]}",
        "y = sum(where(ids == index(row), x, 0.0), i)",
    )  # fmt: skip
    rng = np.random.default_rng(keys)
    plan = plan_for(spec, batch=1, cells=3000, keys=keys, width=1)
    ids = rng.integers(0, keys + 1, 3000)
    ids[:3] = keys - 1, np.iinfo(np.int64).min, np.iinfo(np.int64).max
    x, y = rng.integers(-8, 9, 3000).astype(np.float32), np.full(keys, np.nan, np.float32)
    run(plan, x=x, ids=ids, y=y)
    inside = (ids >= 0) & (ids < keys)
    assert np.array_equal(y, np.bincount(ids[inside], x[inside], minlength=keys))


@pytest.mark.parametrize(("cells", "keys"), [(100, 3), (5000, 700), (5000, 300_000)])
def test_positions_of_a_key_keep_their_order(tmp_path: Path, cells: int, keys: int) -> None:
    """What the plan leaves in its workspace behind the parts of sums: keys in order, and the position of each."""
    spec = spec_of(
        tmp_path, "x: {dims: [i]}, ids: {dims: [i], dtype: i64}", "y: {dims: [row]}",
        "y = sum(where(ids == index(row), x, 0.0), i)",
    )  # fmt: skip
    plan, ids = plan_for(spec, batch=1, cells=cells, keys=keys, width=1), np.arange(cells) * 7919 % (keys + 1)
    scratch = np.zeros(plan.workspace_bytes, np.uint8)
    plan._run((np.ones(cells, np.float32), ids, np.empty(keys, np.float32)), scratch, None)
    parts, size, *_ = plan._parts_bytes(plan.descriptor, plan.sku)
    key, position = (scratch[at : at + 4 * cells].view(np.uint32) for at in (parts, parts + size))
    order = np.argsort(ids, kind="stable")
    assert np.array_equal(key, ids[order])
    assert np.array_equal(position, order)


def test_other_conditions_hold_too(tmp_path: Path) -> None:
    spec = spec_of(
        tmp_path, f"{X}, {IDS}", "y: {dims: [b, row, d]}",
        "y = sum(where(x > 0.0 and ids == index(row) and index(d) < 3, x, 0.0), i) + index(row)",
    )  # fmt: skip
    rng = np.random.default_rng(4)
    x, ids = rng.integers(-8, 9, (2, 90, 4)).astype(np.float32), rng.integers(-1, 4, (2, 90))
    plan, y = plan_for(spec, batch=2, cells=90, keys=3, width=4), np.full((2, 3, 4), np.nan, np.float32)
    run(plan, x=x, ids=ids, y=y)
    wanted = np.where((x > 0) & (np.arange(4) < 3), x, 0)
    assert np.array_equal(y, rows_of_keys(wanted, ids, 3) + np.arange(3)[:, None])


@pytest.mark.parametrize("empty", ["cells", "keys", "width", "batch"])
def test_nothing_at_all(tmp_path: Path, empty: str) -> None:
    spec = spec_of(
        tmp_path, f"{X}, {IDS}", "y: {dims: [b, row, d]}", "y = sum(where(ids == index(row), x, 0.0), i)"
    )
    of = {"batch": 2, "cells": 5, "keys": 3, "width": 4, empty: 0}
    y = np.full((of["batch"], of["keys"], of["width"]), np.nan, np.float32)
    x = np.ones((of["batch"], of["cells"], of["width"]), np.float32)
    run(plan_for(spec, **of), x=x, ids=np.zeros(x.shape[:2], np.int64), y=y)
    assert not np.any(y)


def test_more_positions_than_have_room(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, f"{X}, {IDS}", "y: {dims: [row, d]}", "y = sum(where(ids == index(row), x, 0.0), b, i)")
    with pytest.raises(rt.Unsupported, match=f"over {MOST + 1} positions, there is room for {MOST}"):
        plan_for(spec, batch=1, cells=MOST + 1, keys=1, width=1)
