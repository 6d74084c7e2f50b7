"""Invariant: a child of a process that compiles can compile; no lock is held in it for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from baracuda.runtime.cache.lock import key_lock
from baracuda.runtime.compile.forks import unforked

# A thread imports the compiler, which takes a while; the child that is forked meanwhile compiles, and says so.
_WHILE_IMPORTING = """
import os, sys, threading, time
from pathlib import Path
from baracuda.runtime.compile import cubin
from baracuda.runtime.device import KernelSource

real = cubin._nvrtc_size
def slow():
    started.set()
    time.sleep(0.3)
    return real()

cubin._nvrtc_size, started = slow, threading.Event()
text = 'extern "C" __global__ void one(float* x) { x[0] = 1; }'
compile = lambda: cubin.compile_cubin(KernelSource("a.cu", text, "one"), "sm_90", folder=Path(sys.argv[1]))
thread = threading.Thread(target=compile)
thread.start()
started.wait()
if os.fork() == 0:
    compile()
    print("compiled", flush=True)
    os._exit(0)
thread.join()
"""


def test_forks_wait_for_the_compiler() -> None:
    """A fork happens between compilations, and those that come meanwhile wait for it."""
    began, ended = threading.Event(), []

    def work() -> None:
        with unforked():
            began.set()
            time.sleep(0.1)
            ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    began.wait()
    child = os.fork()
    if child == 0:
        with unforked():
            os._exit(0 if ended else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    thread.join()
    with unforked():
        pass


def test_child_forked_while_the_compiler_is_imported_compiles(tmp_path: Path) -> None:
    around = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _WHILE_IMPORTING, str(tmp_path / "cubin")]
    done = subprocess.run(command, env=around, capture_output=True, text=True, timeout=60)
    assert done.stdout == "compiled\n"


def test_child_forked_while_threads_wait_for_a_lock_keeps_none_of_them(tmp_path: Path) -> None:
    """Neither the holder nor those who wait for it are held up by a child that never looks at the lock."""
    path, held, free = tmp_path / "lock", threading.Event(), threading.Event()
    ended: list[int] = []

    def work(index: int) -> None:
        with key_lock(path):
            held.set()
            free.wait(20)
        ended.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    assert held.wait(20)
    time.sleep(0.2)  # the others come to wait
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    free.set()
    for thread in threads:
        thread.join(5)
    done = len(ended)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert done == 3
