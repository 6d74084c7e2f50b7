"""Invariant: matrix instructions of the host device give the bits that were recorded on an H200."""

from __future__ import annotations

import numpy as np
import pytest
from recorded.matrix_units import ANSWERS, DRAWS, WGMMA, warp_answer

BOTH_TEXTS = True

RECORDED = dict(np.load(ANSWERS))


@pytest.mark.parametrize("name", WGMMA)
def test_products_of_a_warpgroup(device, source, run, name):
    for draw in DRAWS:
        a, b, before, bits = (RECORDED[f"{name} {draw}/{key}"] for key in ("a", "b", "sum", "wgmma"))
        of_a, of_b = (device.empty(32768, np.uint8) for _ in "ab")
        of_a[:512], of_b[:256] = blocks(a), blocks(b)
        of_a[512:] = of_b[256:] = 0
        sums = device.empty((128, 4), np.uint32)
        sums[...] = 0
        thread, i = np.meshgrid(np.arange(32), np.arange(4), indexing="ij")
        place = thread // 4 + i // 2 * 8, thread % 4 * 2 + i % 2
        sums[:32] = before[place]
        kind = list(WGMMA).index(name)
        words = of_a, of_b, BLOCKS, BLOCKS, 0, sums, 8, kind, kind, 0, 0, 0, 0
        run(device, source("sm90.cu", "multiply", "DYN_SHARED_BYTES=98304"), 1, 128, *words)
        np.testing.assert_array_equal(sums[:32], bits[place], err_msg=draw)


BLOCKS = 8 << 16 | 16 << 32  # a descriptor: blocks of 8 rows of 16 bytes, two along a row of 32 bytes


def blocks(matrix: np.ndarray) -> np.ndarray:
    return matrix.view(np.uint8).reshape(-1, 8, 2, 16).transpose(0, 2, 1, 3).ravel()


@pytest.mark.parametrize("name", WGMMA)
def test_products_of_a_warp(device, name):
    for draw in DRAWS:
        a, b, before, bits = (RECORDED[f"{name} {draw}/{key}"] for key in ("a", "b", "sum", "mma"))
        np.testing.assert_array_equal(warp_answer(device, name, a, b, before), bits, err_msg=draw)


def test_products_of_f64(device):
    a, b, before, bits = (RECORDED[f"f64/{key}"] for key in ("a", "b", "sum", "mma"))
    np.testing.assert_array_equal(warp_answer(device, "f64", a, b, before), bits)
