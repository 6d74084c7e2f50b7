"""Attention that keeps its probabilities, forward and backward: right within bounds that follow from its roundings."""

from __future__ import annotations

import ctypes
import struct
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from baracuda.runtime.compile.cubin import compile_cubin
from baracuda.runtime.device import WatchedArray
from baracuda.runtime.host import HostDevice

KERNELS = {"sdpa_args": 3, "sdpa_backward_args": 5}  # how many each op launches
DTYPES: dict[str, Any] = {"float": np.float32, "double": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
# Half an ulp of 1 as tensors are stored and as they are computed with, and the smallest number of the stored type.
STORED = {"float": 2.0**-24, "double": 2.0**-53, "f16": 2.0**-11, "bf16": 2.0**-8}
TINY = {"float": 2.0**-149, "double": 0.0, "f16": 2.0**-24, "bf16": 2.0**-133}


@dataclass(frozen=True)
class Problem:
    element: str = "float"
    batch: int = 1
    heads: int = 2
    kv_heads: int = 1
    queries: int = 70
    keys: int = 67
    d_k: int = 19
    d_v: int = 10
    scale: float = 0.3
    causal: bool = False
    bottom_right: bool = False
    masked: bool = True
    lanes: int = 32
    grid: int = 3

    @property
    def rows(self) -> tuple[int, int, int]:
        return self.batch, self.heads, self.queries

    @property
    def scores(self) -> tuple[int, ...]:
        return *self.rows, self.keys

    @property
    def visible(self) -> np.ndarray:
        """Which query sees which key."""
        shift = self.keys - self.queries if self.bottom_right else 0
        within = np.arange(self.keys) <= np.arange(self.queries)[:, None] + shift
        return within if self.causal else np.ones_like(within)

    @property
    def unit(self) -> float:
        """Half an ulp of 1 in the accumulator."""
        return STORED["double" if self.element == "double" else "float"]

    def shared(self, x: np.ndarray) -> np.ndarray:
        """Keys or values as each head of queries sees them."""
        return np.repeat(x, self.heads // max(1, self.kv_heads), axis=1)

    def gathered(self, x: np.ndarray) -> np.ndarray:
        """What the heads of a group add up to."""
        group = self.heads // max(1, self.kv_heads)
        return x.reshape(self.batch, self.kv_heads, group, *x.shape[2:]).sum(axis=2)


def laid_out(device: HostDevice, shape: tuple[int, ...], dtype: Any, layout: str) -> np.ndarray:
    """An uninitialised tensor: dense, with heads inside of rows, with gaps, or with its last two axes swapped."""
    b, h, m, n = shape
    if layout == "heads inside":
        return device.empty((b, m, h, n), dtype).transpose(0, 2, 1, 3)
    if layout == "gaps":
        return device.empty((b, h, m + 1, 2 * n), dtype)[:, :, :m, ::2]
    if layout == "swapped":
        return device.empty((b, h, n, m), dtype).transpose(0, 1, 3, 2)
    return device.empty(shape, dtype)


def run(device, source, problem: Problem, op: str, tensors: dict[str, tuple[str, Any, str]]) -> dict[str, Any]:
    """Launch the kernels of `op` on `tensors` (name -> role, values or shape, layout); return what the tensors hold."""
    acc = np.float64 if problem.element == "double" else np.float32
    arrays, words = {}, []
    for name, (role, given, layout) in tensors.items():
        if given is None:
            words += [0] * 5
            continue
        dtype = DTYPES[problem.element]
        array = laid_out(device, np.shape(given) if role == "in" else given, dtype, layout)
        if role == "in":
            array[...] = given
        arrays[name] = role, array
        words += [array.ctypes.data, *(step // array.itemsize for step in array.strides)]
    scratch = device.empty(problem.scores, acc)
    arrays["workspace"] = "workspace", scratch
    sizes = problem.queries, problem.keys, problem.d_k, problem.d_v
    packed = struct.pack(f"={len(words)}q", *words)
    packed += struct.pack("=7q", problem.batch, problem.heads, problem.kv_heads, *sizes)
    packed += struct.pack("=d2qQ", problem.scale, problem.causal, problem.bottom_right, scratch.ctypes.data)
    watched = [
        WatchedArray(n, role, a.ctypes.data, a.shape, tuple(s // a.itemsize for s in a.strides), a.itemsize)
        for n, (role, a) in arrays.items()
    ]
    kernel = device.load(entry(source, problem, op))
    with device.watch(watched) if device.watch else nullcontext():
        for number in range(KERNELS[op]):
            args = packed + struct.pack("=q", number)
            address = ctypes.cast(ctypes.c_char_p(args), ctypes.c_void_p).value
            kernel.launch((problem.grid, 1, 1), 128, address, len(args), 0)
    return {name: np.array(array) for name, (_, array) in arrays.items()}


def entry(source, problem: Problem, op: str, *which: str):
    settled = f"ELEMENT={problem.element}", f"MASKED={int(problem.masked)}", f"LANES_PER_ROW={problem.lanes}"
    return source("sdpa.cu", "entry", f"OP={op}", *settled, *which, contraction=True)


def inputs(problem: Problem, seed: int = 0) -> dict[str, np.ndarray]:
    """Random tensors, already rounded to the element type."""
    random = np.random.default_rng(seed)
    p = problem
    shapes = {
        "q": (*p.rows, p.d_k),
        "k": (p.batch, p.kv_heads, p.keys, p.d_k),
        "v": (p.batch, p.kv_heads, p.keys, p.d_v),
        "mask": p.scores,
        "dy": (*p.rows, p.d_v),
    }
    return {name: random.standard_normal(shape).astype(DTYPES[p.element]) for name, shape in shapes.items()}


def forward(device, source, problem: Problem, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    tensors = {
        "q": ("in", given["q"], "heads inside"),
        "k": ("in", given["k"], "gaps"),
        "v": ("in", given["v"], "swapped"),
        "mask": ("in", given["mask"] if problem.masked else None, "gaps"),
        "attn": ("out", problem.scores, "gaps"),
        "y": ("out", (*problem.rows, problem.d_v), "swapped"),
    }
    return run(device, source, problem, "sdpa_args", tensors)


def backward(device, source, problem: Problem, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    tensors = {
        "q": ("in", given["q"], "swapped"),
        "k": ("in", given["k"], "heads inside"),
        "v": ("in", given["v"], "gaps"),
        "attn": ("in", given["attn"], "swapped"),
        "dy": ("in", given["dy"], "heads inside"),
        "dq": ("out", given["q"].shape, "gaps"),
        "dk": ("out", given["k"].shape, "swapped"),
        "dv": ("out", given["v"].shape, "heads inside"),
        "dmask": ("out", problem.scores if problem.masked else None, "swapped"),
    }
    return run(device, source, problem, "sdpa_backward_args", tensors)


def wide(problem: Problem, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    kind = np.longdouble if problem.element == "double" else np.float64
    return {name: x.astype(np.float64).astype(kind) for name, x in given.items()}


def swap(x: np.ndarray) -> np.ndarray:
    return np.swapaxes(x, -1, -2)


def assert_close(problem: Problem, got: np.ndarray, exact: np.ndarray, error: np.ndarray) -> None:
    """`error` is how far the kernel may be off before it rounds to the stored type."""
    stored = STORED[problem.element]
    bound = error + stored * (abs(exact) + error) + TINY[problem.element]
    wide_got = got.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(wide_got), np.isnan(exact))
    with np.errstate(invalid="ignore"):
        assert not (abs(wide_got - exact) > bound).any()


def check_forward(problem: Problem, given: dict[str, np.ndarray], got: dict[str, np.ndarray]) -> None:
    x, u = wide(problem, given), problem.unit
    k, v = problem.shared(x["k"]), problem.shared(x["v"])
    scores, size = problem.scale * (x["q"] @ swap(k)), abs(problem.scale) * (abs(x["q"]) @ swap(abs(k)))
    if problem.masked:
        with np.errstate(invalid="ignore"):
            scores, size = scores + x["mask"], size + np.where(np.isfinite(x["mask"]), abs(x["mask"]), 0)
    scores = np.where(problem.visible, scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    with np.errstate(invalid="ignore"):
        power = np.exp(scores - np.where(largest == -np.inf, 0, largest))
    total = power.sum(axis=-1, keepdims=True)
    attn = power / np.where(total == 0, 1, total)
    off = (problem.d_k + 4) * u * np.where(problem.visible, size, 0).max(axis=-1, keepdims=True, initial=0)
    error = attn * (np.expm1(2 * off) + (problem.keys + 16) * u) + TINY["float"]
    assert_close(problem, got["attn"], attn, error)
    assert_close(problem, got["y"], attn @ v, error @ abs(v) + (problem.keys + 2) * u * (attn @ abs(v)))


def check_backward(problem: Problem, given: dict[str, np.ndarray], got: dict[str, np.ndarray]) -> None:
    x, u, p = wide(problem, given), problem.unit, problem
    k, v, attn = p.shared(x["k"]), p.shared(x["v"]), x["attn"]
    dp, e_dp = x["dy"] @ swap(v), (p.d_v + 2) * u * (abs(x["dy"]) @ swap(abs(v)))
    row = (attn * dp).sum(axis=-1, keepdims=True)
    e_row = (attn * (e_dp + (p.keys + 2) * u * abs(dp))).sum(axis=-1, keepdims=True)
    ds = attn * (dp - row)
    e_ds = attn * (e_dp + e_row + 3 * u * (abs(dp) + abs(row)))
    if p.masked:
        assert_close(p, got["dmask"], ds, e_ds)
    terms = p.queries * max(1, p.heads // max(1, p.kv_heads)) + 3

    def product(left: np.ndarray, error: np.ndarray, right: np.ndarray, scale: float, gather: Any, depth: int) -> tuple:
        return gather(scale * (left @ right)), gather(abs(scale) * ((error + depth * u * abs(left)) @ abs(right)))

    assert_close(p, got["dq"], *product(ds, e_ds, k, p.scale, lambda a: a, p.keys + 3))
    assert_close(p, got["dk"], *product(swap(ds), swap(e_ds), x["q"], p.scale, p.gathered, terms))
    assert_close(p, got["dv"], *product(swap(attn), 0 * swap(attn), x["dy"], 1.0, p.gathered, terms))


def both_ways(device, source, problem: Problem) -> None:
    given = inputs(problem)
    got = forward(device, source, problem, given)
    check_forward(problem, given, got)
    given["attn"] = got["attn"]
    check_backward(problem, given, backward(device, source, problem, given))


SHAPES = {
    "no key for some": Problem(queries=66, keys=3, causal=True, bottom_right=True),
    "more queries": Problem(queries=66, keys=5, causal=True),
    "more keys": Problem(queries=3, keys=131, causal=True, bottom_right=True),
    "top left": Problem(queries=3, keys=131, causal=True),
    "group": Problem(batch=2, heads=6, kv_heads=2, queries=7, keys=9, d_k=65, d_v=70, scale=-0.1, grid=1),
    "every head": Problem(batch=2, heads=3, kv_heads=3, queries=1, keys=40, grid=40),
    "no keys": Problem(keys=0),
    "no queries": Problem(queries=0),
    "no heads": Problem(heads=0, kv_heads=0),
    "no batch": Problem(batch=0),
    "no sizes": Problem(d_k=0, d_v=0, queries=5, keys=4),
    "one": Problem(queries=1, keys=1, heads=1, d_k=1, d_v=1),
}


@pytest.mark.parametrize("element", DTYPES)
def test_types(device, source, element):
    """Every type, with a mask and the keys after each query hidden."""
    both_ways(device, source, Problem(element, keys=100, causal=True, bottom_right=True))


@pytest.mark.parametrize("shape", SHAPES)
def test_check_mode_is_silent(source, shape):
    """Odd and empty problems with tensors of any strides: right, everything written, nothing else touched."""
    both_ways(HostDevice(check=True), source, SHAPES[shape])


def test_check_mode_is_silent_without_a_mask(source):
    """And where a whole block shares a row of scores."""
    both_ways(HostDevice(check=True), source, Problem("f16", masked=False, lanes=128, keys=131))


def test_not_finite(device, source):
    """NaN reaches those who see it; a row of -infinity is zero; scores that no half can hold are none the worse."""
    problem = Problem("f16", queries=4, keys=70, d_k=4, d_v=3, heads=1, causal=True, bottom_right=True)
    given = inputs(problem)
    given["q"][0, 0, 0] = given["k"][0, 0, :2] = 255  # their product does not fit in f16
    given["k"][0, 0, 68] = np.nan  # seen by the last two queries
    given["mask"][0, 0, 1] = -np.inf
    given["mask"][0, 0, 0, :3] = -np.inf
    given["mask"][0, 0, 0, 69] = np.nan  # not seen by query 0
    got = forward(device, source, problem, given)
    check_forward(problem, given, got)
    assert np.isnan(got["attn"][0, 0].astype(np.float64)).all(axis=-1).tolist() == [False, False, True, True]
    assert not got["attn"][0, 0, 1].any() and not got["y"][0, 0, 1].any()


def test_bits_do_not_depend_on_the_launch(device, source):
    """Any grid and any order of threads give the same bits."""
    problem = Problem(heads=4, kv_heads=2, queries=9, keys=70)
    given = inputs(problem)
    given["attn"] = forward(device, source, problem, given)["attn"]
    expected = backward(device, source, problem, given)
    device.order, device.seed = "random", 3
    got = backward(device, source, replace(problem, grid=7), given)
    for name in ("dq", "dk", "dv", "dmask"):
        assert got[name].tobytes() == expected[name].tobytes()


@pytest.mark.parametrize(("op", "number"), [(op, number) for op in KERNELS for number in range(KERNELS[op])])
def test_assembles(source, op, number):
    """Sums and everything else stay in registers."""
    element, arch = ("double", "sm_80") if number % 2 else ("bf16", "sm_90")
    resources = compile_cubin(entry(source, Problem(element), op, f"KERNEL={number}"), arch).resources
    assert resources.stack_bytes == resources.spill_bytes == 0
