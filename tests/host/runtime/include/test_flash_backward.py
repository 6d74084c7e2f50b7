"""Flash attention's backward pass on the host device, against float64."""

from __future__ import annotations

import ctypes
import struct
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import autograd
import autograd.numpy as anp
import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from repository import KERNELS

from baracuda.runtime.compile.cubin import compile_cubin
from baracuda.runtime.device import KernelSource, WatchedArray
from baracuda.runtime.host import HostDevice

Array = npt.NDArray[Any]
FILE = "flash_backward.cu"
DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
UNIT = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53}  # largest relative error of a rounding


@dataclass(frozen=True)
class Tiles:
    """The numbers of a schedule."""

    THREADS: int = 64
    KV_BLOCK_K: int = 32
    KV_BLOCK_Q: int = 32
    KV_STAGES: int = 2
    KV_PARTS: int = 1
    Q_BLOCK_Q: int = 32
    Q_BLOCK_K: int = 32
    Q_STAGES: int = 2


@dataclass(frozen=True)
class Problem:
    """What is asked of the three kernels; `packed` says how the tensors lie in memory."""

    dtype: str = "f16"
    batch_size: int = 1
    num_heads: int = 2
    num_kv_heads: int = 1
    query_len: int = 45
    key_len: int = 70
    d_k: int = 32
    d_v: int = 32
    scale: float = 0.2
    is_causal: bool = False
    bottom_right: bool = False
    softcap: float = 0.0
    window_left: int = -1
    window_right: int = -1
    mask: bool = False
    alibi: bool = False
    packed: bool = True

    @property
    def acc(self) -> type:
        return np.float64 if self.dtype == "f64" else np.float32

    def sees(self) -> Array:
        """[Q, K]: which keys a query sees."""
        stands = np.arange(self.query_len)[:, None] + (self.key_len - self.query_len if self.bottom_right else 0)
        key = np.arange(self.key_len)[None]
        right = 0 if self.is_causal else self.window_right
        seen = np.ones((self.query_len, self.key_len), bool)
        if self.window_left >= 0:
            seen &= key >= stands - self.window_left
        if right >= 0:
            seen &= key <= stands + right
        return seen

    def bias(self, mask: Array | None, slopes: Array | None) -> Array:
        """[B, H, Q, K]: what is added to a score; keys that are not seen get -inf."""
        stands = np.arange(self.query_len)[:, None] + (self.key_len - self.query_len if self.bottom_right else 0)
        bias = np.where(self.sees(), 0.0, -np.inf)
        shape = self.batch_size, self.num_heads, self.query_len, self.key_len
        if slopes is not None:
            distance = abs(stands - np.arange(self.key_len)[None])
            bias = bias - slopes.astype(np.float64)[:, :, None, None] * distance
        if mask is not None:
            bias = bias + mask.astype(np.float64)
        return np.broadcast_to(bias, shape)

    def scores(self, q: Array, k: Array, bias: Array, xp: Any = np) -> Array:
        raw = self.scale * xp.einsum("bhqd,bhkd->bhqk", q, xp.repeat(k, self.num_heads // k.shape[1], 1))
        if self.softcap:
            raw = self.softcap * xp.tanh(raw / self.softcap)
        return raw + bias


def inputs(problem: Problem, seed: int = 0) -> dict[str, Array]:
    """Random inputs, with what the forward pass would have left in y and lse."""
    p, random = problem, np.random.default_rng(seed)
    of_query, of_key = (p.batch_size, p.num_heads, p.query_len), (p.batch_size, p.num_kv_heads, p.key_len)
    kind = DTYPES[p.dtype]
    given = {
        "q": random.standard_normal((*of_query, p.d_k)).astype(kind),
        "k": random.standard_normal((*of_key, p.d_k)).astype(kind),
        "v": random.standard_normal((*of_key, p.d_v)).astype(kind),
        "dy": random.standard_normal((*of_query, p.d_v)).astype(kind),
    }
    if p.mask:
        mask = random.standard_normal((*of_query, p.key_len)).astype(p.acc)
        given["mask"] = np.where(random.random(mask.shape) < 0.2, mask.dtype.type(-np.inf), mask)
        given["mask"][:, 0, 3:5] = -np.inf  # queries that see nothing
    if p.alibi:
        given["alibi_slopes"] = random.random((p.batch_size, p.num_heads)).astype(p.acc)
    bias = p.bias(given.get("mask"), given.get("alibi_slopes"))
    score = p.scores(given["q"].astype(np.float64), given["k"].astype(np.float64), bias)
    high = score.max(axis=-1, keepdims=True, initial=-np.inf)
    weight = np.exp(score - np.where(np.isfinite(high), high, 0))
    total = weight.sum(axis=-1, keepdims=True)
    share = weight / np.where(total > 0, total, 1)
    with np.errstate(divide="ignore"):
        lse = np.where(total > 0, np.where(np.isfinite(high), high, 0) + np.log(total), -np.inf)[..., 0]
    y = share @ np.repeat(given["v"].astype(np.float64), p.num_heads // p.num_kv_heads, 1)
    return given | {"y": y.astype(kind), "lse": lse.astype(p.acc)}


def gradients(problem: Problem, given: dict[str, Array]) -> dict[str, tuple[Array, Array]]:
    """Of dq, dk and dv the exact values for these inputs, y and lse included, and how far off a kernel may be."""
    p, unit, fine = problem, UNIT[problem.dtype], 2.0 ** (-50 if problem.dtype == "f64" else -21)
    rounding = unit if p.dtype in ("f16", "bf16") else fine  # of weights and their gradients before they are multiplied
    wide = {name: array.astype(np.float64) for name, array in given.items()}
    q, dy, group = wide["q"], wide["dy"], p.num_heads // p.num_kv_heads
    k, v = np.repeat(wide["k"], group, 1), np.repeat(wide["v"], group, 1)
    bias = p.bias(wide.get("mask"), wide.get("alibi_slopes"))
    score = p.scores(q, k, bias)
    lse = wide["lse"][..., None]
    weight = np.where(np.isneginf(lse), 0, np.exp(score - np.where(np.isneginf(lse), 0, lse)))
    delta = (wide["y"] * dy).sum(-1, keepdims=True)
    delta_size = abs(wide["y"] * dy).sum(-1, keepdims=True)
    slope = 1 - (p.scores(q, k, 0.0) / p.softcap) ** 2 if p.softcap else 1.0
    towards_weight = dy @ v.swapaxes(-1, -2)
    dscore = weight * (towards_weight - delta) * slope

    exponent = fine * (2 + abs(np.where(np.isfinite(score), score, 0)) + abs(np.where(np.isfinite(lse), lse, 0)))
    magnitude = abs(q) @ abs(k).swapaxes(-1, -2) * abs(p.scale) * fine
    off_weight = weight * (rounding + exponent + magnitude) + 2.0**-25 * (p.dtype == "f16")
    off_dscore = abs(dscore) * (rounding + exponent + magnitude) + 2.0**-25 * (p.dtype == "f16")
    off_dscore += weight * fine * (abs(dy) @ abs(v).swapaxes(-1, -2) + delta_size + abs(towards_weight - delta))

    def shared(array: Array) -> Array:
        """Summed over the heads that share a key and value head."""
        b, _, rows, d = array.shape
        return array.reshape(b, p.num_kv_heads, group, rows, d).sum(2)

    def product(dscore: Array, weight: Array, size: Any) -> dict[str, Array]:
        across = dscore.swapaxes(-1, -2)
        scale = size(p.scale)
        return {
            "dq": scale * (dscore @ size(k)),
            "dk": shared(scale * (across @ size(q))),
            "dv": shared(weight.swapaxes(-1, -2) @ size(dy)),
        }

    exact = product(dscore, weight, lambda x: x)
    summed = product(abs(dscore), weight, abs)
    off = product(off_dscore, off_weight, abs)
    return {
        name: (exact[name], off[name] * 1.1 + fine * summed[name] + unit * abs(exact[name]) + 1e-7 * (unit > 1e-9))
        for name in exact
    }


def placed(device: HostDevice, values: Array, packed: bool) -> Array:
    """A copy on the device: whole rows of 16 bytes or, not packed, heads behind rows, at odd distances."""
    if packed or values.ndim != 4:
        array = device.empty(values.shape, values.dtype)
    else:
        b, h, rows, d = values.shape
        array = device.empty((b, rows, h, d + 1), values.dtype)[..., :d].transpose(0, 2, 1, 3)
    array[...] = values
    return array


def source(problem: Problem, tiles: Tiles, kernel: str) -> KernelSource:
    p = problem
    of_variant = {
        "DK": rounded(p.d_k),
        "DV": rounded(p.d_v),
        "BAND": int(p.is_causal or p.window_left >= 0 or p.window_right >= 0),
        "SOFTCAP": int(p.softcap != 0),
        "HAS_MASK": int(p.mask),
        "HAS_ALIBI_SLOPES": int(p.alibi),
        "LAYOUT": int(not p.packed),
    }
    defines = [f"BARACUDA_{name}={value}" for name, value in of_variant.items()]
    defines += [f"SCHEDULE_{name}={value}" for name, value in vars(tiles).items()]
    element = {"f32": "float", "f64": "double"}.get(p.dtype, p.dtype)
    text = (KERNELS / FILE).read_text()
    return KernelSource(f"kernels/{FILE}", text, kernel, (f"ELEMENT={element}", f"SKU_{kernel}=1", *defines), True)


def rounded(d: int) -> int:
    return next(size for size in (32, 64, 96, 128, 192, 256) if size >= d)


def run(device: HostDevice, problem: Problem, given: dict[str, Array], tiles: Tiles) -> dict[str, Array]:
    """Launch delta, dkdv and dq, as a plan would."""
    p = problem
    arrays = {name: placed(device, array, p.packed) for name, array in given.items()}
    for name, like in {"dq": "q", "dk": "k", "dv": "v"}.items():
        arrays[name] = placed(device, np.full(given[like].shape, np.nan, given[like].dtype), p.packed)
    arrays["delta"] = device.empty((p.batch_size, p.num_heads, p.query_len), p.acc)
    words = b""
    for name in ("q", "k", "v", "y", "lse", "dy", "mask", "alibi_slopes", "dq", "dk", "dv"):
        rank = {"lse": 3, "alibi_slopes": 2}.get(name, 4)
        if name in arrays:
            array = arrays[name]
            words += struct.pack("=Q", array.ctypes.data if array.size else 0)
            shared = name == "mask" and array.shape != (p.batch_size, p.num_heads, p.query_len, p.key_len)
            steps = zip(array.shape, array.strides, strict=True)
            strides = [0 if shared and extent == 1 else step for extent, step in steps]
            words += struct.pack(f"={rank}q", *(step // array.itemsize for step in strides))
        else:
            words += struct.pack(f"={rank + 1}q", *[0] * (rank + 1))
    words += struct.pack("=7q", p.batch_size, p.num_heads, p.num_kv_heads, p.query_len, p.key_len, p.d_k, p.d_v)
    words += struct.pack("=d2qd", p.scale, p.is_causal, p.bottom_right, p.softcap)
    words += struct.pack("=2qQ", p.window_left, p.window_right, arrays["delta"].ctypes.data)
    roles = dict.fromkeys(given, "in") | {"dq": "out", "dk": "out", "dv": "out", "delta": "workspace"}
    watched = [
        WatchedArray(n, role, a.ctypes.data, a.shape, tuple(s // a.itemsize for s in a.strides), a.itemsize)
        for n, role in roles.items()
        if (a := arrays[n]).size
    ]
    heads = p.batch_size * p.num_heads
    grids = {
        "delta": -(-heads * p.query_len // (tiles.THREADS // 8)),
        "dkdv": -(-p.key_len // tiles.KV_BLOCK_K) * p.batch_size * p.num_kv_heads * tiles.KV_PARTS,
        "dq": -(-p.query_len // tiles.Q_BLOCK_Q) * heads,
    }
    address = ctypes.cast(ctypes.c_char_p(words), ctypes.c_void_p).value
    with device.watch(watched) if device.watch else nullcontext():
        for kernel, grid in grids.items():
            if grid:
                loaded = device.load(source(p, tiles, kernel))
                loaded.launch((grid, 1, 1), tiles.THREADS, address, len(words), 0)
    return {name: arrays[name] for name in ("dq", "dk", "dv")}


def check(device: HostDevice, problem: Problem, tiles: Tiles, given: dict[str, Array]) -> None:
    got = run(device, problem, given, tiles)
    for name, (exact, bound) in gradients(problem, given).items():
        error = abs(got[name].astype(np.float64) - exact)
        assert (error <= bound).all(), f"{name}: {np.max(error / bound):.3g} times the bound"


EVERYTHING = Problem(
    dtype="f32",
    batch_size=2,
    num_heads=4,
    num_kv_heads=2,
    d_k=24,
    d_v=44,
    scale=-0.2,
    softcap=0.8,
    window_left=17,
    window_right=30,
    mask=True,
    alibi=True,
    packed=False,
)
CASES = {
    "plain": (Problem(d_k=64), Tiles(KV_BLOCK_K=64)),
    "everything": (EVERYTHING, Tiles()),
    "f64": (
        Problem("f64", d_k=96, d_v=30, is_causal=True),
        Tiles(KV_BLOCK_K=16, KV_BLOCK_Q=16, KV_STAGES=1, KV_PARTS=2, Q_BLOCK_Q=16, Q_BLOCK_K=16, Q_STAGES=1),
    ),
    "more queries than keys": (
        Problem("bf16", query_len=90, d_k=29, d_v=43, is_causal=True, bottom_right=True, packed=False),
        Tiles(),
    ),
    "bf16 with everything": (
        replace(EVERYTHING, dtype="bf16", d_v=40, bottom_right=True, packed=True),
        Tiles(64, 64, 64),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients(device, case):
    problem, tiles = CASES[case]
    check(device, problem, tiles, inputs(problem))


@pytest.mark.parametrize("case", list(CASES)[:3])
def test_check_mode_is_silent(device, case):
    device.check, device.order, device.seed = True, "random", 3
    problem, tiles = CASES[case]
    check(device, problem, tiles, inputs(problem))


def test_mask_of_one_head(device):
    """Strides of 0 stand for batches and heads that share a mask."""
    problem, tiles = CASES["everything"]
    given = inputs(problem)
    given["mask"] = given["mask"][:1, :1]
    check(device, problem, tiles, given)


@pytest.mark.parametrize("lengths", [(0, 70), (45, 0), (1, 1), (0, 0)])
def test_short(device, lengths):
    """Without queries dk and dv are 0, without keys dq is."""
    problem, tiles = CASES["plain"]
    problem = replace(problem, query_len=lengths[0], key_len=lengths[1])
    check(device, problem, tiles, inputs(problem))


def test_nan_reaches_what_it_should(device):
    """A query whose lse is NaN makes its dq NaN, and dk and dv of the keys that it sees, and no others."""
    problem, tiles = CASES["f64"]
    given = inputs(problem)
    given["lse"][0, 1, 20] = np.nan
    got = run(device, problem, given, tiles)
    assert np.isnan(got["dq"][0, 1, 20]).all()
    assert np.isfinite(got["dq"][0, 0]).all() and np.isfinite(np.delete(got["dq"][0, 1], 20, 0)).all()
    for name in ("dk", "dv"):
        assert np.isnan(got[name][0, 0, :21]).all() and np.isfinite(got[name][0, 0, 21:]).all()


def test_oracle():
    """The exact gradients are those that autograd finds."""
    problem = replace(EVERYTHING, dtype="f64", query_len=9, key_len=11, window_right=3)
    given = inputs(problem)
    bias = problem.bias(given["mask"], given["alibi_slopes"])
    sees = np.isfinite(bias).any(-1, keepdims=True)

    def loss(q, k, v):
        score = problem.scores(q, k, np.where(np.isfinite(bias) | ~sees, np.where(sees, bias, 0), -1e9), anp)
        weight = anp.exp(score - anp.max(score, axis=-1, keepdims=True))
        share = sees * weight / anp.sum(weight, axis=-1, keepdims=True)
        return anp.sum(given["dy"] * (share @ anp.repeat(v, problem.num_heads // problem.num_kv_heads, 1)))

    slopes = autograd.grad(loss, (0, 1, 2))(given["q"], given["k"], given["v"])
    for slope, (exact, _) in zip(slopes, gradients(problem, given).values(), strict=True):
        np.testing.assert_allclose(slope, exact, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("kernel", ["delta", "dkdv", "dq"])
def test_assembles_without_spills(arch, kernel):
    problem, tiles = Problem("bf16", d_k=128, d_v=128, is_causal=True), Tiles(256, 128, 64, 2, 1, 128, 64, 2)
    assert compile_cubin(source(problem, tiles, kernel), arch).resources.spill_bytes == 0
