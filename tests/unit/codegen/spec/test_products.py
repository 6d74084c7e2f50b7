"""Invariant: a program that is a matrix product is one of the matmul family, and any other a map."""

from __future__ import annotations

from pathlib import Path

import pytest

from baracuda.codegen.spec.load import load_spec
from baracuda.codegen.spec.spec import OpSpec
from baracuda.runtime import SpecError

PRODUCT = """\
op: product
doc: A matrix product.
descriptor: {m: int, n: int, k: int}
dims: {row: m, col: n, depth: k}
inputs:
  a: {dims: [row, depth]}
  b: {dims: [col, depth]}
  c: {dims: [col]}
outputs:
  y: {dims: [row, col]}
program: y = relu(sum(a * b, depth) + c)
"""


def load(folder: Path, text: str) -> OpSpec:
    path = folder / "product.yaml"
    path.write_text(text, encoding="utf-8")
    return load_spec(path).spec


def test_a_product_is_of_the_matmul_family(tmp_path: Path) -> None:
    spec = load(tmp_path, PRODUCT)
    assert spec.family == "matmul"
    assert spec.reproducibility["y"] == ("deterministic", "bit_stable_on_same_hardware", "batch_invariant")
    assert spec.tests.batch == "m"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("sum(a * b, depth) + c", "sum(a * b, depth) + sum(c, col)"),
        ("sum(a * b, depth) + c", "sum(a * abs(b), depth) + c"),
        ("sum(a * b, depth) + c", "sum(a * b, depth) * index(col)"),
        ("sum(a * b, depth) + c", "max(a * b, depth) + c"),
        ("y: {dims: [row, col]}", "y: {dims: [row, col, depth]}"),
        ("b: {dims: [col, depth]}", "b: {dims: [depth]}"),
        ("b: {dims: [col, depth]}", "b: {dims: [col, depth], dtype: f32}"),
        ("dims: {row", "dtypes: [f32, f16]\nfamily: map\ndims: {row"),
    ],
    ids=["two sums", "no factor", "a place", "no sum", "the depth of an output", "a vector", "another type", "named"],
)
def test_anything_else_is_a_map(tmp_path: Path, before: str, after: str) -> None:
    assert before in PRODUCT
    try:
        spec = load(tmp_path, PRODUCT.replace(before, after))
    except SpecError as error:
        assert "matrix product" not in str(error)
    else:
        assert spec.family == "map"


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("sum(a * b, depth)", "max(a * b, depth)", "max(a * b, depth) is no matrix product; write sum(a * b, dim)"),
        ("+ c", "+ sum(c * c, col)", "sum(c * c, col) is reduced beside the matrix product"),
        ("[col, depth]}", "[depth]}", "'a' has dims [row] of its own, 'b' [], both []; a matrix product has one, one"),
        ("y: {dims: [row, col]}", "y: {dims: [row, col, depth]}", "so its dims are row, col"),
        ("b: {dims: [col, depth]}", "b: {dims: [col, depth], dtype: f32}", "'b' is a factor of the product, so its"),
        ("descriptor: {m: int", "dtypes: [i32]\ndescriptor: {m: int", "i32 is not multiplied by any kernel"),
        ("y: {dims: [row, col]}", "y: {dims: [row, col], may_alias: [a]}", "'y'"),
        ("m: int", "m: shape", "is the axes of a shape; a matrix product's dims are one axis each"),
    ],
)
def test_what_no_kernel_multiplies_is_named(tmp_path: Path, before: str, after: str, says: str) -> None:
    assert before in PRODUCT
    with pytest.raises(SpecError) as error:
        load(tmp_path, PRODUCT.replace("op: product", "op: product\nfamily: matmul").replace(before, after))
    assert says in str(error.value)
