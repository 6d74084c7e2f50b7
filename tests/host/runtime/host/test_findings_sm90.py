"""What a kernel may not do with instructions of sm_90, and how it is told."""

from __future__ import annotations

import re

import numpy as np
import pytest
from host.tensor_maps import F16, encode
from repository import KERNELS

from baracuda.runtime.errors import KernelInternal

TEXT = (KERNELS / "findings_sm90.cu").read_text().splitlines()
KERNEL = ("findings_sm90.cu", "misbehave", "DYN_SHARED_BYTES=32768")


def at(remark: str) -> str:
    """The place, as findings name it, of the statement with `remark` behind it."""
    (line,) = (number for number, text in enumerate(TEXT, 1) if text.endswith(f"// {remark}"))
    return f"findings_sm90.cu:{line}"


FIRST = "block (0,0,0) thread (0,0,0): "
DEADLOCK = "block (0,0,0): deadlock, no thread can run; threads "
BARRIER = "the mbarrier at byte 0 of dynamic shared memory"
FINDINGS = {
    0: f"{DEADLOCK}0-383 in mbarrier.try_wait at {at('nobody arrives')} for phase 0 of {BARRIER}, "
    "which lacks 1 of 1 arrivals and 0 of 0 bytes",
    1: f"{DEADLOCK}0-383 in mbarrier.try_wait at {at('no bytes come')} for phase 0 of {BARRIER}, "
    "which lacks 0 of 1 arrivals and 128 of 128 bytes",
    2: f"{FIRST}mbarrier.init of {BARRIER}, which is in use; needs mbarrier.inval first at {at('twice')}",
    3: f"{FIRST}mbarrier.arrive of byte 16 of dynamic shared memory, where no mbarrier was initialised at "
    f"{at('never initialised')}",
    4: f"{FIRST}mbarrier.arrive of byte 0 of dynamic shared memory, an mbarrier that was invalidated at "
    f"{at('inval')} at {at('after inval')}",
    5: f"{FIRST}mbarrier.arrive of {BARRIER}, which a store has overwritten at {at('overwritten')}",
    6: f"{FIRST}cp.async.bulk.tensor with the mbarrier at byte 16 of dynamic shared memory, which it does not see; "
    f"needs fence.mbarrier_init or fence.proxy.async after mbarrier.init at {at('unseen')}",
    7: f"{FIRST}cp.async.bulk.tensor to byte 1088 of dynamic shared memory at 64 bytes beyond a multiple of 128 at "
    f"{at('misaligned box')}",
    8: f"{FIRST}cp.async.bulk of 24 bytes, which is not a multiple of 16 at {at('no multiple of 16')}",
    9: "block (0,0,0): the block ends while cp.async.bulk.tensor of 1024 bytes to byte 1024 of dynamic shared memory "
    f"is in flight, issued at {at('never waited for')}",
    10: f"{FIRST}the thread exits while cp.async.bulk to global memory of 128 bytes from byte 1024 of dynamic shared "
    f"memory is in flight, issued at {at('source still read')}",
    11: f"block (0,0,0) thread (383,0,0): wgmma.mma_async without a wgmma.fence since its sums were last accessible at "
    f"{at('product')}",
    12: "block (0,0,0) thread (352,0,0): the thread exits while wgmma.mma_async is in flight, issued at "
    f"{at('product')}",
    13: "block (0,0,0) thread (383,0,0): wgmma.mma_async with A at byte 1152 of dynamic shared memory, 128 bytes "
    f"beyond a multiple of 1024, as its swizzle of 128 bytes needs at {at('misaligned matrix')}",
    14: "block (0,0,0) thread (351,0,0): wgmma.mma_async of 16 bytes at byte 74752 of dynamic shared memory, which has "
    f"32768 bytes at {at('beyond')}",
    15: f"{DEADLOCK}0-127 exited; threads 128-383 in setmaxnreg.inc at {at('nobody gives')} where 0 registers of the "
    "block are free and a thread of the warp has 168",
    16: "block (0,0,0) thread (383,0,0): setmaxnreg.dec to 252 registers; needs a multiple of 8 from 24 to 256 at "
    f"{at('no multiple of 8')}",
    17: f"block (0,0,0): warp 0 diverges, lane 31 is in __syncwarp with mask ffffffff at "
    f"findings_sm90.cu:{int(at('half a warp').partition(':')[2]) + 1}, lane 0 is in wgmma.mma_async with mask ffffffff "
    f"at {at('product')}",
    19: f"{FIRST}cp.async.bulk.tensor to 1024 bytes at byte 100992 of dynamic shared memory, which has 32768 bytes at "
    f"{at('past the end')}",
    92: f"{FIRST}cp.async.bulk.tensor of a box that starts at byte 8 of its rows; needs a multiple of 16 at "
    f"{at('between packs')}",
    91: f"{FIRST}mbarrier.inval of {BARRIER}, where thread 32 waits at {at('before all have seen the end')}",
    90: f"{FIRST}cp.reduce.async.bulk where cp.async.bulk to global memory of 128 bytes is in flight, issued at "
    f"{at('first of two')}; needs cp.async.bulk.wait_group for it at {at('second of two')}",
}


@pytest.mark.parametrize("mode", FINDINGS)
def test_finding(device, source, run, mode):
    """Each misdeed is reported in one exact line, and the device works afterwards."""
    tensor = device.empty((1, 1, 8, 64), np.float16)
    tensor[...] = 0
    code, words = encode(device, F16, tensor, (1, 1, 8, 64), swizzle=3)
    assert code == 0
    with pytest.raises(KernelInternal) as caught:
        run(device, source(*KERNEL), 1, 384, mode, words, tensor)
    assert str(caught.value).splitlines() == ["kernel 'misbehave':", FINDINGS[mode]]
    run(device, source(*KERNEL), 1, 384, 99, words, tensor)


def test_a_phase_that_a_thread_misses(device, source, run):
    """Two phases end while a thread waits for the first."""
    device.order = "reverse"
    tensor = device.empty((1, 1, 8, 64), np.float16)
    with pytest.raises(KernelInternal) as caught:
        run(device, source(*KERNEL), 1, 384, 18, 0, tensor)
    said = f"phase 1 of {BARRIER} ended before this thread saw the end of phase 0 at {at('lapped')}"
    assert str(caught.value).splitlines()[1] == "block (0,0,0) thread (32,0,0): " + said


WHOM = r"block \(0,0,0\) thread \(\d+,0,0\): "
CHECKED = {
    20: r"read of 'dynamic shared memory' byte \d+, which thread \d+ stored, by the copy engine or a matrix unit; "
    r"needs fence.proxy.async between store and barrier at .*" + at("product"),
    21: r"read of 'dynamic shared memory' byte \d+ while a cp.async of thread 0 may be writing there at .*"
    + at("product"),
    22: "read of a sum that wgmma.mma_async in flight adds to; needs wgmma.wait_group at " + at("sum in flight"),
    23: "wgmma.mma_async with sums that the thread has written since its last wgmma.fence at .*" + at("product"),
    24: "an operand of wgmma.mma_async in flight was overwritten, issued at "
    + at("product")
    + " at .*"
    + at("overwritten operand"),
    25: r"read of 'dynamic shared memory' byte \d+, which thread 0 stored, by the copy engine or a matrix unit; needs "
    r"fence.proxy.async between store and barrier at .*" + at("no fence"),
    27: "wgmma.mma_async with B at byte 9216 of dynamic shared memory and a swizzle of 32 bytes, which "
    r"cp.async.bulk.tensor stored with one of 128 at .*" + at("other swizzle"),
    28: r"deadlock, .* which lacks 1 of 2 arrivals \(in the phase before, thread 32 arrived\) and 0 of 0 bytes",
    26: r"read of 'dynamic shared memory' byte \d+ while a cp.async of thread 0 may be writing there at "
    + at("not waited for"),
}


@pytest.mark.parametrize("mode", CHECKED)
def test_finding_of_check_mode(device, source, run, mode):
    """What numbers need not show: stores that the other proxy does not see, and work in flight that is disturbed."""
    tensor = device.empty((1, 1, 8, 64), np.float16)
    tensor[...] = 0
    code, words = encode(device, F16, tensor, (1, 1, 8, 64), swizzle=3)
    memory = device.empty(384, np.float32)
    map_of_device = device.empty(128 + 64, np.uint8)
    first = -map_of_device.ctypes.data % 64
    map_of_device[...] = 0
    memory[...] = 0
    map_of_device[first : first + 128] = words
    device.check = True
    with pytest.raises(KernelInternal) as caught:
        run(device, source(*KERNEL), 1, 384, mode, map_of_device[first : first + 128], memory)
    assert code == 0
    whom = "" if CHECKED[mode].startswith("deadlock") else WHOM
    assert any(re.search(whom + CHECKED[mode], line) for line in str(caught.value).splitlines()), str(caught.value)
