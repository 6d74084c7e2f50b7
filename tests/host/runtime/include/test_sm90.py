"""Instructions of sm_90 on the host device: what each of them leaves in memory."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from itertools import product

import ml_dtypes
import numpy as np
import pytest
from host.tensor_maps import F16, SWIZZLES, U8, encode, swizzled
from repository import KERNELS

from baracuda.runtime.device import WatchedArray
from baracuda.runtime.errors import DriverError, KernelInternal

BOTH_TEXTS = True

FILE = "sm90.cu"
SHARED = "DYN_SHARED_BYTES=98304"

BOXES = [
    ((64,), (32,), [(0,), (48,), (-16,), (64,)]),
    ((9, 64), (4, 16), [(0, 0), (7, 56), (-2, -8), (20, 0)]),
    ((3, 5, 32), (2, 3, 16), [(1, 3, 24), (-1, -1, -8)]),
    ((2, 3, 5, 32), (1, 2, 3, 16), [(1, 2, 4, 0), (0, 0, 0, 0), (1, -1, 3, 24)]),
    ((2, 2, 3, 5, 32), (2, 1, 2, 3, 16), [(1, 1, 1, 4, 0), (-1, 0, 2, -2, 8)]),
]


@pytest.mark.parametrize(("shape", "box", "corners"), BOXES, ids=lambda v: str(len(v)))
@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("asynchrony", ["late", "early"])
def test_boxes(device, source, run, shape, box, corners, swizzle, asynchrony):
    """A box of one to five axes, inside and across every edge, with every swizzle."""
    device.asynchrony = asynchrony
    tensor, out = device.empty(shape, np.uint16), device.empty(4096, np.uint8)
    tensor[...] = np.random.default_rng(1).integers(0, 2**16, shape)
    if swizzle and box[-1] * 2 > SWIZZLES[swizzle]:
        assert encode(device, F16, tensor, box, swizzle)[0] == 1
        return
    for fill, corner in product((0, 1), corners):
        code, words = encode(device, F16, tensor, box, swizzle, fill)
        assert code == 0
        wanted = np.full(box, 0xFFFF if fill else 0, np.uint16)
        for index in np.ndindex(*box):
            place = tuple(c + i for c, i in zip(corner, index, strict=True))
            if all(0 <= p < n for p, n in zip(place, shape, strict=True)):
                wanted[index] = tensor[place]
        raw = wanted.view(np.uint8).ravel()
        coordinates = [*corner[::-1], 0, 0, 0, 0][:5]
        run(device, source(FILE, "load_a_box", SHARED), 1, 32, words, *coordinates, len(shape), raw.size, out)
        for i, value in enumerate(raw):
            assert out[swizzled(i, swizzle)] == value, (corner, i)


def test_maps_that_the_driver_refuses(device):
    """What cuTensorMapEncodeTiled checks, the host device checks."""
    tensor = device.empty((4, 8, 64), np.uint16)
    assert encode(device, F16, tensor, (1, 8, 64))[0] == 0
    assert encode(device, F16, tensor, (1, 257, 64))[0] == 1  # a box is 256 at most
    assert encode(device, F16, tensor, (1, 8, 4))[0] == 1  # rows are multiples of 16 bytes
    assert encode(device, F16, tensor, (1, 8, 64), swizzle=2)[0] == 1  # and fit in the swizzle
    assert encode(device, F16, tensor, (1, 8, 64), strides=[120, 1024])[0] == 1  # strides are multiples of 16
    assert encode(device, U8, tensor, (1, 8, 64), fill=1)[0] == 1  # integers know no NaN
    assert encode(device, F16, tensor[:, :, 1:], (1, 8, 8), strides=[128, 1024])[0] == 1  # so are addresses


KINDS = {
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "TF32": np.float32,
    "E4M3": ml_dtypes.float8_e4m3fn,
    "E5M2": ml_dtypes.float8_e5m2,
    "S8": np.int8,
    "U8": np.uint8,
}
COLUMNS = {
    "F16": (8, 64, 256),
    "BF16": (192,),
    "TF32": (16, 128),
    "E4M3": (32, 256),
    "E5M2": (8,),
    "S8": (24, 128),
    "U8": (64,),
}


def lay_out(matrix: np.ndarray, along: bool, mode: int) -> tuple[np.ndarray, int]:
    """Bytes of a matrix of lines whose elements are multiplied, and its descriptor, as CUTLASS's canonical layouts.

    `along`: neighbours in memory are of different lines.
    """
    width, item = SWIZZLES[mode], matrix.dtype.itemsize
    lines, depth = matrix.shape
    if along:
        of_atom = width // item  # lines in an atom, which has eight of depth
        leading, stride = (depth // 8 * 8 * width, 8 * width) if mode else (128, 128 * (depth // 8))
    elif mode:
        leading, stride = 16, 8 * width
    else:
        leading, stride = lines // 8 * 128, 128
    memory = np.zeros(65536, np.uint8)
    raw = np.ascontiguousarray(matrix).view(np.uint8).reshape(lines, depth, item)
    for line, k in product(range(lines), range(depth)):
        if not along and mode:
            place = line // 8 * stride + line % 8 * width + k * item
        elif not along:
            place = line // 8 * stride + k * item // 16 * leading + line % 8 * 16 + k * item % 16
        elif mode:
            place = line // of_atom * leading + line % of_atom * item + k // 8 * stride + k % 8 * width
        else:
            place = line // 8 * stride + line % 8 * item + k // 8 * leading + k % 8 * 16
        at = swizzled(place, mode)
        memory[at : at + item] = raw[line, k]
    code = {0: 0, 1: 3, 2: 2, 3: 1}[mode]
    return memory[:32768], (leading >> 4) << 16 | (stride >> 4) << 32 | code << 62


def products() -> Iterator[tuple[str, int, bool, bool, int]]:
    for kind, widths in COLUMNS.items():
        for columns, mode in product(widths, SWIZZLES):
            either = (False, True) if np.dtype(KINDS[kind]).itemsize == 2 else (False,)
            for a_along, b_along in product(either, repeat=2):
                if not b_along or columns * 2 % SWIZZLES[mode] == 0:
                    yield kind, columns, a_along, b_along, mode


def registers_of(columns: int) -> np.ndarray:
    """[128, N / 2, 2]: the row and the column that a thread holds."""
    thread, i = np.meshgrid(np.arange(128), np.arange(columns // 2), indexing="ij")
    row = thread // 32 * 16 + thread % 32 // 4 + i // 2 % 2 * 8
    return np.stack([row, i // 4 * 8 + thread % 4 * 2 + i % 2], -1)


def drawn(kind: str, shape: tuple[int, int], random: np.random.Generator) -> np.ndarray:
    if kind in ("S8", "U8"):
        limits = np.iinfo(KINDS[kind])
        return random.integers(limits.min, limits.max + 1, shape).astype(KINDS[kind])
    return random.integers(-8, 9, shape).astype(np.float32).astype(KINDS[kind])  # sums are exact


@pytest.mark.parametrize(("kind", "columns", "a_along", "b_along", "mode"), list(products()))
def test_products(device, source, run, kind, columns, a_along, b_along, mode):
    """Every type, transposes and swizzles of both operands, A from shared memory and from registers."""
    random = np.random.default_rng(columns)
    depth = 32 // np.dtype(KINDS[kind]).itemsize
    a, b = drawn(kind, (64, depth), random), drawn(kind, (columns, depth), random)
    number = np.int32 if kind in ("S8", "U8") else np.float32
    before = random.integers(-100, 100, (64, columns)).astype(number)
    exact = a.astype(np.int64) @ b.astype(np.int64).T
    of_a, of_b = lay_out(a, a_along, mode), lay_out(b, b_along, mode)
    registers = registers_of(columns)
    per_word = 4 // a.dtype.itemsize
    fragment = device.empty((128, 4, per_word), a.dtype)
    for thread, word, i in np.ndindex(*fragment.shape):
        row = thread // 32 * 16 + thread % 32 // 4 + word % 2 * 8
        fragment[thread, word, i] = a[row, (word // 2 * 4 + thread % 4) * per_word + i]
    a_bytes, b_bytes = device.empty(32768, np.uint8), device.empty(32768, np.uint8)
    sums = device.empty((128, columns // 2), number)
    a_bytes[...], b_bytes[...] = of_a[0], of_b[0]
    for fresh, negated, in_registers in [(0, 0, 0), (1, 1, 0), *([] if a_along else [(0, 1, 1), (1, 0, 1)])]:
        sums[...] = before[registers[..., 0], registers[..., 1]]
        operand = (fragment,) if in_registers else (0,)
        kinds = list(KINDS).index(kind), list(KINDS).index(kind)
        words = a_bytes, b_bytes, of_a[1], of_b[1], *operand, sums, columns, *kinds, int(a_along), int(b_along)
        run(device, source(FILE, "multiply", SHARED), 1, 128, *words, fresh, negated)
        wanted = (0 if fresh else before.astype(np.int64)) + (-exact if negated else exact)
        np.testing.assert_array_equal(sums, wanted[registers[..., 0], registers[..., 1]].astype(number))


@pytest.mark.parametrize("add", [0, 1])
@pytest.mark.parametrize("asynchrony", ["late", "early", "random"])
def test_bulk_stores(device, source, run, add, asynchrony):
    """Bytes of shared memory replace floats in memory, or are added to them."""
    device.asynchrony = asynchrony
    there, into = device.empty(64, np.float32), device.empty(64, np.float32)
    there[...], into[...] = np.arange(64), 1000
    run(device, source(FILE, "store_from_shared", SHARED), 1, 16, there, into, add)
    np.testing.assert_array_equal(into, np.arange(64) + (1000 if add else 0))


def test_matrices_to_shared_memory(device, source, run):
    """stmatrix is the inverse of ldmatrix, and movmatrix transposes."""
    matrices = np.random.default_rng(2).integers(0, 2**16, (4, 8, 8)).astype(np.uint32)
    fragments, transposed = device.empty((32, 4), np.uint32), device.empty(32, np.uint32)
    out = device.empty((4, 8, 8), np.uint16)
    for lane, m in np.ndindex(32, 4):
        low, high = matrices[m, lane // 4, lane % 4 * 2 :][:2]
        fragments[lane, m] = low | high << 16
    run(device, source(FILE, "store_matrices", SHARED), 1, 32, fragments, out, transposed)
    np.testing.assert_array_equal(out, matrices)
    for lane in range(32):
        low, high = matrices[0].T[lane // 4, lane % 4 * 2 :][:2]
        assert transposed[lane] == low | high << 16


@pytest.mark.parametrize("cluster", [2, 8])
@pytest.mark.parametrize(("asynchrony", "order"), [("late", "forward"), ("early", "reverse"), ("random", "random")])
def test_clusters(device, source, run, cluster, asynchrony, order):
    """Blocks of a cluster send each other values, which arrive at mbarriers, turn after turn."""
    device.asynchrony, device.order, device.seed = asynchrony, order, 5
    blocks, turns = 3 * cluster, 7
    out = device.empty((blocks, turns, cluster), np.float32)
    run(device, source(FILE, "exchange", f"BARACUDA_CLUSTER={cluster}"), blocks, 64, out, turns)
    block, turn, sender = np.indices(out.shape)
    np.testing.assert_array_equal(out, 1000 * (block // cluster * cluster + sender) + turn)


def test_cluster_that_does_not_divide_the_grid(device, source, run):
    """A launch of part of a cluster is refused, as CUDA refuses it."""
    with pytest.raises(DriverError, match=r"grid \(3, 1, 1\) is no multiple of its cluster of 2 blocks"):
        run(device, source(FILE, "exchange", "BARACUDA_CLUSTER=2"), 3, 64, 0, 1)


TEXT = (KERNELS / FILE).read_text().splitlines()


def at(remark: str) -> str:
    """The place, as findings name it, of the statement with `remark` behind it."""
    (line,) = (number for number, text in enumerate(TEXT, 1) if text.endswith(f"// {remark}"))
    return f"sm90.cu:{line}"


HERE = "byte 0 of dynamic shared memory"
LACKS = f"for phase 0 of the mbarrier at {HERE}, which lacks 1 of 1 arrivals and"
OF_CLUSTERS = {
    0: [
        f"block (0,0,0): deadlock, no thread can run; threads 0-31 exited; threads 32-63 in mbarrier.try_wait at "
        f"sm90.cu:{int(at('sent to whom may have ended').partition(':')[2]) + 1} {LACKS} has 4 bytes too many"
    ],
    1: [
        f"block (0,0,0): deadlock, no thread can run; threads 0-63 in mbarrier.try_wait at {at('other half')} {LACKS} "
        "0 of 0 bytes",
        "block (1,0,0): deadlock, no thread can run; threads 0-63 in barrier.cluster.wait at "
        f"{at('half of the cluster')}",
    ],
    2: [f"block (1,0,0) thread (0,0,0): mapa of rank 2 in a cluster of 2 blocks at {at('no such block')}"],
    3: [
        f"block (0,0,0) thread (0,0,0): mbarrier.try_wait of the mbarrier at {HERE} of block 1 of the cluster; needs "
        f"one of the own block at {at('of another block')}"
    ],
    4: ["block (1,0,0) thread (63,0,0): barrier.cluster.wait of a thread that has not arrived at sm90.cu:3"],
    5: [
        "block (0,0,0): the block ends while st.async of 4 bytes to byte 32 of dynamic shared memory of block 0 of the "
        f"cluster is in flight, issued at {at('nobody waits')}"
    ],
    6: [
        f"block (1,0,0) thread (0,0,0): st.async {HERE} of block 0 of the cluster, which has ended at "
        f"{at('to a block that has ended')}"
    ],
}


@pytest.mark.parametrize("mode", OF_CLUSTERS)
def test_findings_of_clusters(device, source, run, mode):
    """What blocks of a cluster may not do to each other."""
    kernel = source(FILE, "misuse_a_cluster", "BARACUDA_CLUSTER=2", "DYN_SHARED_BYTES=256")
    with pytest.raises(KernelInternal) as caught:
        run(device, kernel, 2, 64, 0, mode)
    assert str(caught.value).splitlines()[1:] == OF_CLUSTERS[mode]


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_a_kernel_that_overlaps_waits(device, source, mode):
    """Check mode names accesses to what the kernel before writes, unless the thread knows of a griddepcontrol.wait."""
    device.check = True
    a, b = device.empty(64, np.int32), device.empty(64, np.int32)
    words = (ctypes.c_uint64 * 3)(a.ctypes.data, b.ctypes.data, mode)
    arrays = [WatchedArray(name, "out", x.ctypes.data, (64,), (1,), 4) for name, x in (("a", a), ("b", b))]

    def launch(symbol: str, overlaps: bool) -> None:
        kernel = device.load(source(FILE, symbol))
        kernel.prepared((1, 1, 1), 64, ctypes.addressof(words), ctypes.sizeof(words), words, overlaps)(0)

    with device.watch(arrays):
        launch("produce", False)
        if mode:
            launch("consume", True)
            return
        said = "read of 'a' byte 0, which the kernel before writes, without a griddepcontrol.wait before it at "
        with pytest.raises(KernelInternal, match=re.escape(said + at("reads"))):
            launch("consume", True)
        launch("consume", False)
