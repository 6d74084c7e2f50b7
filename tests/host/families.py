"""Launches of the kernels in move.cu, reduce.cu, attention.cu and window.cu, and what they compute in float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from host.jobs import Array, Job, Tensor

F32 = 2.0**-24  # relative error of one operation in float
BF16 = ml_dtypes.bfloat16


def _floats(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _out(name: str, exact: Array, kind: type = np.float32, bound: Array | float = 0.0, role: str = "out") -> Tensor:
    return Tensor(name, role, np.zeros(exact.shape, kind), exact, bound)


def _in(name: str, values: Array) -> Tensor:
    return Tensor(name, "in", values)


def transpose(rows: int, cols: int, grid: int = 3, by_warp: bool = False) -> Job:
    x = _floats(rows, cols)
    name, block = ("transpose_by_warp", 96) if by_warp else ("transpose", 256)
    tensors = _in("x", x), _out("y", x.T)
    return Job("move.cu", name, grid, block, tensors, ("x", "y", rows, cols))


def widen(n: int, grid: int = 3) -> Job:
    x = _floats(n).astype(BF16)
    tensors = _in("x", x), _out("y", x.astype(np.float32))
    return Job("move.cu", "widen", grid, 128, tensors, ("x", "y", n))


def gather(rows: int, cols: int, table_rows: int = 9) -> Job:
    table = _floats(table_rows, cols)
    index = np.random.default_rng(2).integers(0, table_rows, rows).astype(np.int32)
    tensors = _in("table", table), _in("index", index), _out("y", table[index])
    return Job("move.cu", "gather", -(-rows // 4), 128, tensors, ("table", "index", "y", rows, cols))


def scatter_add(rows: int, cols: int, grid: int = 5) -> Job:
    x = np.random.default_rng(3).integers(-9, 10, (rows, cols)).astype(np.float32)
    index = np.random.default_rng(4).integers(0, 40, rows).astype(np.int32)
    sums, counts = np.zeros((40, cols)), np.bincount(index, minlength=40)
    np.add.at(sums, index, x)
    added = _out("sums", sums, role="inout"), _out("counts", counts, np.uint32, role="inout")
    words = ("x", "index", "sums", "counts", rows, cols)
    return Job("move.cu", "scatter_add", grid, 128, (_in("x", x), _in("index", index), *added), words)


def normalize(rows: int, cols: int, grid: int = 3) -> Job:
    x, scale = _floats(rows, cols), _floats(cols, seed=2)
    wide = x.astype(np.float64)
    deviation = np.sqrt(wide.var(axis=1, keepdims=True) + 1e-5)
    exact = (wide - wide.mean(axis=1, keepdims=True)) / deviation * scale
    # Sums of cols terms whose rounding errors are relative to the largest element of the row.
    bound = 8 * (cols / 128 + 16) * F32 * abs(scale) * (1 + abs(wide).max(axis=1, keepdims=True) / deviation) ** 2
    tensors = _in("x", x), _in("scale", scale), _out("y", exact, bound=bound)
    return Job("reduce.cu", "normalize", grid, 128, tensors, ("x", "scale", "y", rows, cols))


def split_k(rows: int, cols: int, depth: int, splits: int) -> Job:
    a, b = _floats(rows, depth), _floats(depth, cols, seed=2)
    exact = a.astype(np.float64) @ b
    bound = (depth + splits + 1) * F32 * (abs(a).astype(np.float64) @ abs(b))
    tiles = -(-rows // 16) * -(-cols // 16)
    turn = Tensor("turn", "inout", np.zeros(tiles, np.uint32), 0)
    tensors = _in("a", a), _in("b", b), _out("c", exact, bound=bound), turn
    words = ("a", "b", "c", "turn", rows, cols, depth, splits)
    return Job("reduce.cu", "split_k", tiles * splits, 256, tensors, words)


def column_sums(rows: int, cols: int, grid: int = 5) -> Job:
    x = _floats(rows, cols)
    ticket = Tensor("ticket", "inout", np.zeros(1, np.uint32), 0)
    part = Tensor("part", "workspace", np.zeros((grid, cols), np.float32))
    bound = (rows + grid) * F32 * abs(x).sum(axis=0)
    tensors = _in("x", x), part, _out("y", x.astype(np.float64).sum(axis=0), bound=bound), ticket
    return Job("reduce.cu", "column_sums", grid, 128, tensors, ("x", "part", "y", "ticket", rows, cols))


def scan(n: int) -> Job:
    x = np.random.default_rng(5).integers(-1000, 1001, n).astype(np.int32)
    tiles = max(1, -(-n // 512))
    state = Tensor("state", "inout", np.zeros(tiles, np.uint64))
    taken = Tensor("next", "inout", np.zeros(1, np.uint32), tiles)
    tensors = _in("x", x), _out("y", np.cumsum(x), np.int32), state, taken
    return Job("reduce.cu", "scan", tiles, 128, tensors, ("x", "y", "state", "next", n))


def attention(heads: int, queries: int, keys: int, size: int, causal: bool = False) -> Job:
    random = np.random.default_rng(6)
    q, k, v = (random.standard_normal((heads, n, size)).astype(BF16) for n in (queries, keys, keys))
    scale = size**-0.5
    score = np.einsum("hqd,hkd->hqk", q.astype(np.float64), k.astype(np.float64)) * scale
    if causal:
        seen = np.arange(keys) <= np.arange(queries)[:, None] + keys - queries
        score = np.where(seen, score, -np.inf)
    high = np.maximum(score.max(axis=2, keepdims=True), -1e300)
    weight = np.exp(score - high)
    total = weight.sum(axis=2, keepdims=True)
    share = weight / np.where(total > 0, total, 1)
    with np.errstate(divide="ignore"):
        lse = np.where(total > 0, high + np.log(total), -np.inf)[:, :, 0]
    wide = v.astype(np.float64)
    exact, magnitude = share @ wide, share @ abs(wide)
    # Weights and output are rounded to bf16; scores are short of a few units of float.
    bound = 2.0**-8 * (magnitude * 1.02 + abs(exact)) + 1e-6
    tensors = (
        *(_in("q", q), _in("k", k), _in("v", v)),
        *(_out("o", exact, BF16, bound), _out("lse", lse, np.float32, 1e-5)),
    )
    words = ("q", "k", "v", "o", "lse", queries, keys, size, int(causal), float(scale))
    return Job("attention.cu", "attention", heads * -(-queries // 64), 128, tensors, words)


def convolve(batch: int, length: int, channels: int, taps: int = 4) -> Job:
    x, weight, bias = _floats(batch, length, channels), _floats(taps, channels, seed=2), _floats(channels, seed=3)
    padded = np.concatenate([np.zeros((batch, taps - 1, channels)), x], axis=1)
    parts = [weight[k] * padded[:, k : k + length].astype(np.float64) for k in range(taps)]
    bound = (taps + 2) * F32 * (abs(bias) + sum(abs(part) for part in parts))
    tensors = _in("x", x), _in("weight", weight), _in("bias", bias), _out("y", bias + sum(parts), bound=bound)
    grid, words = batch * -(-channels // 32), ("x", "weight", "bias", "y", length, channels, batch)
    return Job("window.cu", "convolve", grid, 128, tensors, words, (f"TAPS={taps}",))


def max_pool(batch: int, length: int, channels: int, window: int = 5, stride: int = 2, before: int = 2) -> Job:
    outputs = (length + 2 * before - window) // stride + 1
    x = _floats(batch, length, channels)
    padded = np.full((batch, length + 2 * before, channels), -np.inf)
    padded[:, before : before + length] = x
    windows = np.stack([padded[:, k : k + outputs * stride : stride][:, :outputs] for k in range(window)])
    where = windows.argmax(axis=0) + (np.arange(outputs) * stride - before)[:, None]
    tensors = _in("x", x), _out("y", windows.max(axis=0)), _out("where", where, np.int32)
    grid = batch * -(-channels // 32) * -(-outputs // 12)
    defines = (f"WINDOW={window}", f"STRIDE={stride}", f"BEFORE={before}")
    words = ("x", "y", "where", length, channels, outputs)
    return Job("window.cu", "max_pool", grid, 128, tensors, words, defines)
