"""Passes over chunks of a dim: what they compute, whatever the chunk, and the memory that they take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda.runtime as rt
from baracuda.codegen.emit.generate import texts
from baracuda.codegen.emit.plan_classes import plan_of, rows_of
from baracuda.codegen.lower.lower import lower
from baracuda.codegen.spec.load import load_spec
from baracuda.generated import (
    LinearCrossEntropyBackwardDescriptor,
    LinearCrossEntropyBackwardPlan,
    LinearCrossEntropyDescriptor,
    LinearCrossEntropyPlan,
)

TOKENS, FEATURES, CLASSES = 21, 24, 40
CHUNKS = [1, 2, 5, 7, 20, 21, 22, 1000]  # of tokens; of classes eight times as many

LAYERS = """\
op: layers
doc: Two layers.
descriptor:
  tokens: {type: int, doc: rows}
  width: {type: int, doc: columns of x}
  hidden: {type: int, doc: rows of w}
  out: {type: int, doc: rows of u}
  chunk: {type: int, doc: at once}
tests: {defaults: {chunk: 4}}
dims: {t: tokens, i: width, h: hidden, o: out}
chunks: {t: chunk}
inputs: {x: {dims: [t, i]}, w: {dims: [h, i]}, u: {dims: [o, h]}}
outputs: {y: {dims: [t, o]}}
program: |
  a = T(relu(sum(x * w, i)))
  y = sum(a * u, h)
"""


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    x, w = (rng.normal(size=(n, FEATURES)).astype(np.float32) for n in (TOKENS, CLASSES))
    target = rng.integers(0, CLASSES, TOKENS)
    target[4] = -100
    return {"x": x, "w": w, "target": target}


def run(plan: Any, **given: Any) -> None:
    scratch = np.full(plan.workspace_bytes, 0xFF, np.uint8)  # full of NaN
    plan.run(**given, workspace=scratch)


def expected() -> tuple[Any, Any, Any]:
    """The loss of each token, and the gradients of their sum."""
    of = arrays()
    x, w, target = of["x"].astype(float), of["w"].astype(float), of["target"]
    logits = x @ w.T
    lse = np.log(np.exp(logits).sum(axis=1))
    counts = target >= 0
    rows = np.arange(TOKENS)
    slope = np.exp(logits - lse[:, None])
    slope[rows, np.maximum(target, 0)] -= 1
    slope *= counts[:, None]
    return np.where(counts, lse - logits[rows, np.maximum(target, 0)], 0), slope @ w, slope.T @ x


@pytest.mark.parametrize("chunk", CHUNKS)
def test_any_chunk_gives_the_result(chunk: int) -> None:
    """One token at a time, whole chunks, a last one that is not whole, and more than there are."""
    of, sizes = arrays(), {"tokens": TOKENS, "features": FEATURES, "classes": CLASSES, "element": "f32"}
    loss, lse = np.full(TOKENS, 9, np.float32), np.full(TOKENS, 9, np.float32)
    plan = LinearCrossEntropyPlan.select(LinearCrossEntropyDescriptor(**sizes, chunk=chunk))
    run(plan, **of, loss=loss, lse=lse)
    of_loss, of_x, of_w = expected()
    np.testing.assert_allclose(loss, of_loss, atol=1e-5)
    dx, dw = np.full_like(of["x"], 9), np.full_like(of["w"], 9)
    backward = LinearCrossEntropyBackwardPlan.select(LinearCrossEntropyBackwardDescriptor(**sizes, chunk=chunk))
    run(backward, dloss=np.ones(TOKENS, np.float32), **of, lse=lse, dx=dx, dw=dw)
    np.testing.assert_allclose(dx, of_x, atol=1e-5)
    np.testing.assert_allclose(dw, of_w, atol=1e-5)


def test_rows_have_one_order_of_sums_in_any_batch() -> None:
    """In a whole chunk, in a last one that is not whole, and in a batch that is less than one.

    Sums are compensated, so that bits would seldom show another order.
    """
    sizes, orders = {"features": 8, "classes": 128256, "element": "bf16"}, set()
    for tokens in (1, 3, 512, 700, 4096):
        plan = LinearCrossEntropyPlan.select(LinearCrossEntropyDescriptor(**sizes, tokens=tokens))
        orders |= {(of.NUMBER, of._cut) for of in plan._passes if of.SUMS}
    assert len(orders) == 2  # passes with sums


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_chunks_bound_the_workspace(arch: str) -> None:
    """Of 4096 tokens and 128256 classes, a thirtieth of the logits in bf16 at most; half the chunk, half of that."""
    sizes = {"tokens": 4096, "features": 4096, "classes": 128256, "element": "bf16"}
    archs, logits = rt.PlanPreference(archs=frozenset({arch})), 4096 * 128256 * 2
    forward = {
        chunk: LinearCrossEntropyPlan.select(LinearCrossEntropyDescriptor(**sizes, chunk=chunk), archs).workspace_bytes
        for chunk in (512, 256, 4096)
    }
    assert 0.03 * logits < forward[512] < 0.033 * logits
    assert 0.015 * logits < forward[256] < 0.017 * logits
    assert 0.12 * logits < forward[4096] < 0.13 * logits  # four numbers in f32 of 64 classes
    backward = LinearCrossEntropyBackwardPlan.select(LinearCrossEntropyBackwardDescriptor(**sizes), archs)
    sums = 4096 * 4096 * 4  # of dx, in f32
    assert backward.workspace_bytes - sums < 0.035 * logits


def test_the_workspace_is_used_as_far_as_said() -> None:
    """Memory behind the workspace stays as it is, chunk by chunk."""
    of, sizes = arrays(), {"tokens": TOKENS, "features": FEATURES, "classes": CLASSES, "element": "f32", "chunk": 2}
    plan = LinearCrossEntropyBackwardPlan.select(LinearCrossEntropyBackwardDescriptor(**sizes))
    memory = np.full(plan.workspace_bytes + 4096, 0xAB, np.uint8)
    dx, dw, ones = np.empty_like(of["x"]), np.empty_like(of["w"]), np.ones(TOKENS, np.float32)
    plan.run(dloss=ones, **of, lse=ones, dx=dx, dw=dw, workspace=memory[: plan.workspace_bytes])
    assert (memory[plan.workspace_bytes :] == 0xAB).all()


@pytest.mark.parametrize("dim", ["t", "h"])
@pytest.mark.parametrize("chunk", [1, 8, 9, 40])
def test_chunks_of_rows_and_of_a_depth(tmp_path: Path, dim: str, chunk: int) -> None:
    """The second product of each chunk is a part of the result's rows, or of its sums."""
    path = tmp_path / "layers.yaml"
    path.write_text(LAYERS.replace("{t: chunk}", f"{{{dim}: chunk}}"))
    op = lower(load_spec(path).spec, "layers.yaml")
    plan_class: Any = plan_of(op, rows_of(op, texts([op])["custom/layers.cu"]))
    fields = {"tokens": 21, "width": 24, "hidden": 33, "out": 16, "chunk": chunk, "element": "f32"}
    plan, rng = plan_class.select(plan_class.DESCRIPTOR(**fields)), np.random.default_rng(4)
    x, w, u = (rng.normal(size=plan.shapes()[name][0]).astype(np.float32) for name in "xwu")
    y = np.full((21, 16), 9, np.float32)
    plan._run((x, w, u, y), np.full(plan.workspace_bytes, 0xFF, np.uint8), None)
    np.testing.assert_allclose(y, np.maximum(x @ w.T, 0) @ u.T, atol=1e-4)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("{t: chunk}", "{s: chunk}", "unknown dim 's'"),
        ("{t: chunk}", "{t: chunks}", "unknown field 'chunks'; did you mean 'chunk'?"),
        ("t: tokens", "t: 2 * tokens", "'t' is the expression '2 * tokens'; a dim in chunks is a field of its own"),
        ("i: width", "i: tokens", "'tokens' is also what 'i' is made of; a dim in chunks is a field of its own"),
        ("relu(sum(x * w, i))", "sum(x * w, i) * tokens", "write size(t)"),
    ],
)
def test_what_comes_in_chunks(tmp_path: Path, before: str, after: str, message: str) -> None:
    assert before in LAYERS
    path = tmp_path / "layers.yaml"
    path.write_text(LAYERS.replace(before, after))
    with pytest.raises(rt.SpecError) as raised:
        load_spec(path)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a = T(sum(x * w, i) - max(sum(x * w, i), h))", "max over h does not add up over chunks"),
        ("z = sum(x * w, i)\n  a = T(z / sum(z, h))", "is read again after all chunks of h, so they do not bound it"),
    ],
)
def test_what_chunks_cannot_do(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "layers.yaml"
    path.write_text(LAYERS.replace("{t: chunk}", "{h: chunk}").replace("a = T(relu(sum(x * w, i)))", line))
    with pytest.raises(rt.SpecError) as raised:
        load_spec(path)
    assert message in str(raised.value)
    assert "take chunks of another dim" in str(raised.value)
