"""Kernels on disk: compiled once for all processes, and compiled again when the file is damaged."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from baracuda.runtime.device import KernelSource
from baracuda.runtime.host import HostDevice
from baracuda.runtime.key_lock import key_lock

TEXT = """
struct Args { long long* out; };
extern "C" __global__ void answer(const Args args) { *args.out = ANSWER; }
"""
# Prints "<kernels compiled> <what the kernel computed>".
PROGRAM = f"""
import ctypes, sys, numpy as np
from baracuda.runtime.device import KernelSource
from baracuda.runtime.host import HostDevice
device, out = HostDevice(), np.zeros(1, np.int64)
kernel = device.load(KernelSource("kernels/answer.cu", {TEXT!r}, "answer", ("ANSWER=" + sys.argv[1],)))
args = (ctypes.c_uint64 * 1)(out.ctypes.data)
kernel.launch((1, 1, 1), 1, ctypes.addressof(args), 8, 0)
print(device.compilations, out[0])
"""


def answer(value: int) -> KernelSource:
    return KernelSource("kernels/answer.cu", TEXT, "answer", (f"ANSWER={value}",))


def start(value: int, *, program: str = PROGRAM, **environment: str) -> subprocess.Popen[str]:
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", program, str(value)],
        env={**os.environ, **paths, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> list[int]:
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return [int(word) for word in output.split()]


@pytest.fixture
def private_cache(device, shared_cache, tmp_path, monkeypatch) -> Path:
    """A cache folder of one test's own, with the runtime library and the precompiled vocabulary in it."""
    device.load(answer(100))
    (tmp_path / "host").mkdir()
    for pattern in ("runtime-*.so", "vocabulary-*"):
        for built in (shared_cache / "host").glob(pattern):
            (shutil.copytree if built.is_dir() else shutil.copy)(built, tmp_path / "host" / built.name)
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path))
    return tmp_path / "host"


def only_kernel(folder: Path) -> Path:
    (library,) = (path for path in folder.glob("*.so") if not path.name.startswith("runtime-"))
    return library


def test_second_load_compiles_nothing(device, run):
    """A kernel is compiled once: not again by the device, by another device, nor by another process."""
    out = device.empty(1, np.int64)
    assert not device.is_loaded(answer(101))
    run(device, answer(101), 1, 1, out)
    assert device.is_loaded(answer(101))
    assert device.load(answer(101)) is device.load(answer(101))
    other = HostDevice(device.compiler)
    other.load(answer(101))
    assert (device.compilations, other.compilations) == (1, 0)
    assert finish(start(101, BARACUDA_HOST_CXX=device.compiler)) == [0, 101]


def test_eight_processes_compile_once(device):
    """Processes that need one kernel at the same time compile it once among them, and all get it."""
    processes = [start(102, BARACUDA_HOST_CXX=device.compiler) for _ in range(8)]
    results = [finish(process) for process in processes]
    assert sum(compiled for compiled, _ in results) == 1
    assert [value for _, value in results] == [102] * 8


@pytest.mark.parametrize("damage", [b"", b"\x7fELF", b"cut", b"flip"])
def test_damaged_library_is_compiled_again(private_cache, damage):
    """An empty, truncated or altered file in the cache costs a compilation and nothing else."""
    HostDevice().load(answer(103))
    library = only_kernel(private_cache)
    content = library.read_bytes()
    cut, flipped = content[: len(content) // 2], content[:5000] + bytes([content[5000] ^ 1]) + content[5001:]
    library.unlink()  # this process has the old file mapped
    library.write_bytes({b"cut": cut, b"flip": flipped}.get(damage, damage))
    assert finish(start(103)) == [1, 103]
    assert finish(start(103)) == [0, 103]


def test_damaged_precompiled_header_is_survived(private_cache):
    """Whatever lies where the precompiled vocabulary should, a kernel compiles."""
    HostDevice().load(answer(104))
    for header in private_cache.glob("vocabulary-*/*.gch"):
        header.write_bytes(b"not a header" * 100)
    assert finish(start(105)) == [1, 105]


def test_changed_inputs_are_new_kernels(device, run):
    """Text, defines and contraction are part of a kernel's identity."""
    out, before = device.empty(1, np.int64), device.compilations
    other_text = replace(answer(106), text=TEXT.replace("= ANSWER", "= 1 + ANSWER"))
    fused = replace(answer(106), contraction=True)
    values = []
    for source in (answer(106), answer(107), other_text, fused):
        run(device, source, 1, 1, out)
        values.append(int(out[0]))
    assert values == [106, 107, 107, 106]
    assert device.compilations == before + 4


HOLDER = """
import os, sys
from pathlib import Path
from baracuda.runtime.key_lock import key_lock
with key_lock(Path(os.environ["LOCK"])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_killed_holder_of_a_lock_blocks_nobody(private_cache):
    """A process killed while it compiles leaves neither a lock nor a half-written kernel behind."""
    HostDevice().load(answer(108))
    library = only_kernel(private_cache)
    lock = library.with_name(library.name + ".lock")
    holder = start(0, program=HOLDER, LOCK=str(lock))
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    library.unlink()
    library.with_name(library.name + ".tmp").write_bytes(b"half a library")
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert lock.exists()
    assert finish(start(108)) == [1, 108]
    with key_lock(lock):
        pass


def test_unwritable_cache_is_replaced(tmp_path, monkeypatch, run):
    """Where no cache folder can be made, kernels are compiled into a temporary one."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path / "file" / "cache"))
    device = HostDevice()
    out = device.empty(1, np.int64)
    run(device, answer(109), 1, 1, out)
    assert out[0] == 109
