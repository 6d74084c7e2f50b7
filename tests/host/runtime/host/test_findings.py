"""What a kernel may not do, and how it is told."""

from __future__ import annotations

import re

import numpy as np
import pytest
from repository import KERNELS

from baracuda.runtime.errors import DriverError, InvalidProblem, KernelInternal

TEXT = (KERNELS / "findings.cu").read_text().splitlines()


def at(remark: str) -> str:
    """The place, as findings name it, of the statement with `remark` behind it."""
    (line,) = (number for number, text in enumerate(TEXT, 1) if text.endswith(f"// {remark}"))
    return f"findings.cu:{line}"


FINDINGS = {
    0: "block (0,0,0): divergent barrier, thread 0 waits in __syncthreads at "
    f"{at('first barrier')} and thread 32 in __syncthreads at {at('second barrier')}",
    1: "block (0,0,0): deadlock, no thread can run; threads 0-4,6-63 in __syncthreads at "
    f"{at('all but thread 5')}; threads 5 in __syncwarp at {at('thread 5 alone')}",
    2: "block (0,0,0): warp 0 diverges, lane 31 is in __shfl_sync with mask ffffffff at "
    f"{at('half a shuffle')}, lane 0 is in __syncwarp with mask ffffffff at {at('half a syncwarp')}",
    3: "block (0,0,0) thread (16,0,0): calling lane is not in its mask: lane 16 is in __ballot_sync with "
    f"mask 0000ffff at {at('not in mask')}",
    4: "block (0,0,0) thread (15,0,0): lane 0 reads inactive lane 20 in __shfl_sync at "
    + at("reads lane 20"),
    5: "block (0,0,0) thread (0,0,0): integer division by zero or overflow",
    8: "block (0,0,0) thread (0,0,0): stack overflow, local arrays over 64 KiB",
    9: "block (0,0,0) thread (0,0,0): __trap() at " + at("trap"),
    10: "block (0,0,0): deadlock, no thread can run; threads 0-31 in named barrier 3 at "
    f"{at('half of barrier 3')}; threads 32-63 exited",
    12: "block (0,0,0) thread (0,0,0): stack overflow, local arrays over 64 KiB",
    13: "block (0,0,0) thread (0,0,0): cp.async address is not aligned to its size at "
    + at("misaligned copy"),
    14: "block (0,0,0) thread (0,0,0): misaligned access to a pack: needs a multiple of 16, is 4 beyond one at "
    + at("misaligned pack"),
}
KERNEL = ("findings.cu", "misbehave", "DYN_SHARED_BYTES=256")


@pytest.mark.parametrize("mode", FINDINGS)
def test_finding(device, source, run, mode):
    """Each misdeed is reported in one exact line, and the device works afterwards."""
    out = device.empty(64, np.int32)
    with pytest.raises(KernelInternal) as caught:
        run(device, source(*KERNEL), 1, 64, mode, out, 0)
    assert str(caught.value).splitlines() == ["kernel 'misbehave':", FINDINGS[mode]]
    run(device, source(*KERNEL), 1, 64, 99, out, 0)


@pytest.mark.parametrize("mode", [6, 7])
@pytest.mark.parametrize("workers", [1, 2])
def test_endless_kernel_is_stopped(device, source, run, mode, workers):
    """A launch ends at its timeout, whether its threads reach barriers or not, on every OS thread it uses."""
    out = device.empty(64, np.int32)
    device.timeout, device.workers = 0.2, workers
    with pytest.raises(KernelInternal, match=r"launch timeout: not finished after 0\.2 seconds") as caught:
        run(device, source(*KERNEL), 4, 64, mode, out, 0)
    stopped = re.findall(r"thread \(\d+,0,0\): stopped by the launch timeout", str(caught.value))
    assert len(stopped) == (workers if mode == 6 else 0)
    run(device, source(*KERNEL), 4, 64, 99, out, 0)


def test_access_past_dynamic_shared_memory(device, source, run):
    """Dynamic shared memory ends at a no-access page, and the finding says how large it was declared."""
    with pytest.raises(
        KernelInternal, match=r"invalid .* past the end of dynamic shared .*DYN_SHARED_BYTES is 256"
    ):
        run(device, source(*KERNEL), 1, 1, 11, 0, 0)


def test_faults_of_many_workers_are_all_survived(device, source, run):
    """A launch in which every block faults is reported once per worker at most, again and again."""
    device.workers = 2
    for _ in range(20):
        with pytest.raises(KernelInternal) as caught:
            run(device, source(*KERNEL), 50, 64, 5, 0, 0)
        lines = str(caught.value).splitlines()[1:]
        assert 1 <= len(lines) <= 2
        assert all(line.endswith("integer division by zero or overflow") for line in lines)


@pytest.mark.parametrize(
    ("grid", "block", "said"),
    [
        (0, 32, "grid (0, 1, 1) is not within"),
        (1, 0, "a block of 0 threads"),
        (1, 1025, "a block of 1025 threads"),
    ],
)
def test_launch_that_cuda_refuses(device, source, run, grid, block, said):
    """Extents out of CUDA's range raise DriverError before anything runs."""
    with pytest.raises(DriverError, match=re.escape(said)):
        run(device, source(*KERNEL), grid, block, 9, 0, 0)


def test_argument_struct_of_the_wrong_size(device, source, run):
    """A parameter struct of another size than the kernel's is refused, not reinterpreted."""
    with pytest.raises(DriverError, match="takes 24 argument bytes, got 16"):
        run(device, source(*KERNEL), 1, 1, 0, 0)


def test_unknown_order(device, source, run):
    """A misspelt order is an error that lists the known ones."""
    device.order = "backward"
    with pytest.raises(InvalidProblem, match="'backward'; known are forward, reverse, random"):
        run(device, source(*KERNEL), 1, 1, 99, 0, 0)
