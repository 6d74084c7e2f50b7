"""Weights of four bits made while few rows are multiplied: a row has the bits that it has among many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda.ops as ops
from baracuda.codegen.emit.generate import texts
from baracuda.codegen.emit.plan_classes import plan_of, rows_of
from baracuda.codegen.lower.lower import lower
from baracuda.codegen.spec.load import load_spec
from baracuda.generated import Int4LinearDescriptor, Int4LinearPlan, Nf4LinearDescriptor, Nf4LinearPlan

MANY = 70  # rows, for which weights are in memory
FEW = (1, 5, 17, 40, 64)
ELEMENTS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
# Depth, columns and size of groups: several turns of the ring, groups that share runs of the depth, odd ends.
SHAPES = [(2080, 80, 128), (264, 72, 8), (520, 24, 3), (100, 40, 100), (777, 33, 32), (2304, 20, 1024), (96, 16, 1)]


def whole(rng: np.random.Generator, shape: tuple[int, int]) -> Any:
    return rng.integers(0, 16, shape), rng.normal(size=shape)


def odd(rng: np.random.Generator, shape: tuple[int, int]) -> Any:
    """Some rows have zero points that are not whole."""
    zero = rng.integers(0, 16, shape).astype(float)
    zero[::3] = 7 * rng.normal(size=zero[::3].shape)
    return zero, rng.normal(size=shape)


def large(rng: np.random.Generator, shape: tuple[int, int]) -> Any:
    """Differences from codes that elements do not hold, and scales that are subnormal in f16."""
    return rng.integers(-300, 3000, shape), 1e-5 * rng.normal(size=shape)


def special(rng: np.random.Generator, shape: tuple[int, int]) -> Any:
    zero, scale = rng.integers(0, 16, shape).astype(float), rng.normal(size=shape)
    scale[0, 0], scale[1, -1], zero[2, 0], zero[3, 0], zero[4, 0] = np.inf, np.nan, np.nan, -0.0, np.inf
    return zero, scale


@pytest.mark.parametrize("values", [whole, odd, large, special])
@pytest.mark.parametrize("element", ELEMENTS)
def test_few_rows_have_the_bits_of_many(element: str, values: Any) -> None:
    rng, dtype = np.random.default_rng(7), ELEMENTS[element]
    for depth, columns, size in SHAPES:
        x = rng.normal(size=(MANY, depth)).astype(dtype)
        codes = rng.integers(-(2**31), 2**31, (columns, -(-depth // 8))).astype(np.int32)
        zero, scale = (of.astype(dtype) for of in values(rng, (columns, -(-depth // size))))
        many = ops.int4_linear(x, codes, scale, zero, group_size=size)
        for rows in FEW:
            few = ops.int4_linear(x[:rows], codes, scale, zero, group_size=size)
            same = few.view(np.uint16) == many[:rows].view(np.uint16)
            assert (same | (np.isnan(few.astype(float)) & np.isnan(many[:rows].astype(float)))).all(), (depth, rows)


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("of_scale", [np.float32, None])
@pytest.mark.parametrize("element", ELEMENTS)
def test_few_rows_have_the_bits_of_many_with_tables(element: str, of_scale: Any, special: bool) -> None:
    """Also of values that are subnormal in f16, of those that overflow or are no numbers, and of strided arrays."""
    rng, dtype = np.random.default_rng(7), ELEMENTS[element]
    table = (rng.normal(size=16) * np.logspace(-7, 1, 16)).astype(np.float32)
    table[12] = -0.0
    if special:  # sums are then infinite or NaN in some columns only
        table[3], table[15] = np.nan, 1e6
    for depth, columns, size in [*SHAPES, (2080, 70, 64)]:
        x = rng.normal(size=(MANY, depth)).astype(dtype)
        codes = rng.integers(0, 256, (columns, -(-depth // 2))).astype(np.uint8)
        if special:
            codes[::2] = rng.choice([0x12, 0x4A, 0x9C, 0xED, 0x7B, 0x86], size=codes[::2].shape)
        absmax = rng.normal(size=(columns, -(-depth // size))).astype(of_scale or dtype)
        many = ops.nf4_linear(x, codes, absmax, table, group_size=size)
        assert np.isfinite(many[:, ::2].astype(float)).all() and many[:, ::2].any()
        assert special or np.isfinite(many.astype(float)).all()
        for rows in FEW:
            few = ops.nf4_linear(x[:rows], codes, absmax, table, group_size=size)
            strided = ops.nf4_linear(x[:rows], np.asfortranarray(codes), absmax, table, group_size=size)
            for of in (few, strided):
                same = of.view(np.uint16) == many[:rows].view(np.uint16)
                both_nan = np.isnan(of.astype(float)) & np.isnan(many[:rows].astype(float))
                assert (same | both_nan).all(), (depth, rows)


def test_floats_are_in_memory() -> None:
    problem = Nf4LinearDescriptor(tokens=1, in_features=64, out_features=16, element="f32")
    assert Nf4LinearPlan.select(problem).workspace_bytes > 0


def test_any_strides_give_the_same_bits() -> None:
    rng = np.random.default_rng(7)
    x = rng.normal(size=(3, 288)).astype(np.float16)
    codes = rng.integers(-(2**31), 2**31, (36, 40)).astype(np.int32)
    zero, scale = rng.integers(0, 16, (40, 9)).astype(np.float16), rng.normal(size=(40, 9)).astype(np.float16)
    packed = ops.int4_linear(x, np.ascontiguousarray(codes.T), scale, zero, group_size=32)
    strided = ops.int4_linear(np.asfortranarray(x), codes.T, np.asfortranarray(scale), zero, group_size=32)
    assert np.array_equal(packed.view(np.uint16), strided.view(np.uint16))


@pytest.mark.parametrize(("rows", "is_made"), [(1, True), (64, True), (65, False)])
def test_few_rows_take_no_workspace(rows: int, is_made: bool) -> None:
    problem = Int4LinearDescriptor(tokens=rows, in_features=64, out_features=16, element="f16")
    plan = Int4LinearPlan.select(problem)
    assert (plan.workspace_bytes == 0) == is_made
    assert len({source.symbol for source in plan.sources()}) == (1 if is_made else 2)


LAYER = """\
op: layer
doc: A layer with a bias and an activation.
family: matmul
descriptor: {tokens: int, width: int, hidden: int, has_bias: bool}
dims: {t: tokens, j: hidden, i: width, word: "ceil_div(width, 8)", block: "ceil_div(width, 64)"}
dtypes: [f16]
inputs:
  x: {dims: [t, i]}
  codes: {dims: [j, word], dtype: i32, outside: 0}
  zero: {dims: [j, block], outside: 0}
  scale: {dims: [j, block], outside: 0}
  bias: {dims: [j], optional: has_bias, default: 0}
  gain: {dims: []}
outputs: {y: {dims: [t, j]}, z: {dims: [t, j], dtype: acc}}
program: |
  code = codes[j, i // 8] >> 4 * (index(i) % 8) & 15
  z = sum(x * T((code - zero[j, i // 64]) * scale[j, i // 64]), i) * gain
  y = relu(z + bias)
"""


def plan_class(folder: Path, text: str = LAYER) -> Any:
    path = folder / "layer.yaml"
    path.write_text(text)
    op = lower(load_spec(path).spec, "layer.yaml")
    return plan_of(op, rows_of(op, texts([op])["custom/layer.cu"]))


@pytest.mark.parametrize("has_bias", [False, True])
def test_an_epilogue_follows(tmp_path: Path, has_bias: bool) -> None:
    cls, rng, found = plan_class(tmp_path), np.random.default_rng(7), {}
    of = {"x": rng.normal(size=(MANY, 200)), "zero": rng.integers(0, 16, (24, 4)), "scale": rng.normal(size=(24, 4))}
    of |= {"bias": rng.normal(size=24), "gain": np.array(0.3)}
    arrays = {name: array.astype(np.float16) for name, array in of.items() if has_bias or name != "bias"}
    arrays["codes"] = rng.integers(-(2**31), 2**31, (24, 25)).astype(np.int32)
    for rows in (9, MANY):
        plan = cls.select(cls.DESCRIPTOR(tokens=rows, width=200, hidden=24, has_bias=has_bias, element="f16"))
        assert (plan.workspace_bytes == 0) == (rows == 9)
        y, z = np.zeros((rows, 24), np.float16), np.zeros((rows, 24), np.float32)
        given = {**arrays, "x": arrays["x"][:rows], "y": y, "z": z}
        plan._run(tuple(given.get(name) for name in cls.ARGUMENTS), np.zeros(plan.workspace_bytes, np.uint8), None)
        found[rows] = y, z
    for few, many in zip(found[9], found[MANY], strict=True):
        assert few.any()
        assert np.array_equal(few, many[:9])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("& 15", "& 7"),
        ("4 * (index(i) % 8)", "4 * (index(i) % 4)"),
        ("codes[j, i // 8]", "codes[j, i // 4]"),
        ("dtype: i32, outside: 0", "dtype: i32, outside: 1"),
        ("dtype: i32", "dtype: i64"),
        ("scale[j, i // 64]", "scale[j, (i + index(j)) // 64]"),
        ("scale[j, i // 64]", "(scale[j, i // 64] + index(i))"),
        ("scale[j, i // 64]", "scale[j, code + i]"),
    ],
)
def test_other_factors_are_made_before_the_product(tmp_path: Path, before: str, after: str) -> None:
    assert before in LAYER
    cls = plan_class(tmp_path, LAYER.replace(before, after))
    assert len(cls.PASSES) == 2
    assert len(plan_class(tmp_path).PASSES) == 3


WORDS = "codes: {dims: [j, word], dtype: i32, outside: 0}"
BYTES = WORDS.replace("word", "byte").replace("i32", "u8")
OF_BYTES = {"ceil_div(width, 8)": "ceil_div(width, 2)", "word:": "byte:", WORDS: BYTES, "i // 8": "i // 2"}
BY_TABLE = {
    "gain: {dims: []}": "gain: {dims: []}\n  table: {dims: [j, entry], outside: 0}",
    "block: ": 'entry: "16", block: ',
}


@pytest.mark.parametrize(
    ("changes", "paired"),
    [
        ({}, True),
        ({**OF_BYTES, "% 8": "% 2"}, True),
        ({**OF_BYTES, "4 * (index(i) % 8)": "4 * (1 - index(i) % 2)"}, False),
        ({"4 * (index(i) % 8)": "4 * (7 - index(i) % 8)"}, False),
        ({"(code - zero[j, i // 64])": "(code + zero[j, i // 64])"}, False),
        ({"  scale: {dims: [j, block], outside": "  scale: {dims: [j, block], dtype: f32, outside"}, False),
        ({**BY_TABLE, "(code - zero[j, i // 64])": "(table[j, code] + zero[j, i // 50])"}, False),
        ({**BY_TABLE, "(code - zero[j, i // 64]) * scale[j, i // 64]": "table[j, code]"}, False),
    ],
)
def test_any_function_of_a_code_is_made(tmp_path: Path, changes: dict[str, str], paired: bool) -> None:
    text = LAYER
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    if "scale[" not in text:
        text = text.replace("  zero: {dims: [j, block], outside: 0}\n", "").replace(
            "  scale: {dims: [j, block], outside: 0}\n", ""
        )
        text = text.replace(', block: "ceil_div(width, 64)"', "")
    cls, rng, found = plan_class(tmp_path, text), np.random.default_rng(7), {}
    assert cls.PASSES[-1].paired == paired
    element, size = (np.uint8, 2) if "byte" in text else (np.int32, 8)
    codes = rng.integers(np.iinfo(element).min, np.iinfo(element).max, (24, 416 // size), element, endpoint=True)
    of = {"x": rng.normal(size=(MANY, 416)), "zero": rng.integers(0, 16, (24, 7)), "scale": rng.normal(size=(24, 7))}
    of |= {"gain": np.array(0.3), "table": rng.normal(size=(24, 16))}
    arrays = {name: array.astype(np.float16) for name, array in of.items()} | {"codes": codes}
    if "dtype: f32" in text:
        arrays["scale"] = of["scale"].astype(np.float32)
    for rows in (9, MANY):
        plan = cls.select(cls.DESCRIPTOR(tokens=rows, width=416, hidden=24, has_bias=False, element="f16"))
        assert (plan.workspace_bytes == 0) == (rows == 9)
        y, z = np.zeros((rows, 24), np.float16), np.zeros((rows, 24), np.float32)
        given = {**arrays, "x": arrays["x"][:rows], "y": y, "z": z}
        plan._run(tuple(given.get(name) for name in cls.ARGUMENTS), np.zeros(plan.workspace_bytes, np.uint8), None)
        found[rows] = z
    assert found[9].any()
    assert np.array_equal(found[9], found[MANY][:9])
