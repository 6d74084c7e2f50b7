"""What hand-written kernels are held to: definitions against explicit loops, derivatives against differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import autograd
import autograd.numpy as anp
import numpy as np
import pytest

from baracuda.checking.oracles.accuracy import compare
from baracuda.checking.oracles.program import _differentiable
from baracuda.checking.oracles.references import Units, definition
from baracuda.codegen.program import Scope, parse
from baracuda.codegen.program.bounds import Arithmetic, Bounded, bound
from baracuda.codegen.program.space import Space
from baracuda.runtime import ElementKind

Fields = dict[str, Any]
Arrays = dict[str, np.ndarray]
FLOAT, HALF = Units(2.0**-24, 2.0**-24), Units(2.0**-24, 2.0**-11)

# ----------------------------------------------------------------------------------------------------------- attention

PLAIN: Fields = {"is_causal": False, "bottom_right": False}
ATTENTION: dict[str, tuple[Fields, tuple[str, ...]]] = {
    "plain": (PLAIN, ()),
    "masked": (PLAIN, ("mask",)),
    "causal": (PLAIN | {"is_causal": True}, ("mask",)),
    "bottom right": (PLAIN | {"is_causal": True, "bottom_right": True}, ()),
    "window": (PLAIN | {"window_left": 1, "window_right": 0, "bottom_right": True}, ("alibi_slopes",)),
    "left window": (PLAIN | {"window_left": 0, "is_causal": True}, ("alibi_slopes", "mask")),
    "softcap": (PLAIN | {"softcap": 0.7, "window_left": -1, "window_right": 1}, ("alibi_slopes", "mask")),
    "no keys": (PLAIN | {"key_len": 0}, ()),
}


def attention(case: str, seed: int = 0, dtype: Any = np.float64) -> tuple[Fields, Arrays]:
    sizes = {"batch_size": 2, "num_heads": 4, "num_kv_heads": 2, "query_len": 5, "key_len": 3, "d_k": 3, "d_v": 2}
    more, optional = ATTENTION[case]
    fields = {**sizes, "scale": -0.8, **more}
    b, h, groups, queries, keys, d_k, d_v = (fields[name] for name in sizes)
    random = np.random.default_rng(seed)
    arrays = {
        "q": random.standard_normal((b, h, queries, d_k)),
        "k": random.standard_normal((b, groups, keys, d_k)),
        "v": random.standard_normal((b, groups, keys, d_v)),
        "mask": random.standard_normal((b, h, queries, keys)),
        "alibi_slopes": random.random((b, h)),
        "dy": random.standard_normal((b, h, queries, d_v)),
    }
    arrays["mask"][random.random(arrays["mask"].shape) < 0.3] = -np.inf
    arrays["mask"][0, 0, 1] = -np.inf  # a query that sees no key
    kept = {"q", "k", "v", "dy", *optional}
    return fields, {name: x.astype(dtype) for name, x in arrays.items() if name in kept}


def attention_by_loops(f: Fields, a: Arrays) -> Arrays:
    attn = np.zeros((f["batch_size"], f["num_heads"], f["query_len"], f["key_len"]))
    y, lse = np.zeros(a["dy"].shape), np.full(attn.shape[:3], -np.inf)
    for b, h, i in np.ndindex(*attn.shape[:3]):
        of = h // (f["num_heads"] // f["num_kv_heads"])
        here = i + (f["key_len"] - f["query_len"] if f["bottom_right"] else 0)
        left, right = f.get("window_left", -1), 0 if f["is_causal"] else f.get("window_right", -1)
        powers = {}
        for j in range(f["key_len"]):
            if (left >= 0 and j < here - left) or (right >= 0 and j > here + right):
                continue
            score = f["scale"] * sum(float(a["q"][b, h, i, d]) * float(a["k"][b, of, j, d]) for d in range(f["d_k"]))
            if f.get("softcap"):
                score = f["softcap"] * math.tanh(score / f["softcap"])
            if "alibi_slopes" in a:
                score -= float(a["alibi_slopes"][b, h]) * abs(j - here)
            if "mask" in a:
                score += float(a["mask"][b, h, i, j])
            powers[j] = math.exp(score)
        total = sum(powers.values())
        if total:
            lse[b, h, i] = math.log(total)
            for j, power in powers.items():
                attn[b, h, i, j] = power / total
                y[b, h, i] += power / total * a["v"][b, of, j].astype(np.float64)
    return {"attn": attn, "y": y, "lse": lse}


@pytest.mark.parametrize("case", ATTENTION)
@pytest.mark.parametrize("dtype", [np.float64, np.longdouble])
def test_attention(case, dtype):
    """Outputs are what loops over queries and keys give, in the arrays' own type."""
    fields, arrays = attention(case, dtype=dtype)
    expected = attention_by_loops(fields, arrays)
    for op in ("sdpa", "flash_sdpa"):
        values = definition(f"attention.{op}").values
        assert values is not None
        for name, got in values(np, fields, arrays).items():
            assert got.dtype == dtype
            np.testing.assert_allclose(got, expected[name], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("case", [name for name in ATTENTION if name != "no keys"])
def test_attention_gradients(case):
    """Automatic derivatives are central differences, and zero where nothing is seen."""
    fields, arrays = attention(case)
    differentiate("attention.flash_sdpa", fields, arrays, {"y": "dy"}, ("q", "k", "v"))
    if "mask" in arrays and "alibi_slopes" not in arrays:
        differentiate("attention.sdpa", fields, arrays, {"y": "dy"}, ("q", "k", "v", "mask"))


def test_attention_that_is_not_finite():
    """NaN stays with the queries that see it, and +infinity makes NaN."""
    fields, arrays = attention("causal")
    arrays["mask"] = np.zeros_like(arrays["mask"])
    arrays["mask"][0, 1, 0, 1] = np.nan  # not seen
    arrays["mask"][0, 1, 3, 1] = np.nan
    arrays["mask"][1, 2, 4, 0] = np.inf
    values = definition("attention.flash_sdpa").values
    assert values is not None
    with np.errstate(invalid="ignore"):
        found = values(np, fields, arrays)
    for got in (found["lse"], found["y"][..., 0]):
        assert [tuple(map(int, at)) for at in np.argwhere(np.isnan(got))] == [(0, 1, 3), (1, 2, 4)]


@pytest.mark.parametrize("units", [FLOAT, HALF])
@pytest.mark.parametrize("case", ATTENTION)
def test_attention_bounds(case, units):
    """A bound for each element of each output: finite, not negative, larger with what was rounded before."""
    fields, arrays = attention(case)
    saved = attention_by_loops(fields, arrays)
    gradients = {"dq": arrays["q"], "dk": arrays["k"], "dv": arrays["v"], "dmask": saved["attn"]}
    shapes = {name: x.shape for name, x in (saved | gradients).items()}
    slack = {"attn": saved["attn"] * 1e-3, "y": abs(saved["y"]) * 1e-3, "lse": np.full(saved["lse"].shape, 1e-3)}
    outputs = {"sdpa": "attn y", "sdpa_backward": "dq dk dv dmask"}
    outputs |= {"flash_sdpa": "y lse", "flash_sdpa_backward": "dq dk dv"}
    for op, named in outputs.items():
        exact, loose = (definition(f"attention.{op}").errors(fields, arrays | saved, s, units) for s in ({}, slack))
        for name in named.split():
            assert np.shape(exact[name]) == shapes[name]
            assert (np.asarray(exact[name]) >= 0).all() and np.isfinite(exact[name]).all()
            if op.endswith("backward") and np.any(exact[name]):
                assert (loose[name] >= exact[name]).all() and np.max(loose[name]) > np.max(exact[name])


# --------------------------------------------------------------------------------------------------------- convolution

CONVOLUTION: dict[str, tuple[Fields, tuple[str, ...]]] = {
    "plain": ({}, ()),
    "bias": ({"use_silu": True}, ("bias",)),
    "states": ({"use_silu": True}, ("initial_states",)),
    "one step": ({"seq_len": 1}, ("bias", "initial_states")),
    "packed": ({"batch_size": 1, "num_sequences": 4, "use_silu": True}, ("bias", "initial_states", "cu_seqlens")),
    "packed without states": ({"batch_size": 1, "num_sequences": 4}, ("cu_seqlens",)),
    "no steps": ({"seq_len": 0}, ("bias", "initial_states")),
    "no channels": ({"channels": 0}, ("bias",)),
}


def convolution(case: str, seed: int = 0, dtype: Any = np.float64) -> tuple[Fields, Arrays]:
    more, optional = CONVOLUTION[case]
    fields = {"batch_size": 2, "channels": 3, "seq_len": 7, "width": 4, "num_sequences": 2, "use_silu": False, **more}
    b, c, steps, width, count = (fields[n] for n in ("batch_size", "channels", "seq_len", "width", "num_sequences"))
    random = np.random.default_rng(seed)
    arrays = {
        "x": random.standard_normal((b, c, steps)),
        "weight": random.standard_normal((c, width)),
        "bias": random.standard_normal(c),
        "initial_states": random.standard_normal((count, c, width - 1)),
        "dy": random.standard_normal((b, c, steps)),
        "dfinal_states": random.standard_normal((count, c, width - 1)),
    }
    kept = {"x", "weight", "dy", "dfinal_states", *optional}
    found = {name: x.astype(dtype) for name, x in arrays.items() if name in kept}
    return fields, found | ({"cu_seqlens": np.array([0, 2, 2, 6, 7])} if "cu_seqlens" in optional else {})


def convolution_by_loops(f: Fields, a: Arrays) -> Arrays:
    y, width = np.zeros(a["x"].shape), f["width"]
    states = np.zeros((f["num_sequences"], f["channels"], width - 1))
    for n, c in np.ndindex(*states.shape[:2]):
        first, end = (a["cu_seqlens"][n], a["cu_seqlens"][n + 1]) if "cu_seqlens" in a else (0, f["seq_len"])
        b = 0 if "cu_seqlens" in a else n

        def at(t: int, n: int = n, c: int = c, b: int = b, first: int = first) -> float:
            if t >= first:
                return float(a["x"][b, c, t])
            return float(a["initial_states"][n, c, t - first + width - 1]) if "initial_states" in a else 0.0

        for t in range(first, end):
            pre = float(a["bias"][c]) if "bias" in a else 0.0
            pre += sum(float(a["weight"][c, k]) * at(t - (width - 1 - k)) for k in range(width))
            y[b, c, t] = pre / (1 + math.exp(-pre)) if f["use_silu"] else pre
        states[n, c] = [at(end - (width - 1) + m) for m in range(width - 1)]
    return {"y": y, "final_states": states}


@pytest.mark.parametrize("case", CONVOLUTION)
@pytest.mark.parametrize("dtype", [np.float64, np.longdouble])
def test_convolution(case, dtype):
    """Outputs are what loops over time give, in the arrays' own type."""
    fields, arrays = convolution(case, dtype=dtype)
    values = definition("convolution.causal_conv1d").values
    assert values is not None
    found, expected = values(np, fields, arrays), convolution_by_loops(fields, arrays)
    assert found.keys() == expected.keys()
    for name, got in found.items():
        assert got.dtype == dtype
        np.testing.assert_allclose(got, expected[name], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("case", [name for name in CONVOLUTION if not name.startswith("no ")])
def test_convolution_gradients(case):
    fields, arrays = convolution(case)
    wrt = tuple(name for name in ("x", "weight", "bias", "initial_states") if name in arrays)
    differentiate("convolution.causal_conv1d", fields, arrays, {"y": "dy", "final_states": "dfinal_states"}, wrt)


def test_silu_far_from_zero():
    """Nothing overflows, values or slopes, and what is small stays accurate."""
    x = np.array([-800.0, -30.0, 0.0, 30.0, 800.0])
    fields = {"use_silu": True}
    arrays = {"x": x.reshape(1, 1, 5), "weight": np.array([[0.0, 1.0]])}
    values = definition("convolution.causal_conv1d").values
    assert values is not None
    expected = x / (1 + np.exp(-np.clip(x, -700, None)))
    np.testing.assert_allclose(values(np, fields, arrays)["y"].ravel(), expected, rtol=1e-14, atol=1e-290)
    slope = autograd.grad(lambda x: anp.sum(values(anp, fields, arrays | {"x": x})["y"]))(arrays["x"]).ravel()
    small = math.exp(-30)
    np.testing.assert_allclose(slope, [0, -29 * small, 0.5, 1 + 29 * small, 1], rtol=1e-11)


@pytest.mark.parametrize(("steps", "kept"), [(1, 3), (2, 5), (6, 4)])
def test_update(steps, kept):
    """Step by step it is the convolution of all that came so far."""
    random = np.random.default_rng(1)
    shapes = {"weight": (2, 4), "bias": (2,), "conv_state": (3, 2, kept), "x": (3, 2, steps)}
    arrays = {name: random.standard_normal(shape) for name, shape in shapes.items()}
    values = definition("convolution.causal_conv1d_update").values
    assert values is not None
    found = values(np, {"use_silu": True}, arrays)
    whole = np.concatenate([arrays["conv_state"], arrays["x"]], axis=2)
    fields = {"width": 4, "use_silu": True, "num_sequences": 3, "channels": 2, "seq_len": kept + steps}
    expected = convolution_by_loops(fields, {**arrays, "x": whole})["y"][:, :, kept:]
    np.testing.assert_allclose(found["y"], expected, rtol=1e-13)
    np.testing.assert_array_equal(found["new_state"], whole[:, :, steps:])


@pytest.mark.parametrize("case", CONVOLUTION)
def test_convolution_holds_its_bounds(case):
    """float32 arithmetic, rounded after each operation, stays within them and is not far below."""
    fields, arrays = convolution(case)
    rounded = {n: x.astype(np.float32) if x.dtype.kind == "f" else x for n, x in arrays.items()}
    exact = {n: x.astype(np.float64) if x.dtype.kind == "f" else x for n, x in rounded.items()}
    named = {"y": "dy", "final_states": "dfinal_states"}
    wrt = tuple(n for n in ("x", "weight", "bias", "initial_states") if n in arrays)
    got, expected = (outputs_and_slopes("convolution.causal_conv1d", fields, a, named, wrt) for a in (rounded, exact))
    errors = dict(definition("convolution.causal_conv1d").errors(fields, exact, {}, FLOAT))
    gradients = definition("convolution.causal_conv1d_backward").errors(fields, exact, {}, FLOAT)
    errors |= {n: gradients[{"weight": "dw", "bias": "db"}.get(n, f"d{n}")] for n in wrt}
    for name, error in errors.items():
        assert np.shape(error) == expected[name].shape
        off = abs(got[name] - expected[name])
        assert (off <= error + 2.0**-24 * abs(expected[name])).all()
        if name in ("y", "x") and np.size(error):
            assert (off >= 0.02 * error).any()


# ---------------------------------------------------------------------------------------------------------- derivatives


def outputs_and_slopes(
    name: str, fields: Fields, arrays: Mapping[str, Any], cotangents: dict[str, str], wrt: tuple[str, ...]
) -> dict[str, Any]:
    """All outputs, and under the names of inputs the derivative of sum(outputs cotangents)."""
    loss = loss_of(name, fields, arrays, cotangents, wrt)
    values = definition(name).values
    assert values is not None
    found = dict(values(np, fields, arrays))
    if all(arrays[n].size for n in (*wrt, *cotangents.values())):
        slopes = autograd.grad(loss, tuple(range(len(wrt))))(*(arrays[n] for n in wrt))
        return found | dict(zip(wrt, slopes, strict=True))
    return found | {n: np.zeros_like(arrays[n]) for n in wrt}


def loss_of(
    name: str, fields: Fields, arrays: Mapping[str, Any], cotangents: dict[str, str], wrt: tuple[str, ...]
) -> Callable[..., Any]:
    values = definition(name).values
    assert values is not None

    def loss(*inputs: Any) -> Any:
        outputs = values(anp, fields, {**arrays, **dict(zip(wrt, inputs, strict=True))})
        return sum(anp.sum(outputs[there] * arrays[here]) for there, here in cotangents.items())

    return loss


def differentiate(
    name: str, fields: Fields, arrays: Arrays, cotangents: dict[str, str], wrt: tuple[str, ...], step: float = 1e-6
) -> None:
    """Compare automatic derivatives with central differences, in long double where there is one."""
    wide = {n: x.astype(np.longdouble) if x.dtype.kind == "f" else x for n, x in arrays.items()}
    found = outputs_and_slopes(name, fields, wide, cotangents, wrt)
    loss = loss_of(name, fields, wide, cotangents, wrt)
    for n in wrt:
        assert found[n].dtype == np.longdouble
        for at in np.ndindex(*wide[n].shape):
            if not np.isfinite(wide[n][at]):
                assert found[n][at] == 0
                continue
            sides = []
            for sign in (1, -1):
                moved = {m: x.copy() for m, x in wide.items()}
                moved[n][at] += sign * step
                sides.append(loss(*(moved[m] for m in wrt)))
            np.testing.assert_allclose(found[n][at], (sides[0] - sides[1]) / (2 * step), rtol=1e-7, atol=1e-9)


# -------------------------------------------------------------------------------------------------------------- where


def test_where_of_operands_that_vary_along_fewer_dims_has_their_slopes() -> None:
    """A row of weights, chosen or not in each row, sums its slopes over the rows; a number has none."""
    xp, chosen = _differentiable(), np.array([[True, False, True], [False, False, True]])
    slope = autograd.grad(lambda w: xp.sum(xp.where(chosen, w, 0.0) * 2.0))(np.ones((1, 3)))
    np.testing.assert_array_equal(slope, [[2.0, 0.0, 4.0]])
    assert xp.where(chosen, 1, np.int64(2)).dtype.kind == "i"


@pytest.mark.parametrize("of", ["maximum", "minimum"])
def test_both_operands_share_a_slope_where_neither_is_larger(of: str) -> None:
    """Of equal numbers, and of a NaN; else only the one that is chosen has one."""
    xp, a, b = _differentiable(), np.array([1.0, 2.0, 3.0, np.nan]), np.array([2.0, 2.0, 1.0, 0.0])
    first, second = autograd.grad(lambda a, b: xp.sum(getattr(xp, of)(a, b)), (0, 1))(a, b)
    chosen = [0.0, 0.5, 1.0, 0.5] if of == "maximum" else [1.0, 0.5, 0.0, 0.5]
    np.testing.assert_array_equal(first, chosen)
    np.testing.assert_array_equal(second, [1 - x for x in chosen])


def test_casts_of_a_reference_round_nothing() -> None:
    """Its error bound is that of float64, in which it is evaluated."""
    how = Arithmetic(2.0**-53, 0.0, lambda dims, count: float(count), {"f16": 0.0})
    lines = parse("y = f16(x)", Scope(("n",), {"x": frozenset({"n"})}))
    found = bound(lines, {"x": Bounded(np.array([1e9, 1e-9]), 0.0)}, Space({"n": 2}), how)
    np.testing.assert_array_equal(found["y"].error, [0.0, 0.0])


@pytest.mark.parametrize(
    ("got", "expected", "tolerance", "right"),
    [
        (np.nan, -1e6, np.inf, False),
        (-np.inf, -1e6, np.inf, True),
        (np.nan, 1.0, np.inf, False),
        (np.nan, -1e6, 1.0, False),
        (np.inf, -1e6, 1.0, False),
    ],
)
def test_nan_is_not_what_overflows(got: float, expected: float, tolerance: float, right: bool) -> None:
    found = compare(np.float16([got]), np.array([expected]), np.array([tolerance]), ElementKind.F16)
    assert (found.worst_ratio <= 1) == right
