"""Instructions of whole warps: what each lane gets from the others' registers. Arrays are [warps, 32]."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from .numbers import Lanes, widened

LANE = np.arange(32)
_GROUP, _MEMBER = LANE // 4, LANE % 4


class Shape(NamedTuple):
    """Rows and columns (depth) of the element that register part i of a lane holds, as [parts, 32]."""

    a: tuple[Lanes, Lanes]  # row, depth
    b: tuple[Lanes, Lanes]  # depth, column
    d: tuple[Lanes, Lanes]  # row, column


def _shape(m: int, n: int, k: int, per_word: int) -> Shape:
    """Of a word's elements, neighbours in depth, `per_word`; words go down the rows first, then along the depth."""

    def at(parts: int, rows: int) -> tuple[Lanes, Lanes]:
        part = np.arange(parts)[:, None]
        word, inside = part // per_word, part % per_word
        row = _GROUP + 8 * (word % (rows // 8))
        return row, _MEMBER * per_word + inside + 4 * per_word * (word // (rows // 8))

    a, b = at(m * k // 32, m), at(n * k // 32, n)
    part = np.arange(m * n // 32)[:, None]
    return Shape(a, (b[1], b[0]), (_GROUP + 8 * (part // 2), 2 * _MEMBER + part % 2))


_MMA = re.compile(r"m(\d+)n(\d+)k(\d+)\.row\.col\.(f32|f64|s32)\.(\w+)\.(\w+)\.(f32|f64|s32)")
_PER_WORD = {"f64": 1, "tf32": 1, "f16": 2, "bf16": 2, "e4m3": 4, "e5m2": 4, "s8": 4, "u8": 4}
_WHOLE = {"s8": np.int8, "u8": np.uint8}


def mma(opcode: str, a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """D of `mma.sync.aligned`: registers are [words, warps, 32]; `opcode` is what follows `aligned.`."""
    match = _MMA.fullmatch(opcode)
    if not match or match[4] != match[7] or {match[5], match[6]} - set(_PER_WORD):
        raise LookupError(f"mma.sync.aligned.{opcode} has no row in the table of PTX instructions")
    m, n, k = (int(match[i]) for i in (1, 2, 3))
    per_word = _PER_WORD[match[5]]
    shape = _shape(m, n, k, per_word)
    warps = a.shape[1]
    left, right = np.zeros((warps, m, k)), np.zeros((warps, k, n))
    for matrix, words, places, kind in ((left, a, shape.a, match[5]), (right, b, shape.b, match[6])):
        for part, (row, col) in enumerate(zip(*places, strict=True)):
            matrix[:, row, col] = _element(words[part // per_word], part % per_word, kind)
    product = left @ right
    d = np.empty_like(c)
    for part, (row, col) in enumerate(zip(*shape.d, strict=True)):
        total = product[:, row, col] + c[part]
        d[part] = (total.astype(np.int64) if match[5] in _WHOLE else total).astype(c.dtype)  # ints wrap around
    return d


def _element(words: Lanes, place: int, kind: str) -> Lanes:
    if kind == "f64":
        return words
    if kind == "tf32":
        return widened(words, kind)
    size = 32 // _PER_WORD[kind]
    dtype = np.dtype(f"u{size // 8}")
    elements = (words >> np.uint32(size * place)).astype(dtype)
    return elements.view(_WHOLE[kind]) if kind in _WHOLE else widened(elements, kind)


def matrix_of(words: Lanes) -> Lanes:
    """The matrices [warps, 8, 8] of halves of which a lane's word has two neighbours of a row."""
    matrix = np.empty((words.shape[0], 8, 8), np.uint16)
    for i in range(2):
        matrix[:, _GROUP, 2 * _MEMBER + i] = (words >> np.uint32(16 * i)).astype(np.uint16)
    return matrix


def fragment_of(matrix: Lanes) -> Lanes:
    """The words of matrices [warps, 8, 8] of halves as lanes hold them."""
    low, high = (matrix[:, _GROUP, 2 * _MEMBER + i].astype(np.uint32) for i in range(2))
    return low | high << np.uint32(16)


def shuffled(mode: str, values: Lanes, by: Lanes, clamp: Lanes) -> tuple[Lanes, Lanes]:
    """The value of the lane that `shfl.sync.MODE` reads, and whether that lane is within the segment."""
    segment = clamp >> 8 & 31
    limit = (LANE & segment) | (clamp & 31 & ~segment)
    first = LANE & segment
    if mode == "up":
        source = LANE - by
        inside = source >= limit
    elif mode == "down":
        source = LANE + by
        inside = source <= limit
    elif mode == "bfly":
        source = LANE ^ by
        inside = source <= limit
    elif mode == "idx":
        source = first | (by & ~segment & 31)
        inside = source <= limit
    else:
        raise LookupError(f"shfl.sync.{mode} has no row in the table of PTX instructions")
    source = np.where(inside, source, LANE)
    return np.take_along_axis(values, source, axis=1), inside


def matches(values: Lanes, member: Lanes) -> Lanes:
    """For each lane, the lanes of its warp that have its value in `match.any.sync`."""
    alike = (values[:, :, None] == values[:, None, :]) & member[:, None, :]
    return np.sum(alike.astype(np.uint64) << LANE.astype(np.uint64), axis=2).astype(np.uint32)


def votes(mode: str, predicate: Lanes, member: Lanes) -> Lanes:
    """The answer of `vote.sync.MODE`, the same for each lane of a warp."""
    if mode == "ballot":
        bits = np.sum((predicate & member).astype(np.uint64) << LANE.astype(np.uint64), axis=1).astype(np.uint32)
        return np.repeat(bits[:, None], 32, axis=1)
    if mode not in ("any", "all"):
        raise LookupError(f"vote.sync.{mode} has no row in the table of PTX instructions")
    answer = (predicate & member).any(axis=1) if mode == "any" else (predicate | ~member).all(axis=1)
    return np.repeat(answer[:, None], 32, axis=1)
