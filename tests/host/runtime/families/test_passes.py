"""Small map programs on the host device: how those that reduce between cells are cut, and what they compute."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from repository import SPECS

import baracuda.runtime as rt
from baracuda import ops
from baracuda.codegen.emit.generate import texts
from baracuda.codegen.emit.plan_classes import plan_of, rows_of
from baracuda.codegen.families.map.kinds import kind_groups
from baracuda.codegen.families.map.passes import passes
from baracuda.codegen.lower.lower import lower
from baracuda.codegen.spec.load import load_spec

HEAD = """\
op: sample
doc: A sample.
descriptor: {rows: int, cols: int}
dims: {i: rows, j: cols}
inputs: {a: {dims: [i, j]}, w: {dims: [j]}}
"""
Program = tuple[str, str]  # outputs and lines

# What is computed, and over which dims each pass reduces.
PROGRAMS: dict[str, tuple[str, str, list[str]]] = {
    "sums of columns last": (
        "{wide: {}, total: {dims: [j]}}",
        "total = sum(a, i)\nwide = a / sum(a * a, j) + w",
        ["j", "i"],  # with the cells of `wide`
    ),
    "a sum of sums": ("{y: {dims: []}}", "y = sum(sum(a, j) * sum(a, j), i) + sum(w, j)", ["j", "i", "j"]),
    "spread over cells": (
        "{y: {}}",
        "m = max(a, j)\ny = (a - m) / sqrt(sum(abs(a - m), j) + 1.0)",
        ["j", "j", ""],
    ),
    "a value of two reductions": ("{y: {}}", "r = sum(a, j)\nc = sum(a, i)\ny = r * c + w", ["j", "i", ""]),
    "one number for all": ("{y: {}}", "y = a * minimum(1.0, 2.0 / sqrt(sum(a * a, i, j)))", ["ij", ""]),
    "ints and bools": (
        "{y: {}, at: {dims: [i], dtype: i64}}",
        "at = argmax(a, j)\ny = where(index(j) == at and any(a > 1.0, j), a, w)",
        ["j", ""],
    ),
    "an output that is read again": (
        "{m: {dims: [i], dtype: acc}, n: {dims: [i]}, y: {}}",
        "m = mean(a, j)\nn = m + 1.0\ny = (a - m) * n",
        ["j", ""],
    ),
    "a mean and a variance at once": ("{y: {}}", "y = (a - mean(a, j)) / sqrt(var(a, j) + 1.0)", ["j", ""]),
    "read where the largest is": ("{y: {dims: [i]}}", "at = argmax(a, j)\ny = w[at]", ["j", ""]),
    "copies of a row's value": ("{y: {}}", "y = sum(a, j)", ["j", ""]),
}


def spec_of(tmp_path: Path, outputs: str, lines: str, head: str = HEAD) -> Any:
    body = "".join(f"  {line}\n" for line in lines.splitlines())
    head = head if "w" in lines else head.replace(", w: {dims: [j]}", "")
    head = head.replace("w: {dims: [j]}", "w: {dims: [j], outside: 0}") if "w[" in lines else head
    path = tmp_path / "sample.yaml"
    path.write_text(f"{head}outputs: {outputs}\nprogram: |\n{body}reference: |\n{body}")
    return load_spec(path).spec


def plan_for(spec: Any, *, element: str = "f32", **fields: Any) -> Any:
    op = lower(spec, "sample.yaml")
    plan = plan_of(op, rows_of(op, texts([op])["custom/sample.cu"]))
    return plan.select(plan.DESCRIPTOR(element=element, **fields))


def run(plan: Any, **arrays: Any) -> None:
    scratch = np.full(plan.workspace_bytes, 0xAA, np.uint8) if plan.workspace_bytes else None
    plan._run(tuple(arrays[name] for name in plan.ARGUMENTS), scratch, None)


def expected(outputs: dict[str, Any], lines: str, a: Any, w: Any) -> dict[str, Any]:
    """The program on NumPy, by Python's own reading of it."""
    i, j = 0, 1
    wide = a.astype(np.float64)
    names: dict[str, Any] = {"a": wide, "w": w.astype(np.float64)[None], "i": i, "j": j, "sqrt": np.sqrt}
    names |= {"minimum": np.minimum, "where": np.where, "abs": np.abs}
    names["index"] = lambda dim: np.arange(a.shape[dim])[None]
    reduce = {"sum": np.sum, "max": np.max, "mean": np.mean, "var": np.var, "any": np.any}
    names |= {n: lambda x, *dims, of=of: of(x, axis=dims, keepdims=True) for n, of in reduce.items()}
    names["argmax"] = lambda x, dim: np.argmax(x, axis=dim)[:, None]
    for line in lines.replace("index(j) == at and", "(index(j) == at) &").splitlines():
        name, _, text = line.partition(" = ")
        names[name] = eval(text.replace("w[at]", "w[0, at]"), {}, names)
    shaped = {n: v.shape for n, v in outputs.items()}
    return {n: np.broadcast_to(names[n], a.shape) if len(s) == 2 else names[n].reshape(s) for n, s in shaped.items()}


@pytest.fixture
def watched() -> Iterator[None]:
    device: Any = rt.get_device("host")
    device.check = True
    yield
    device.check = False


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_cut_at_its_reductions(tmp_path: Path, name: str) -> None:
    """Each pass reduces over what it should, and the whole is what NumPy says, to the last writes and reads."""
    outputs, lines, over = PROGRAMS[name]
    spec = spec_of(tmp_path, outputs, lines)
    assert ["".join(of.parts.summed) for of in passes(spec)] == over
    rng = np.random.default_rng(5)
    for rows, cols in ((3, 7), (40, 300)):
        plan = plan_for(spec, rows=rows, cols=cols)
        a, w = (rng.normal(size=n).astype(np.float32) for n in ((rows, cols), (cols,)))
        shapes = {n: shape for n, (shape,) in plan.shapes().items() if n in spec.outputs}
        found = {n: np.full(s, 99, plan.elements_of(n)[0].row.numpy) for n, s in shapes.items()}
        run(plan, a=a, w=w, **found)
        for output, value in expected(found, lines, a, w).items():
            np.testing.assert_allclose(found[output], value, rtol=2e-5, atol=2e-5, err_msg=output)


def test_what_is_handed_over_is_in_the_workspace(tmp_path: Path) -> None:
    """Unless an output holds just that: then later passes read the output."""
    plan = plan_for(spec_of(tmp_path, "{y: {}}", "m = mean(a, j)\ny = a - m"), rows=300, cols=5)
    assert plan.workspace_bytes >= 300 * 4
    spec = spec_of(tmp_path, "{y: {}, m: {dims: [i], dtype: acc}}", "m = mean(a, j)\ny = a - m")
    assert plan_for(spec, rows=300, cols=5).workspace_bytes == 0


@pytest.mark.usefixtures("watched")
def test_kinds_share_the_passes_that_are_alike(tmp_path: Path) -> None:
    """Whatever a kind reduces and wherever it reads; a plan has the workspace that its own kind takes."""
    table = {
        "doubled": "a + a",
        "lowered": "{program: 'm = max(a, j)\\ny = a - m'}".replace("'", '"'),
        "raised": "{program: 'm = min(a, j)\\ny = a - m'}".replace("'", '"'),
        "scaled": "a / sqrt(sum(square(a - mean(a, j)), j))",
        "turned": "a[i, size(j) - 1 - j]",
        "halved": "a / 2",
    }
    head = HEAD.replace("{a: {dims: [i, j]}, w: {dims: [j]}}", "{a: {dims: [i, j], outside: 0}}")
    kinds = "".join(f"  {kind}: {text}\n" for kind, text in table.items())
    path = tmp_path / "sample.yaml"
    path.write_text(f"{head}outputs: [y]\nkinds:\n{kinds}")
    spec = load_spec(path).spec
    groups = [[*group.passes] for group in kind_groups(spec)]
    assert groups == [["doubled", "halved"], ["lowered", "raised"], ["scaled"], ["turned"]]
    a = np.random.default_rng(5).normal(size=(40, 300)).astype(np.float32)
    b, away = a.astype(np.float64), a - a.mean(1, dtype=np.float64, keepdims=True)
    right = [b * 2, b - b.max(1, keepdims=True), b - b.min(1, keepdims=True)]
    right += [b / np.sqrt((away**2).sum(1, keepdims=True)), b[:, ::-1], b / 2]
    held = []
    for kind, value in zip(table, right, strict=True):
        plan, y = plan_for(spec, kind=kind, rows=40, cols=300), np.full(a.shape, 99, np.float32)
        run(plan, a=a, y=y)
        np.testing.assert_allclose(y, value, rtol=2e-5, atol=2e-5, err_msg=kind)
        held.append(plan.workspace_bytes)
    assert held[0] == held[4] == held[5] == 0 < held[1] == held[2] < held[3]


def test_the_gradient_of_a_product_is_that_of_the_other_factors() -> None:
    """Also of zeros and infinities, by which nothing can be divided."""
    x = np.array([[2, 3, -4], [2, 0, -4], [0, 0, 5], [np.inf, 3, 2], [np.nan, 2, 3]], np.float32)
    dx = ops.reduce_axes_backward(np.array([1, 2, 1, 1, 1], np.float32), x, kind="prod", axes_mask=2)
    others = [[-12, -8, 6], [0, -16, 0], [0, 0, 0], [6, np.inf, np.inf], [6, np.nan, np.nan]]
    np.testing.assert_allclose(dx, np.array(others, np.float32), rtol=1e-6)


@pytest.mark.parametrize("shape", [(3, 5000), (600, 40)], ids=str)
def test_variances_far_from_zero_are_within_their_bound(tmp_path: Path, shape: tuple[int, int]) -> None:
    """Whatever the order of the numbers, and however far away they all are."""
    rng = np.random.default_rng(8)
    for dims, over in (("[i]", "j"), ("[j]", "i"), ("[]", "i, j")):
        spec = spec_of(tmp_path, f"{{v: {{dims: {dims}}}}}", f"v = var(a, {over})")
        plan = plan_for(spec, rows=shape[0], cols=shape[1])
        axes = tuple("ij".index(dim) for dim in over.split(", "))
        depth, u = plan.depth_of(over.split(", "), int(np.prod([shape[axis] for axis in axes]))), 2.0**-24
        for offset, spread in ((0, 1), (1000, 1), (3e4, 0.1), (1e-3, 1e6)):
            a = (offset + spread * np.sort(rng.normal(size=shape), axis=rng.integers(2))).astype(np.float32)
            v = np.zeros([n for axis, n in enumerate(shape) if axis not in axes], np.float32)
            run(plan, a=a, v=v)
            exact, squares = a.astype(np.float64).var(axes), np.square(a.astype(np.float64)).mean(axes)
            moved = np.sqrt((depth + 1) * squares) * u
            bound = 2 * moved * np.sqrt(exact) + (depth + 1) * moved**2
            bound += (depth + 5) * u * (exact + bound)
            assert np.all(np.abs(v - exact) <= bound), (over, offset)


def test_products_of_dims_are_cut_alike(tmp_path: Path) -> None:
    head = HEAD.replace("{rows: int, cols: int}", "{many: shape, input_shape: shape}")
    head = head.replace("{i: rows, j: cols}", "{copy: many, cell: input_shape}")
    head = head.replace("inputs: {a: {dims: [i, j]}, w: {dims: [j]}}", "inputs: {a: {dims: [copy * cell]}}")
    head = head.replace("dims:", "require: [len(many) == len(input_shape)]\ndims:", 1)
    spec = spec_of(tmp_path, "{y: {dims: [cell]}}", "y = sum(a - sum(a, copy), copy)", head)
    plan = plan_for(spec, many=(3, 2), input_shape=(5, 4))
    a, y = np.random.default_rng(6).normal(size=(15, 8)).astype(np.float32), np.zeros((5, 4), np.float32)
    run(plan, a=a, y=y)
    total = a.reshape(3, 5, 2, 4).sum((0, 2), dtype=np.float64)
    np.testing.assert_allclose(y, total - 6 * total, rtol=1e-4, atol=1e-5)


def test_places_are_along_their_own_axes(tmp_path: Path) -> None:
    """Behind a dim of several axes, too."""
    head = HEAD.replace("{rows: int, cols: int}", "{many: shape, half: int}")
    head = head.replace("{i: rows, j: cols}", "{row: many, j: half, both: half * 2}")
    head = head.replace("inputs: {a: {dims: [i, j]}, w: {dims: [j]}}", "inputs: {a: {dims: [row, both], outside: 0}}")
    head = head.replace("dims:", "require: [1 <= len(many) <= 3]\ndims:", 1)
    spec = spec_of(tmp_path, "{y: {dims: [row, j]}}", "y = a[row, j] * a[row, j + half]", head)
    for many in ((3,), (3, 5), (2, 3, 4)):
        plan = plan_for(spec, many=many, half=33)
        a, y = np.random.default_rng(7).normal(size=(*many, 66)).astype(np.float32), np.zeros((*many, 33), np.float32)
        run(plan, a=a, y=y)
        np.testing.assert_array_equal(y, a[..., :33] * a[..., 33:])


@pytest.mark.parametrize(
    ("outputs", "lines", "says"),
    [
        (
            "{y: {}, n: {dims: [j], may_alias: [w]}}",
            "n = sum(a, i) + w\ny = a * n + w",
            "'n' cannot share memory with 'w', which is read again after 'n' is stored",
        ),
        ("{y: {dims: [i]}}", "y = a - sum(a, i)", "'y' varies along j, which its dims do not list"),
        ("{y: {}}", "y = a - sum(a, i, i)", "reduces over a dim twice: i, i"),
    ],
)
def test_what_cannot_be_cut_is_refused(tmp_path: Path, outputs: str, lines: str, says: str) -> None:
    with pytest.raises(rt.SpecError, match=says.replace("(", r"\(")):
        spec_of(tmp_path, outputs, lines)


def test_the_same_is_generated_whatever_the_order_of_sets() -> None:
    """Of an op whose passes hand over several values, in processes that order sets differently."""
    path = SPECS / "normalization" / "batch_norm.yaml"
    text = "from baracuda.codegen.lower.lower import lower\nfrom baracuda.codegen.spec.load import load_spec\n"
    text += "from baracuda.codegen.emit.generate import texts\nfrom pathlib import Path\n"
    text += f"print(texts([lower(load_spec(Path({str(path)!r})).spec, 'sample.yaml')]))"
    found = set()
    for seed in ("1", "2", "5"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True)
        found.add(done.stdout or done.stderr)
    assert len(found) == 1 and "BARACUDA_PASS" in found.pop()


def test_equal_terms_are_reduced_once(tmp_path: Path) -> None:
    """Also a mean beside a variance, whose parts hold it."""
    outputs = "{y: {dims: [i]}, t: {dims: [i]}, n: {dims: [i]}, v: {dims: [i]}}"
    lines = "y = sum(a, j) + 1.0\nt = sum(a, j)\nn = mean(a, j)\nv = var(a, j)"
    op = lower(spec_of(tmp_path, outputs, lines), "sample.yaml")
    assert [of.how for of in op.sums] == ["spread"]
    assert [(of.how, of.beside) for of in op.epilogue.known] == [("sum", True), ("spread", False)]
