"""Arrays of the host device: where they lie, what surrounds them, when they go."""

from __future__ import annotations

import gc
import platform
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from baracuda.runtime.device import KernelSource
from baracuda.runtime.errors import InvalidProblem, KernelInternal

TOUCH = KernelSource(
    "kernels/touch.cu",
    """
struct Args { char* base; long long offset, write; };
extern "C" __global__ void touch(const Args args) {
  volatile char* byte = args.base + args.offset;
  if (args.write) *byte = 1;
  else (void)*byte;
}
""",
    "touch",
)


@pytest.mark.parametrize(("write", "verb"), [(0, "read"), (1, "write")])
@pytest.mark.parametrize(
    ("align_end", "offset", "where"),
    [(True, 12, "0 bytes past the end"), (True, 20, "8 bytes past the end"), (False, -1, "1 bytes before")],
)
def test_access_outside_an_array_faults(device, run, align_end, offset, where, write, verb):
    """The first byte beyond the fenced edge faults, and the finding says where it lies."""
    array = device.empty(3, np.float32, align_end=align_end)
    kind = verb if platform.machine() == "x86_64" else "access"  # elsewhere the signal does not tell
    said = rf"thread \(0,0,0\): invalid {kind} at address 0x[0-9a-f]+, {where} (of )?an array of 12 bytes"
    with pytest.raises(KernelInternal, match=said):
        run(device, TOUCH, 1, 1, array, offset, write)


@pytest.mark.parametrize("align_end", [True, False])
@pytest.mark.parametrize("nbytes", [0, 1, 2, 16, 100, 256, 4096, 5000, 70000])
def test_alignment(device, nbytes, align_end):
    """An address is a multiple of a page, or of the largest power of two that divides the size."""
    array = device.empty(nbytes, np.uint8, align_end=align_end)
    divisor = min(4096, nbytes & -nbytes or 4096) if align_end else 4096
    assert array.ctypes.data % divisor == 0
    assert array.size == nbytes
    assert (array == 0xFF).all()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.complex128])
def test_contents_are_nan(device, dtype):
    """A fresh array is poisoned with what every floating type reads as NaN."""
    array = device.empty((5, 7), dtype)
    assert array.shape == (5, 7)
    assert array.flags.c_contiguous and array.flags.writeable
    assert np.isnan(array.astype(np.complex128)).all()


@pytest.mark.parametrize(
    ("align_end", "offset", "where"),
    [
        (False, 100, "0 bytes past the end"),
        (False, 103, "3 bytes past the end"),
        (True, -1, "1 bytes before"),
    ],
)
def test_canaries_notice_a_write_inside_the_pages(device, run, align_end, offset, where):
    """A write between an array and the edge of its pages is found afterwards, from any view of the array."""
    array = device.empty(100, np.uint8, align_end=align_end)
    run(device, TOUCH, 1, 1, array, 0, 1)
    device.check_canaries(array)
    run(device, TOUCH, 1, 1, array, offset, 1)
    with pytest.raises(KernelInternal, match=f"1 bytes around an array overwritten, the first {where}"):
        device.check_canaries(array[10:20].reshape(2, 5))


def test_canaries_of_a_foreign_array(device):
    """Only arrays with known surroundings can be checked."""
    with pytest.raises(InvalidProblem, match="only arrays that HostDevice"):
        device.check_canaries(np.zeros(3))


def test_unguarded_array_has_no_protected_pages(device, run):
    """Without guards an overrun is not a fault."""
    array = device.empty(16, np.uint8, guard=False)
    run(device, TOUCH, 1, 1, array, 16, 1)


def mapped(address: int) -> bool:
    for line in Path("/proc/self/maps").read_text().splitlines():
        low, high = (int(word, 16) for word in line.split()[0].split("-"))
        if low <= address < high:
            return True
    return False


def test_memory_goes_with_the_last_view(device):
    """An array's pages stay while a view lives and are unmapped after it."""
    array = device.empty(1 << 20, np.uint8)
    address, view = array.ctypes.data, array[5:]
    del array
    gc.collect()
    assert mapped(address)
    assert view[0] == 0xFF
    del view
    gc.collect()
    assert not mapped(address)


def resident_kib() -> int:
    match = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match
    return int(match[1])


def test_sparse_array_takes_memory_only_where_touched(device, run):
    """20 GiB cost nothing until touched, hold zeros, and can be used at any offset."""
    before = resident_kib()
    array = device.sparse(20 << 30)
    assert array.nbytes == 20 << 30
    for offset in (0, (7 << 30) + 12345, (20 << 30) - 1):
        assert array[offset] == 0
        run(device, TOUCH, 1, 1, array, offset, 1)
        assert array[offset] == 1
    assert resident_kib() - before < 4096


def test_sparse_array_is_fenced(device, run):
    """The byte before a sparse array is not accessible."""
    with pytest.raises(KernelInternal, match="1 bytes before an array of 10 bytes"):
        run(device, TOUCH, 1, 1, device.sparse(10), -1, 0)
