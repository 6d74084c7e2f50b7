"""Attention forward on tensor cores: every element type, band and change of scores against float64."""

from __future__ import annotations

import struct
from contextlib import nullcontext
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
import pytest
from repository import KERNELS

from baracuda.runtime.compile.cubin import compile_cubin
from baracuda.runtime.device import KernelSource, WatchedArray
from baracuda.runtime.host import HostDevice

STORED = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "float": np.float32, "double": np.float64}
# Of weights and outputs, which are rounded; of scores and sums.
UNITS = {
    "f16": (2.0**-11, 2.0**-20),
    "bf16": (2.0**-8, 2.0**-20),
    "float": (2.0**-20, 2.0**-20),
    "double": (2.0**-48, 2.0**-48),
}
WIDTHS = (32, 64, 96, 128, 192, 256)


@dataclass(frozen=True)
class Problem:
    element: str = "f16"
    batch: int = 1
    heads: int = 2
    kv_heads: int = 1
    queries: int = 37
    keys: int = 53
    d_k: int = 32
    d_v: int = 32
    scale: float = 0.25
    causal: bool = False
    bottom_right: bool = False
    left: int = -1
    right: int = -1
    softcap: float = 0.0
    mask: bool = False
    alibi: bool = False
    packed: bool = True
    heads_inside: bool = False  # memory holds [batch, length, heads, width]
    tile: tuple[int, int, int, int] = (64, 32, 32, 2)  # threads, queries, keys, stages

    @property
    def source(self) -> KernelSource:
        settings = {
            "DK": min(w for w in WIDTHS if w >= self.d_k),
            "DV": min(w for w in WIDTHS if w >= self.d_v),
            "BAND": int(self.causal or self.left >= 0 or self.right >= 0),
            "SOFTCAP": int(self.softcap > 0),
            "PACKED": int(self.packed),
            "MASK": int(self.mask),
            "ALIBI": int(self.alibi),
        }
        tile = zip(("THREADS", "Q", "K", "STAGES"), self.tile, strict=True)
        defines = [f"SETTING_{name}={value}" for name, value in settings.items()]
        defines += [f"TILE_{name}={value}" for name, value in tile]
        text = (KERNELS / "flash_forward.cu").read_text()
        defines.append(f"ELEMENT={self.element}")
        return KernelSource("kernels/flash_forward.cu", text, "flash_forward", tuple(defines), True)

    def inputs(self, seed: int = 1) -> dict[str, np.ndarray]:
        random, stored = np.random.default_rng(seed), STORED[self.element]
        total = np.float64 if self.element == "double" else np.float32
        arrays = {
            "q": random.standard_normal((self.batch, self.heads, self.queries, self.d_k)).astype(stored),
            "k": random.standard_normal((self.batch, self.kv_heads, self.keys, self.d_k)).astype(stored),
            "v": random.standard_normal((self.batch, self.kv_heads, self.keys, self.d_v)).astype(stored),
        }
        if self.mask:
            mask = random.standard_normal((self.batch, 1, self.queries, self.keys)).astype(total)
            mask[random.random(mask.shape) < 0.2] = -np.inf
            arrays["mask"] = mask
        if self.alibi:
            arrays["alibi"] = random.random((self.batch, self.heads)).astype(total)
        return arrays


def exact(problem: Problem, arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y, lse, and what the rounding errors of y are relative to."""
    p, group = problem, problem.heads // problem.kv_heads
    q, k, v = (arrays[name].astype(np.float64) for name in "qkv")
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    score = p.scale * (q @ k.swapaxes(2, 3))
    shift = p.keys - p.queries if p.bottom_right else 0
    distance = np.arange(p.queries)[:, None] + shift - np.arange(p.keys)
    if p.softcap:
        score = p.softcap * np.tanh(score / p.softcap)
    if p.alibi:
        score -= arrays["alibi"].astype(np.float64)[:, :, None, None] * abs(distance)
    if p.mask:
        score = score + arrays["mask"]
    right = 0 if p.causal else p.right
    seen = np.ones(distance.shape, bool)
    if p.left >= 0:
        seen &= distance <= p.left
    if right >= 0:
        seen &= -distance <= right
    score = np.where(seen, score, -np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        high = score.max(axis=3, keepdims=True, initial=-np.inf)
        high = np.where(high == -np.inf, 0, high)
        weight = np.exp(score - high)
        total = weight.sum(axis=3, keepdims=True)
        share = weight / np.where(total == 0, 1, total)
        return share @ v, (high + np.log(total))[..., 0], share @ abs(v)


def attend(device: HostDevice, problem: Problem, arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """What the kernel computes; in check mode every access is looked at."""
    p, stored = problem, STORED[problem.element]
    total = np.float64 if p.element == "double" else np.float32
    shapes = {"y": (p.batch, p.heads, p.queries, p.d_v), "lse": (p.batch, p.heads, p.queries)}
    held, watched, words = {}, [], b""
    for name in ("q", "k", "v", "mask", "alibi", "y", "lse"):
        rank = {"alibi": 2, "lse": 3}.get(name, 4)
        if name not in arrays and name not in shapes:
            words += bytes(8 * (1 + rank))
            continue
        kind = arrays[name].dtype if name in arrays else np.dtype(stored if name == "y" else total)
        shape = arrays[name].shape if name in arrays else shapes[name]
        turn = p.heads_inside and name in ("q", "k", "v", "y")
        held_as = (shape[0], shape[2], shape[1], shape[3]) if turn else shape
        align_end = int(np.prod(shape)) * kind.itemsize % 16 == 0
        array = device.empty(held_as, kind, align_end=align_end)
        array = array.swapaxes(1, 2) if turn else array
        if name in arrays:
            array[...] = arrays[name]
        strides = [step // array.itemsize for step in array.strides]
        view = [0 if name == "mask" and axis == 1 else step for axis, step in enumerate(strides)]
        words += struct.pack(f"={1 + rank}q", array.ctypes.data, *view)
        held[name] = array
        role = "out" if name in shapes else "in"
        watched.append(WatchedArray(name, role, array.ctypes.data, array.shape, tuple(strides), array.itemsize))
    words += struct.pack("=7q", p.batch, p.heads, p.kv_heads, p.queries, p.keys, p.d_k, p.d_v)
    words += struct.pack("=dqqdqq", p.scale, p.causal, p.bottom_right, p.softcap, p.left, p.right)
    words_at = np.frombuffer(words, np.int64)
    grid = -(-p.queries // p.tile[1]) * p.heads * p.batch
    kernel = device.load(p.source)
    with device.watch(watched) if device.watch else nullcontext():
        kernel.launch((grid, 1, 1), p.tile[0], words_at.ctypes.data, len(words), 0)
    return np.array(held["y"]), np.array(held["lse"])


def verify(problem: Problem, arrays: dict[str, np.ndarray], y: np.ndarray, lse: np.ndarray) -> None:
    rounded, summed = UNITS[problem.element]
    want, want_lse, magnitude = exact(problem, arrays)
    y, size = y.astype(np.float64), 1 + problem.d_k**0.5
    np.testing.assert_array_equal(np.isnan(y), np.isnan(want))
    np.testing.assert_array_equal(np.isnan(lse), np.isnan(want_lse))
    known = ~np.isnan(want)
    bound = 1.01 * rounded * (magnitude + abs(want)) + 4 * size * summed * magnitude
    assert (abs(y - want)[known] <= bound[known]).all()
    finite = np.isfinite(want_lse)
    np.testing.assert_array_equal(lse[~finite], want_lse[~finite])
    lse, want_lse = lse[finite], want_lse[finite]
    assert (abs(lse - want_lse) <= 4 * size * summed * (1 + abs(want_lse))).all()
    assert (y[~finite & ~np.isnan(want).any(axis=3)] == 0).all()


PLAIN = Problem()
BAND = Problem(causal=True)
CASES = {
    "f16": PLAIN,
    "heads inside": replace(PLAIN, heads_inside=True),
    "bf16, GQA": Problem("bf16", batch=2, heads=4, kv_heads=2, d_k=64, d_v=32, queries=5),
    "float": Problem("float", d_k=20, d_v=36, tile=(64, 64, 16, 1)),
    "double": Problem("double", d_k=18, d_v=32, queries=19, tile=(64, 16, 16, 2)),
    "causal": BAND,
    "causal from the end": replace(BAND, bottom_right=True),
    "no key for the first": replace(BAND, bottom_right=True, queries=70, keys=9),
    "window": replace(BAND, causal=False, left=7, right=3, queries=90, keys=80, heads=1, scale=-0.5),
    "wide window": replace(BAND, causal=False, left=20, right=70, queries=90, keys=120, heads=1),
    "open window": replace(BAND, causal=False, left=2**63 - 1, right=5, keys=20),
    "one buffer, wide": Problem("bf16", causal=True, d_k=40, d_v=88, tile=(64, 64, 16, 1)),
    "window to the left": Problem("float", left=20, bottom_right=True, d_v=33, packed=False, heads_inside=True),
    "softcap": Problem(softcap=1.5, scale=2.0, packed=False, d_k=31, d_v=7),
    "alibi, mask": Problem("bf16", batch=2, alibi=True, mask=True, causal=True, tile=(64, 32, 32, 1)),
    "everything": Problem("double", alibi=True, mask=True, softcap=2.0, left=9, right=30, packed=False, d_k=5, d_v=3),
}


@pytest.fixture(scope="module")
def checked() -> HostDevice:
    """One device in check mode, so that each variant is compiled once."""
    return HostDevice(check=True)


@pytest.mark.parametrize("name", CASES)
def test_attention(checked, name):
    """Odd lengths and widths; check mode has nothing to say."""
    problem = CASES[name]
    arrays = problem.inputs()
    verify(problem, arrays, *attend(checked, problem, arrays))


def test_no_keys(checked):
    """Without keys y is zero and lse minus infinity; without queries nothing is launched."""
    problem = replace(PLAIN, keys=0)
    y, lse = attend(checked, problem, problem.inputs())
    assert (y == 0).all() and (lse == -np.inf).all()


@pytest.mark.parametrize("scale", [0.25, 0.0, -1.0, 1e-38, 200.0])
def test_scales(checked, scale):
    """Any finite scale, also those that are not folded into the exponential, and scores far from zero."""
    problem = replace(BAND, scale=scale, heads=1)
    arrays = problem.inputs()
    arrays["q"] *= 8
    verify(problem, arrays, *attend(checked, problem, arrays))


def test_what_is_not_finite(checked):
    """NaN reaches its row, an infinite score makes NaN, and what no row of a block sees stays away."""
    problem = replace(BAND, queries=64, keys=96, heads=1)
    arrays = problem.inputs()
    arrays["q"][0, 0, 3, 5] = np.nan
    arrays["q"][0, 0, 40] = np.inf
    arrays["k"][0, 0, 64:] = np.nan
    arrays["v"][0, 0, 64:] = np.nan
    y, lse = attend(checked, problem, arrays)
    rows = np.isin(np.arange(64), (3, 40))
    np.testing.assert_array_equal(np.isnan(lse[0, 0]), rows)
    np.testing.assert_array_equal(np.isnan(y[0, 0].astype(np.float32)).any(axis=1), rows)


def test_large_scores(checked):
    """Scores so large that a rounding of the maximum would overflow the exponential."""
    problem = replace(PLAIN, scale=1.0, d_k=8)
    arrays = problem.inputs()
    arrays["q"] *= 8000
    arrays["k"] *= 8000
    y, lse = attend(checked, problem, arrays)
    score = arrays["q"].astype(np.float64) @ np.repeat(arrays["k"], 2, axis=1).astype(np.float64).swapaxes(2, 3)
    best = np.repeat(arrays["v"], 2, axis=1)[0, np.arange(2)[:, None], score[0].argmax(axis=2)]
    np.testing.assert_array_equal(y[0], best)
    np.testing.assert_allclose(lse, score.max(axis=3), rtol=1e-6)


TILES = {
    "f16": Problem(d_k=128, d_v=128, causal=True, tile=(128, 128, 64, 1)),
    "float": Problem("float", d_k=64, d_v=64, tile=(128, 64, 32, 2)),
    "double": Problem("double", d_k=64, d_v=64, tile=(128, 32, 16, 1)),
}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", TILES)
def test_assembles_without_spills(name, arch):
    """Tiles that are meant for use fit into the registers."""
    assert compile_cubin(TILES[name].source, arch).resources.spill_bytes == 0
