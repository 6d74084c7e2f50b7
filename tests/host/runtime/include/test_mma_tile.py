"""Matrix products of a warp on tiles in shared memory: the same source for four element types."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from baracuda.runtime.compile.cubin import compile_cubin
from baracuda.runtime.host import HostDevice

BOTH_TEXTS = True

FILE = "mma_tile.cu"
TYPES = {
    "f16": (np.float16, np.float32, 2.0**-11),
    "bf16": (ml_dtypes.bfloat16, np.float32, 2.0**-8),
    "float": (np.float32, np.float32, 2.0**-22),
    "double": (np.float64, np.float64, 2.0**-53),
}


def defines(element: str, m: int, n: int, k: int, packed: bool) -> tuple[str, ...]:
    return f"ELEMENT={element}", f"SIZE_M={m}", f"SIZE_N={n}", f"SIZE_K={k}", f"IN_CHUNKS={int(packed)}"


@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize(("m", "n", "k", "packed"), [(16, 32, 48, True), (32, 16, 32, False)])
def test_product(source, run, element, m, n, k, packed):
    """a b from every storage order, and T(a b) e from registers; elements that a copy leaves out are zero."""
    stored, total, unit = TYPES[element]
    device, random = HostDevice(check=True), np.random.default_rng(m + n)
    a, b, e = (random.standard_normal(shape).astype(stored) for shape in ((m, k), (k, n), (n, 16)))
    arrays = []
    for values in (a, a.T, b, b.T, e):
        arrays.append(device.empty(values.shape, stored, align_end=values.nbytes % 16 == 0))
        arrays[-1][...] = values
    c = [device.empty((m, n), total) for _ in range(4)]
    d = device.empty((m, 16), total)
    rows, cols = n - 3, 8 if packed else 11
    run(device, source(FILE, "product", *defines(element, m, n, k, packed)), 1, 32, *arrays, *c, d, rows, cols)

    wide_a, wide_b, wide_e = (x.astype(np.float64) for x in (a, b, e))
    exact = wide_a @ wide_b
    bound = (k + 4) * min(unit, 2.0**-22) * (abs(wide_a) @ abs(wide_b))
    for got in c:
        assert (abs(got - exact) <= bound).all()
    wide_e[rows:], wide_e[:, cols:] = 0, 0
    rounded = c[0].astype(stored).astype(np.float64)
    assert (abs(d - rounded @ wide_e) <= (n + 4) * min(unit, 2.0**-22) * (abs(rounded) @ abs(wide_e))).all()
    assert (d[:, cols:] == 0).all()


@pytest.mark.parametrize("element", TYPES)
def test_assembles(source, element):
    """Every type's instructions exist from sm_80 on."""
    kernel = source(FILE, "product", *defines(element, 16, 32, 32, True))
    for arch in ("sm_80", "sm_90"):
        compile_cubin(kernel, arch)
