"""What only check mode sees, since it is right in the order that ran: each kind, and a legal twin that is silent."""

from __future__ import annotations

import re

import numpy as np
import pytest
from repository import KERNELS

from baracuda.runtime.errors import KernelInternal
from baracuda.runtime.host import HostDevice

TEXT = (KERNELS / "unordered.cu").read_text().splitlines()
KERNEL = ("unordered.cu", "unordered")


def at(remark: str) -> str:
    """The place, as findings name it, of the statement with `remark` behind it."""
    (line,) = (number for number, text in enumerate(TEXT, 1) if text.endswith(f"// {remark}"))
    return re.escape(f"unordered.cu:{line}")


BARRIER = r"block \(0,0,0\): divergent barrier, thread \d+"
FINDINGS = {
    0: rf"{BARRIER} waits in __syncthreads at {at('waits')} <- {at('one side')} and thread \d+ in __syncthreads at "
    rf"{at('waits')} <- {at('other side')}",
    1: rf"{BARRIER} has exited and thread \d+ waits in __syncthreads at {at('counts')}",
    2: r"race \(volatile read after write in a warp\) on 'cells' byte \d+ with thread \d+ of the block, no barrier in "
    rf"between at {at('reads the sum of a lane')}",
    3: r"warp \d diverges, lane \d+ has exited, lane 0 is in __syncwarp with mask ffffffff at "
    + at("waits for the warp"),
    4: r"__ldg of 'array of 256 bytes' byte \d+, which the same kernel writes; needs an ordinary load at "
    + at("loads what it stored"),
    5: r"write to 'array of 256 bytes' byte \d+, which the same kernel reads by __ldg; needs an ordinary load there "
    + "at "
    + at("stores what it loaded"),
}


@pytest.mark.parametrize("mode", [*FINDINGS, 6])
def test_finding(source, run, mode):
    """A broken statement is named with its place; the kernel is silent without it."""
    device = HostDevice(check=True)
    x, y = device.empty(64, np.int32), device.empty(64, np.int32)
    x[...] = y[...] = 0
    run(device, source(*KERNEL), 1, 64, x, y, mode, 0)
    if mode not in FINDINGS:
        return
    with pytest.raises(KernelInternal) as caught:
        run(device, source(*KERNEL), 1, 64, x, y, mode, 1)
    assert re.search(FINDINGS[mode], str(caught.value)), str(caught.value)
