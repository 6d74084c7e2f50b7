"""Invariant: a program with a matrix product is one of the matmul family, and any other a map."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from baracuda.codegen.families.map.spec import MapSpec
from baracuda.codegen.families.matmul.passes import passes
from baracuda.codegen.families.matmul.product import Product
from baracuda.codegen.families.matmul.spans import Span
from baracuda.codegen.families.matmul.weights import Weight
from baracuda.codegen.spec.family import family_of
from baracuda.codegen.spec.load import load_folder, load_spec
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
        ("sum(a * b, depth) + c", "sum(a * b, depth) * sum(b * a, depth) + c"),
        ("sum(a * b, depth) + c", "sum(a * b, depth) * c * index(col)"),
        ("sum(a * b, depth) + c", "sum(T(abs(a)) * b, depth) + c"),
        ("y = relu(sum(a * b, depth) + c)", "|\n  f = T(abs(a))\n  y = sum(f * b, depth) + c"),
        ("y: {dims: [row, col]}", "y: {dims: [row, col, depth]}"),
    ],
    ids=["a sum beside it", "two products", "an index", "a rounded factor", "a rounded line", "the depth of an output"],
)
def test_what_else_is_computed_leaves_it_there(tmp_path: Path, before: str, after: str) -> None:
    assert before in PRODUCT
    assert load(tmp_path, PRODUCT.replace(before, after)).family == "matmul"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("sum(a * b, depth) + c", "sum(a * abs(b), depth) + c"),
        ("sum(a * b, depth) + c", "sum(acc(a) * b, depth) + c"),
        ("sum(a * b, depth) + c", "max(a * b, depth) + c"),
        ("b: {dims: [col, depth]}", "b: {dims: [depth]}"),
        ("b: {dims: [col, depth]}", "b: {dims: [col, depth], dtype: f32}"),
        ("dims: {row", "dtypes: [f32, f16]\nfamily: map\ndims: {row"),
        ("relu(sum(a * b, depth) + c)", "relu(sum(a * b, depth) + c"),
    ],
    ids=["no factor", "another cast", "no sum", "a vector", "another type", "named", "no program"],
)
def test_anything_else_is_a_map(tmp_path: Path, before: str, after: str) -> None:
    assert before in PRODUCT
    try:
        spec = load(tmp_path, PRODUCT.replace(before, after))
    except SpecError as error:
        assert "matrix product" not in str(error)
    else:
        assert spec.family == "map"


def test_a_product_updates_nothing(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="the matmul family's outputs have memory of their own; leave `updates` out"):
        load(tmp_path, PRODUCT.replace("y: {dims: [row, col]}", "y: {dims: [row, col], updates: c}"))


@pytest.mark.parametrize(
    ("term", "is_noted"),
    [("a * abs(b)", True), ("relu(a) * b * 2", True), ("a + b", False), ("a * a + b * b", False)],
)
def test_a_product_that_a_map_computes_is_noted(tmp_path: Path, term: str, is_noted: bool) -> None:
    spec = load(tmp_path, PRODUCT.replace("sum(a * b, depth)", f"sum({term}, depth)"))
    assert spec.family == "map"
    notes = [*family_of(spec).notes(spec)]
    assert len(notes) == is_noted and all("is computed term by term; `family: matmul`" in text for _, text in notes)
    whole = load(tmp_path, PRODUCT)
    assert not [*family_of(whole).notes(whole)]


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("sum(a * b, depth)", "max(a * b, depth)", "max(a * b, depth) is no matrix product; write sum(a * b, dim)"),
        ("[col, depth]}", "[depth]}", "'a' has dims [row] of its own, 'b' [], both []; a matrix product has one, one"),
        ("b: {dims: [col, depth]}", "b: {dims: [col, depth], dtype: f32}", "'b' is a factor of the product, so its"),
        ("a: {dims: [row, depth]}", "a: {dims: [row, depth], outside: 0}", "'a' is read at other places, too, so as a"),
        ("sum(a * b, depth)", "sum(a * b, depth, row)", "sums over depth, row; a matrix product has one depth"),
        ("y = relu(sum(a * b, depth) + c)", "|\n  f = abs(a)\n  y = sum(f * b, depth) + c", "'f' is a factor of the"),
        ("a: {dims: [row, depth]}", "a: {dims: [row, depth], dtype: f8e4m3}", "'a' of f8e4m3 and 'b' of T are no"),
        ("a: {dims: [row, depth]}", "a: {dims: [row, depth], dtype: [i8, i16]}", "or a list of f8e4m3 and f8e5m2; or"),
        ("descriptor: {m: int", "dtypes: [i32]\ndescriptor: {m: int", "i32 is not multiplied by any kernel"),
        ("y: {dims: [row, col]}", "y: {dims: [row, col], may_alias: [a]}", "'y'"),
        ("m: int", "m: shape", "is the axes of a shape; a matrix product's dims are one axis each"),
    ],
)
def test_what_no_kernel_multiplies_is_named(tmp_path: Path, before: str, after: str, says: str) -> None:
    assert before in PRODUCT
    read = PRODUCT.replace("+ c", "+ c * a[row, row]") if "outside" in after else PRODUCT
    with pytest.raises(SpecError) as error:
        load(tmp_path, read.replace("op: product", "op: product\nfamily: matmul").replace(before, after))
    assert says in str(error.value)


BYTES = PRODUCT.replace("c: {dims: [col]}", "c: {dims: [col], dtype: f32}")
BYTES = BYTES.replace("a: {dims: [row, depth]}", "a: {dims: [row, depth], dtype: [f8e4m3, f8e5m2]}")
BYTES = BYTES.replace("b: {dims: [col, depth]}", "b: {dims: [col, depth], dtype: f8e4m3}")
WHOLE = PRODUCT.replace("c: {dims: [col]}", "c: {dims: [col], dtype: f32}").replace("depth]}", "depth], dtype: i8}")


def test_factors_of_bytes_are_of_any_element_type(tmp_path: Path) -> None:
    """Sums of whole numbers are exact, so that their bits are the same everywhere, as are those of what follows."""
    floats, whole = load(tmp_path, BYTES), load(tmp_path, WHOLE)
    assert (floats.family, whole.family) == ("matmul", "matmul")
    assert floats.dtypes == whole.dtypes == ("f32", "f16", "bf16", "f64")
    assert floats.reproducibility["y"] == ("deterministic", "bit_stable_on_same_hardware", "batch_invariant")
    assert whole.reproducibility["y"] == (*floats.reproducibility["y"], "bit_stable_across_arch")


def test_products_of_one_program_have_factors_of_one_kind(tmp_path: Path) -> None:
    text = BYTES.replace("sum(a * b, depth) + c", "sum(a * b, depth) + sum(e * g, depth)")
    text = text.replace("  c: {dims: [col], dtype: f32}", "  e: {dims: [row, depth]}\n  g: {dims: [col, depth]}")
    with pytest.raises(SpecError, match="products of T and f8e4m3, f8e5m2 need kernels of two kinds"):
        load(tmp_path, text)


GRADIENTS = {
    "sum(a * b, depth) + c": "da = sum(dy * b, col)\ndb = sum(dy * a, row)\ndc = sum(dy, row)",
    "2.0 * sum(a * b, depth) + c": "dz = T(2.0 * dy)\nda = sum(dz * b, col)\ndb = sum(dz * a, row)\ndc = sum(dy, row)",
    "maximum(sum(a * b, depth) + c, 0.0)": (
        "the_sum = sum(a * b, depth)\n"
        "dz = T(where(the_sum + c > 0.0, dy, where(the_sum + c < 0.0, 0.0, 0.5 * dy)))\n"
        "da = sum(dz * b, col)\ndb = sum(dz * a, row)\ndc = sum(dz, row)"
    ),
    "sum(T(2.0 * a) * b, depth) + c": (
        "y_factor = T(2.0 * a)\n"
        "d_sum_2 = sum(dy * b, col)\nda = 2.0 * d_sum_2\ndb = sum(dy * y_factor, row)\ndc = sum(dy, row)"
    ),
}


@pytest.mark.parametrize("program", GRADIENTS)
def test_gradients_are_products_of_elements(tmp_path: Path, program: str) -> None:
    """What is multiplied is the gradient that comes in, or a value that the program rounds once."""
    text = PRODUCT.replace("relu(sum(a * b, depth) + c)", program)
    (tmp_path / "product.yaml").write_text(f"{text}backward: {{}}\n", encoding="utf-8")
    gradient = load_folder(tmp_path)["product_backward"].spec
    assert isinstance(gradient, MapSpec)
    assert gradient.program == GRADIENTS[program]
    assert gradient.family == "matmul"
    assert "batch_invariant" in gradient.reproducibility["da"]
    assert "batch_invariant" not in gradient.reproducibility["db"]
    assert "batch_invariant" not in gradient.reproducibility["dc"]


def test_a_gradient_that_comes_in_as_a_sum_is_rounded_too(tmp_path: Path) -> None:
    text = PRODUCT.replace("relu(sum(a * b, depth) + c)", "sum(a * b, depth) + c")
    text = text.replace("y: {dims: [row, col]}", "y: {dims: [row, col], dtype: acc}")
    (tmp_path / "product.yaml").write_text(f"{text}backward: {{}}\n", encoding="utf-8")
    gradient = load_folder(tmp_path)["product_backward"].spec
    assert isinstance(gradient, MapSpec)
    assert gradient.program == "dz = T(dy)\nda = sum(dz * b, col)\ndb = sum(dz * a, row)\ndc = sum(dz, row)"


GROUPS = """\
op: groups
doc: Products of groups.
family: matmul
descriptor: {m: int, n: int, k: int, groups: int}
dims: {row: m, group: groups, col: n, depth: k}
inputs:
  x: {dims: [row, depth]}
  w: {dims: [group, col, depth]}
  ends: {dims: [group], dtype: i32}
outputs: {y: {dims: [row, col]}}
program: |
  g = min(where(index(row) < ends, index(group), size(group)), group)
  y = sum(where(g == index(group), x * w, 0.0), group, depth)
tests: {ranges: {ends: [0, 9]}}
"""
REFUSED_GROUPS = {
    ("g == index(group)", "g <= index(group)"): "terms of a matrix product count where number == index(dim)",
    ("size(group)), group)", "0), group)"): "terms of a matrix product count where number == index(dim)",
    ("{dims: [row, col]}}\nprogram", "{dims: [row, group, col]}}\nprogram", "group, depth)", "depth)"): (
        "each of row is multiplied by one matrix; sum over group too"
    ),
}


def test_rows_of_groups_are_multiplied_where_they_are(tmp_path: Path) -> None:
    spec = load(tmp_path, GROUPS)
    assert isinstance(spec, MapSpec)
    (only,) = passes(spec)
    assert isinstance(only.product, Product)
    assert only.product.span == Span("ends", "row", "group", segments=True)
    assert only.product.dims == {"batch": "group", "rows": "row", "columns": "col", "depth": "depth"}
    assert "g" not in only.parts.dims or only.parts.line("g") is None


@pytest.mark.parametrize(("change", "message"), REFUSED_GROUPS.items(), ids=range(3))
def test_other_conditions_are_refused(tmp_path: Path, change: tuple[str, ...], message: str) -> None:
    text = GROUPS
    for before, after in zip(change[::2], change[1::2], strict=True):
        assert before in text
        text = text.replace(before, after)
    with pytest.raises(SpecError, match=re.escape(message)):
        load(tmp_path, text)


SCALED = """\
op: scaled
doc: Products with scales of blocks.
family: matmul
descriptor: {m: int, n: int, k: int}
dims: {row: m, col: n, depth: k, part: "ceil_div(k, 128)", band: "ceil_div(n, 64)"}
inputs:
  a: {dims: [row, depth], dtype: f8e4m3}
  b: {dims: [col, depth], dtype: f8e4m3}
  s: {dims: [row, part], dtype: f32, outside: 0}
  t: {dims: [band, part], dtype: f32, outside: 0}
outputs: {y: {dims: [row, col]}}
program: y = sum(a * s[row, depth // 128] * (t[col // 64, depth // 128] * b), depth)
"""
REFUSED_WEIGHTS = {
    ("depth // 128", "depth // 64", "k, 128", "k, 64"): (
        "'s' is one number for 64 of depth; products add up 128 of it at a time: read it at depth // 128, or // a"
    ),
    ("ceil_div(k, 128)", "ceil_div(k, 64)"): "'s' has ceil_div(k, 64) elements along part; give it ceil_div(k, 128)",
    ("t[col // 64, ", "t[(col + 1) // 64, "): "'t' is read at (index(col) + 1) // 64 in a product",
    ("(t[", "(index(row) * t["): "index(row) is no part of a weight; make an input of it",
    ("s[row, depth // 128]", "s[row, 0]"): "'s' is read at 0 in a product",
    ("dtype: f8e4m3", "dtype: i8"): "is multiplied with each term; of factors of 8-bit floats alone, else with the sum",
}


def test_what_is_the_same_for_parts_of_the_depth_is_a_weight(tmp_path: Path) -> None:
    spec = load(tmp_path, SCALED)
    assert isinstance(spec, MapSpec)
    (only,) = passes(spec)
    assert isinstance(only.product, Product)
    assert (only.product.left, only.product.right) == ("a", "b")
    assert only.product.weights == (
        Weight("s", (("row", 1), ("depth", 128))),
        Weight("t", (("col", 64), ("depth", 128))),
    )


@pytest.mark.parametrize(("change", "message"), REFUSED_WEIGHTS.items(), ids=range(6))
def test_other_weights_are_refused(tmp_path: Path, change: tuple[str, ...], message: str) -> None:
    text = SCALED
    for before, after in zip(change[::2], change[1::2], strict=True):
        assert before in text
        text = text.replace(before, after)
    with pytest.raises(SpecError, match=re.escape(message)):
        load(tmp_path, text)
