"""The host device among threads, forked children and other users of the process."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from baracuda.runtime.device import KernelSource
from baracuda.runtime.errors import KernelInternal

COUNT = KernelSource(
    "kernels/count.cu",
    """
struct Args { unsigned* out; long long* stop; };
extern "C" __global__ void count(const Args args) { atomicAdd(args.out, 1u); }
extern "C" __global__ void wait(const Args args) {
  while (baracuda_host::load_acquire(args.stop) == 0) __nanosleep(100);
  atomicAdd(args.out, 1u);
}
""",
    "count",
)
WAIT = KernelSource(COUNT.path, COUNT.text, "wait")


def test_forked_child_launches(device, run):
    """A child forked after launches gets workers of its own, and the parent keeps its."""
    out = device.empty(1, np.uint32)
    out[0] = 0
    device.workers = 2
    run(device, COUNT, 64, 32, out, 0)
    child = os.fork()
    if child == 0:
        run(device, COUNT, 64, 32, out, 0)
        os._exit(0 if out[0] == 2 * 64 * 32 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    run(device, COUNT, 64, 32, out, 0)
    assert out[0] == 2 * 64 * 32


def test_other_threads_run_during_a_launch(device, run):
    """A launch releases the interpreter: another thread can end what the kernel waits for."""
    out, stop = device.empty(1, np.uint32), device.empty(1, np.int64)
    out[0] = stop[0] = 0
    device.timeout = 20
    device.load(WAIT)
    launched = threading.Event()

    def release() -> None:
        launched.wait()
        stop[0] = 1

    thread = threading.Thread(target=release)
    thread.start()
    launched.set()
    run(device, WAIT, 2, 32, out, stop)
    thread.join()
    assert out[0] == 64


def test_launches_from_many_threads_do_not_mix(device, run):
    """Launches from several threads are all complete, and a fault in one is raised in that one."""
    bad = KernelSource(
        "kernels/bad.cu",
        'struct Args { unsigned* out; long long zero; };\nextern "C" __global__ void bad(const Args args) '
        "{ *args.out = 7u / static_cast<unsigned>(args.zero); }",
        "bad",
    )
    for source in (bad, COUNT):
        device.load(source)
    failures: list[int] = []

    def work(index: int) -> None:
        out = device.empty(1, np.uint32)
        out[0] = 0
        for _ in range(50):
            run(device, COUNT, 5, 64, out, 0)
            if index == 0:
                with pytest.raises(KernelInternal, match="division by zero"):
                    run(device, bad, 5, 64, out, 0)
        if index and out[0] != 50 * 5 * 64:
            failures.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_faults_outside_kernels_are_not_ours():
    """A segmentation fault of the process itself still kills it after launches."""
    program = """
import ctypes, numpy as np
from baracuda.runtime.device import KernelSource
from baracuda.runtime.host import HostDevice
source = KernelSource("k.cu", 'struct A { long long n; }; extern "C" __global__ void k(const A a) {}', "k")
args = (ctypes.c_uint64 * 1)(0)
HostDevice().load(source).launch((4, 1, 1), 64, ctypes.addressof(args), 8, 0)
ctypes.string_at(0)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", program], env=environment, timeout=60).returncode == -11


def test_ucontext_fallback(source, tmp_path):
    """Without hand-written switches, as on an unknown processor, barriers and early exits still work."""
    compiler = tmp_path / "compiler"  # optimising the runtime takes longer than it runs here
    compiler.write_text('#!/bin/sh\nexec c++ "$@" -DBARACUDA_HOST_UCONTEXT -O0\n')
    compiler.chmod(0o700)
    program = """
import ctypes, sys, numpy as np
from baracuda.runtime.device import KernelSource
from baracuda.runtime.host import HostDevice
device = HostDevice()
x, y = device.empty((7, 100), np.float32), device.empty(7, np.float32)
x[...] = 1
args = (ctypes.c_uint64 * 3)(x.ctypes.data, y.ctypes.data, 100)
kernel = device.load(KernelSource("block_sum.cu", sys.argv[1], "block_sum", ("SUMMING_THREAD=0",)))
for device.order in ("forward", "reverse", "random"):
    kernel.launch((7, 1, 1), 128, ctypes.addressof(args), 24, 0)
    assert (y == 100).all(), y
"""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "BARACUDA_HOST_CXX": str(compiler),
    }
    text = source("block_sum.cu", "block_sum").text
    subprocess.run([sys.executable, "-c", program, text], env=environment, timeout=60, check=True)


def test_small_launch_is_cheap(device):
    """The host's share of a launch stays far below what a fresh thread or process would cost."""
    out = device.empty(1, np.uint32)
    args = (ctypes.c_uint64 * 2)(out.ctypes.data, 0)
    kernel, address = device.load(COUNT), ctypes.addressof(args)
    best = float("inf")
    for _ in range(20):
        start = time.thread_time()
        for _ in range(50):
            kernel.launch((1, 1, 1), 32, address, 16, 0)
        best = min(best, (time.thread_time() - start) / 50)
    assert best < 100e-6
