"""Realistic kernels on the host device: right numbers in every order of threads, and accepted by NVRTC."""

from __future__ import annotations

import pytest
from host import families
from host.jobs import Job, run_in_every_order

from baracuda.runtime.compile.cubin import compile_cubin
from baracuda.runtime.host import HostDevice

JOBS = {
    "transpose": lambda: [families.transpose(*shape) for shape in ((64, 96), (1, 1), (33, 70), (5, 131), (200, 1))],
    "transpose_by_warp": lambda: [families.transpose(*shape, 2, True) for shape in ((64, 96), (1, 1), (37, 250))],
    "widen": lambda: [families.widen(n) for n in (1, 7, 8, 1000, 3 * 128 * 8, 5003)],
    "gather": lambda: [families.gather(*shape) for shape in ((1, 4), (13, 128), (30, 260))],
    "scatter_add": lambda: [families.scatter_add(*shape) for shape in ((1, 1), (50, 33), (203, 64))],
    "normalize": lambda: [families.normalize(*shape) for shape in ((1, 1), (7, 128), (4, 1000), (11, 31))],
    "split_k": lambda: [families.split_k(*shape) for shape in ((16, 16, 64, 4), (33, 20, 50, 3), (5, 40, 7, 2))],
    "column_sums": lambda: [families.column_sums(*shape) for shape in ((1, 1), (40, 128), (23, 300))],
    "scan": lambda: [families.scan(n) for n in (1, 511, 512, 1300, 512 * 40)],
    "attention": lambda: [
        *(families.attention(2, 64, 64, 64), families.attention(1, 70, 45, 40), families.attention(1, 3, 5, 8)),
        *(families.attention(1, 100, 100, 64, True), families.attention(2, 20, 90, 24, True)),
        *(families.attention(1, 90, 20, 16, True), families.attention(1, 200, 8, 64, True)),
    ],
    "convolve": lambda: [
        *(families.convolve(2, 16, 32), families.convolve(1, 1, 4), families.convolve(3, 37, 36)),
        *(families.convolve(1, 50, 64, taps) for taps in (1, 2, 5)),
    ],
    "max_pool": lambda: [
        *(families.max_pool(2, 24, 32), families.max_pool(1, 3, 1), families.max_pool(2, 61, 45)),
        *(families.max_pool(1, 40, 33, 3, 3, 0), families.max_pool(1, 30, 8, 2, 1, 1)),
    ],
}


@pytest.mark.parametrize("kernel", JOBS)
def test_numbers(any_device, kernel):
    """Every shape, with tails of all kinds, gives the numbers of float64 in every order of threads."""
    for job in JOBS[kernel]():
        run_in_every_order(any_device, job)


@pytest.mark.parametrize("kernel", JOBS)
def test_check_mode_is_silent(any_device, kernel):
    """Check mode has nothing to say about a correct kernel, and computes the same."""
    device = HostDevice(any_device.compiler, check=True)
    for job in JOBS[kernel]():
        run_in_every_order(device, job)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("kernel", JOBS)
def test_assembles(kernel, arch):
    job: Job = JOBS[kernel]()[0]
    compile_cubin(job.source(), arch)
