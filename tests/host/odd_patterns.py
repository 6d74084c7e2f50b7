"""Launches of the kernels in patterns.cu and patterns_of_blocks.cu, and what they compute."""

from __future__ import annotations

import numpy as np
from host.jobs import Array, Job, Tensor


def _numbers(*shape: int, low: int = 0, high: int = 100) -> Array:
    return np.random.default_rng(9).integers(low, high, shape).astype(np.int32)


def _pair(
    symbol: str, x: Array, y: Array, *, grid: int = 1, block: int = 64, n: int = 0, file: str = "patterns.cu"
) -> Job:
    """A kernel that makes y of x."""
    tensors = Tensor("x", "in", x), Tensor("y", "out", np.zeros_like(y, x.dtype), y)
    return Job(file, symbol, grid, block, tensors, ("x", "y", n))


def look_back() -> Job:
    x = _numbers(500)
    scratch = [Tensor(name, "workspace", np.zeros(8, np.int32)) for name in ("aggregate", "prefix")]
    status = Tensor("status", "inout", np.zeros(8, np.int32), 2)
    tensors = Tensor("x", "in", x), Tensor("y", "out", x, np.cumsum(x)), *scratch, status
    return Job(
        "patterns_of_blocks.cu", "look_back", 8, 64, tensors, ("x", "y", "aggregate", "prefix", "status", x.size)
    )


def _turns(symbol: str, role: str, last_turn: int) -> Job:
    x = _numbers(7, 64).astype(np.float32)
    added = Tensor("sum", role, np.zeros(64, np.float32), x.sum(axis=0))
    turn = Tensor("turn", "inout", np.zeros(1, np.uint32), last_turn)
    return Job("patterns_of_blocks.cu", symbol, 7, 64, (Tensor("x", "in", x), added, turn), ("x", "sum", "turn", 0))


def semaphore() -> Job:
    return _turns("semaphore", "out", 7)


def lock() -> Job:
    return _turns("lock", "inout", 0)


def producer_consumer() -> Job:
    x = _numbers(7, 64)
    return _pair("producer_consumer", x, x.sum(axis=0)[::-1], block=96, n=7)


def halves() -> Job:
    x = _numbers(32)
    lower = x[:16].sum() + np.arange(15, -1, -1)
    upper = np.roll(x[16:], -1) + (x[16:] & 1).sum()
    return _pair("halves", x, np.concatenate([lower, upper]), block=32)


def warp_transpose() -> Job:
    x = _numbers(6, 32, 32)
    return _pair("warp_transpose", x, np.roll(x, 1, axis=2).swapaxes(1, 2), grid=2, block=96)


def early_exit() -> Job:
    x = _numbers(100)
    turned = x[::-1]
    y = turned.copy()
    y[0::3] += turned[0::3]
    y[1::3] += turned[0:99:3]
    return _pair("early_exit", x, y, block=128, n=100)


def divergent_shuffles() -> Job:
    x, lane = _numbers(32), np.arange(32)
    odd = (x & 1).astype(bool)
    y = np.where(odd, x + 1000 * lane[odd][0], -x[~odd].sum())
    y[np.flatnonzero(odd)[::2]] += 1
    for left in range(3):
        y[lane % 4 > left] += left + 1
    return _pair("divergent_shuffles", x, y, block=32)


def relay() -> Job:
    x = _numbers(6, 32)
    y = np.concatenate([np.zeros((1, 32), np.int32), np.cumsum(x, axis=0)[:-1]])
    mail = Tensor("mail", "workspace", np.zeros_like(x), np.cumsum(x, axis=0))
    flag = Tensor("flag", "inout", np.zeros(6, np.int32), 1)
    tensors = Tensor("x", "in", x), mail, flag, Tensor("y", "out", x, y)
    return Job("patterns_of_blocks.cu", "relay", 6, 32, tensors, ("x", "mail", "flag", "y", 0))


def same_word() -> Job:
    i = np.arange(9 * 64)
    either = int(np.bitwise_or.reduce(1 << i % 31))
    exact = [i.sum(), i.max(), 0, either, np.bitwise_xor.reduce(i), i.size]
    words = Tensor("words", "inout", np.zeros(6, np.int32), np.array(exact))
    total = Tensor("sum", "inout", np.zeros(1, np.float32), i.size / 2)
    return Job("patterns_of_blocks.cu", "same_word", 9, 64, (words, total), ("words", "sum", 0))


def barriers_of_pairs() -> Job:
    x = _numbers(2, 2, 32)
    both = x.sum(axis=1, keepdims=True).repeat(2, axis=1)
    return _pair("barriers_of_pairs", x, both * [[[2]], [[4]]], block=128)


def in_place() -> Job:
    y = _numbers(300).astype(np.float32)
    tensors = (Tensor("y", "inout", y, y * 2 + 1),)
    return Job("patterns.cu", "in_place", 5, 64, tensors, ("x", "y", 300), aliases={"x": "y"})


def constant_tables() -> Job:
    x, t = _numbers(64).astype(np.float32), np.arange(64)
    return _pair("constant_tables", x, x + (t % 8) ** 2 * (t % 3 + 1) / 4)


def shared_in_templates() -> Job:
    x = _numbers(64)
    return _pair("shared_in_templates", x, x[::-1] * 64 + np.arange(64)[::-1])


def sliced_shared() -> Job:
    x, t = _numbers(64), np.arange(64)
    value = (x + t + 2 * t)[::-1]
    return _pair("sliced_shared", x, sum(np.roll(value, -k) + k for k in range(6)))


def ping_pong() -> Job:
    x = _numbers(64, high=3)
    y = x
    for _ in range(7):
        y = np.roll(y, 1) - y + np.roll(y, -1)
    return _pair("ping_pong", x, y, n=7)


def neighbouring_bytes() -> Job:
    x = _numbers(64, 5).astype(np.uint8)
    return _pair("neighbouring_bytes", x, x[::-1] + 1, grid=5, file="patterns_of_blocks.cu")


def until_settled() -> Job:
    x = _numbers(64)
    return _pair("until_settled", x, np.maximum.accumulate(x))


def copied_by_one_warp() -> Job:
    x, t = _numbers(256), np.arange(96)
    return _pair("copied_by_one_warp", x, x[t] + x[127 - t] + x[255 - t], block=96)


def compact() -> Job:
    x = _numbers(300, low=-9, high=10)
    kept = int((x > 0).sum())
    tensors = (
        *(Tensor("x", "in", x), Tensor("y", "out", np.zeros(kept, np.int32), 1)),
        Tensor("taken", "inout", np.zeros(1, np.uint32), kept),
    )
    return Job("patterns_of_blocks.cu", "compact", 5, 64, tensors, ("x", "y", "taken", 300))


def fence_of_one_thread() -> Job:
    x = _numbers(5, 64)
    ticket = Tensor("ticket", "inout", np.zeros(1, np.uint32), 5)
    tensors = (
        *(Tensor("x", "in", x), Tensor("part", "workspace", x, 2 * x)),
        *(Tensor("y", "out", x[0], 2 * x.sum(axis=0)), ticket),
    )
    return Job("patterns_of_blocks.cu", "fence_of_one_thread", 5, 64, tensors, ("x", "part", "y", "ticket", 0))


def flags_in_shared() -> Job:
    x = _numbers(3, 32)
    first = x[0]
    second = x[1] + first[::-1]
    return _pair("flags_in_shared", x, np.stack([first, second, x[2] + second[::-1]]), block=96)


PATTERNS = {
    build.__name__: build
    for build in (
        *(look_back, semaphore, lock, producer_consumer, halves, warp_transpose, early_exit, divergent_shuffles),
        *(relay, same_word, barriers_of_pairs, in_place, constant_tables, shared_in_templates, sliced_shared),
        *(ping_pong, neighbouring_bytes, until_settled, copied_by_one_warp, compact),
        *(fence_of_one_thread, flags_in_shared),
    )
}
