"""Invariant: the shapes of inputs show every field that follows from them, whatever stands beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from baracuda.codegen.lower.extents import extents_of
from baracuda.codegen.spec.load import load_spec
from baracuda.runtime import Extent

HEAD = "op: sample\ndoc: A sample.\nprogram: y = x\n"
INTS = "a: int, b: int, c: int"


@pytest.mark.parametrize(
    ("fields", "dims", "tensor", "shape", "values"),
    [
        ("s: shape, a: int, b: int", "i: a, p: s, j: b", "[i, p, j]", (2, 5, 6, 3), {"s": (5, 6), "a": 2, "b": 3}),
        ("s: shape, a: int", "i: a, p: s", "[i, p]", (2, 5, 6), {"s": (5, 6), "a": 2}),
        ("s: shape, a: int", "p: s, i: a", "[p, i]", (5, 6, 2), {"s": (5, 6), "a": 2}),
        ("s: shape, a: int", "p: s, i: a", "[p, i]", (2,), {"s": (), "a": 2}),
        ("s: shape", "p: s", "[p]", (5, 6), {"s": (5, 6)}),
        ("s: shape, t: shape, a: int, b: int", "i: a, p: s, q: t, j: b", "[i, p, q, j]", (2, 5, 3), {"a": 2, "b": 3}),
        ("a: {type: int, doc: d}", "i: a * 2", "[i]", (6,), {"a": 3}),
        ("a: {type: int, doc: d}", "i: a + 1", "[i]", (6,), {}),
        ("a: int, b: int", "i: a, j: b", "[i * j]", (12,), {"b": 6}),
        (INTS, "k: c, i: a, j: b", "[k, i * j]", (4, 12), {"c": 4, "b": 6}),
    ],
)
def test_fields_follow_from_shapes(
    tmp_path: Path, fields: str, dims: str, tensor: str, shape: tuple[int, ...], values: dict[str, object]
) -> None:
    """`a` is 2 where a caller has to say it."""
    path = tmp_path / "sample.yaml"
    tensors = f"inputs: {{x: {{dims: {tensor}}}}}\noutputs: {{y: {{dims: {tensor}}}}}\n"
    tests = "tests: {defaults: {a: 2}}\n" if "doc: d" in fields else ""
    path.write_text(f"{HEAD}descriptor: {{{fields}}}\ndims: {{{dims}}}\n{tensors}{tests}")
    found = {}
    for extent in sorted(extents_of(load_spec(path).spec), key=lambda extent: len(extent.by)):
        found[extent.field] = extent.of(shape, {"a": 2, **found})
    assert found == values


def test_too_few_axes_show_nothing() -> None:
    assert Extent("s", "x", 2, behind=1).of((1, 2), {}) is None
    assert Extent("a", "x", -2).of((1,), {}) is None
    assert (Extent("s", "x", 2, behind=1).least_rank, Extent("a", "x", -2).least_rank) == (3, 2)
