"""Kernels on disk: compiled once for all processes, and compiled again when the file is damaged."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from baracuda.runtime import host
from baracuda.runtime.cache.folder import entries
from baracuda.runtime.cache.lock import key_lock
from baracuda.runtime.device import KernelSource
from baracuda.runtime.devices import named as devices
from baracuda.runtime.errors import BaracudaError, CompileError
from baracuda.runtime.host import HostDevice
from baracuda.runtime.host.build import Builder

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
            if built.is_dir():  # other processes may be writing into it
                unfinished = shutil.ignore_patterns("*.baracuda-tmp")
                shutil.copytree(built, tmp_path / "host" / built.name, ignore=unfinished)
            else:
                shutil.copy(built, tmp_path / "host" / built.name)
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
from baracuda.runtime.cache.lock import key_lock
with key_lock(Path(os.environ["LOCK"])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_killed_holder_of_a_lock_blocks_nobody(private_cache):
    """A process killed while it compiles leaves neither a lock nor a half-written kernel behind."""
    HostDevice().load(answer(108))
    library = only_kernel(private_cache)
    lock = private_cache / "locks" / library.name
    lock.parent.mkdir(exist_ok=True)
    holder = start(0, program=HOLDER, LOCK=str(lock))
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    library.unlink()
    (left := private_cache / "tmp" / "0123456789abcdef").mkdir(parents=True, exist_ok=True)
    (left / library.name).write_bytes(b"half a library")
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert lock.exists()
    assert finish(start(108)) == [1, 108]
    assert not lock.exists() and not left.exists()
    with key_lock(lock):
        pass


def test_every_built_file_is_an_entry(private_cache):
    """What the host device builds has names that the cache lists and may remove."""
    HostDevice().load(answer(100))
    (private_cache.parent / "notes.txt").touch()
    built = {path for path in private_cache.rglob("*") if path.is_file()}
    assert {one.path for one in entries(private_cache.parent)} == built and len(built) >= 2


def test_unwritable_cache_is_replaced(tmp_path, monkeypatch, run):
    """Where no cache folder can be made, kernels are compiled into a temporary one."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path / "file" / "cache"))
    device = HostDevice()
    out = device.empty(1, np.int64)
    run(device, answer(109), 1, 1, out)
    assert out[0] == 109


def test_intact_library_under_another_name_is_compiled_again(private_cache):
    """The digest of a library holds for its own name: another kernel's is not run."""
    HostDevice().load(answer(110))
    ours = only_kernel(private_cache)
    HostDevice().load(answer(111))
    (other,) = (path for path in private_cache.glob("*.so") if path != ours and not path.name.startswith("runtime-"))
    content = ours.read_bytes()
    other.unlink()  # this process has the old file mapped
    other.write_bytes(content)
    assert finish(start(111)) == [1, 111]


def test_library_without_an_entry_point_is_compiled_again(private_cache, monkeypatch, run):
    """What is whole and no kernel is made once more; if that is none either, our own error says so."""

    def build_none(self, source, flags, last, target, gpu_text):
        assert self.toolchain.run(["-shared", "-fPIC", "-xc++", "-", "-o", str(target)]) is None

    with monkeypatch.context() as broken:
        broken.setattr(Builder, "_build_kernel", build_none)
        with pytest.raises(CompileError, match=r"cannot load .*baracuda_host_kernel"):
            HostDevice().load(answer(112))
    device = HostDevice()
    out = device.empty(1, np.int64)
    run(device, answer(112), 1, 1, out)
    assert (device.compilations, out[0]) == (1, 112)


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSPC, errno.EROFS])
def test_disk_without_locks_or_room_is_done_without(private_cache, monkeypatch, run, code):
    """Where neither locks nor files can be made in the cache, a kernel runs all the same."""
    refused = OSError(code, os.strerror(code))
    real = os.open

    def flock(*_: object) -> None:
        raise refused

    def opened(path, flags, *rest, **more):
        if flags & os.O_CREAT and str(path).startswith(str(private_cache)) and code != errno.ENOLCK:
            raise refused
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(os, "open", opened)
    device = HostDevice()
    out = device.empty(1, np.int64)
    run(device, answer(113), 1, 1, out)
    assert out[0] == 113


def test_full_disk_is_done_without(private_cache, tmp_path, monkeypatch, run):
    """A compiler that has no room in the cache works in a temporary folder instead."""
    small = tmp_path / "small"
    small.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k,mode=700", "none", small]).returncode:
        pytest.skip("may not mount")
    try:
        monkeypatch.setenv("BARACUDA_CACHE_DIR", str(small))
        device = HostDevice()
        out = device.empty(1, np.int64)
        run(device, answer(114), 1, 1, out)
        assert out[0] == 114
    finally:
        subprocess.run(["umount", "--lazy", small], check=True)  # libraries there are loaded


@pytest.mark.parametrize("level", ["", "host"])
def test_folder_that_others_may_write_is_refused(private_cache, level):
    """A library there, with its digest right, is not loaded."""
    HostDevice().load(answer(115))
    folder = private_cache.parent / level
    folder.chmod(0o777)
    with pytest.raises(BaracudaError, match=f"{folder} may be written by (all|others)"):
        HostDevice().load(answer(115))


@pytest.mark.parametrize("command", ['"', "'g++", "no-such-compiler --flag", "false", " "])
def test_compiler_that_is_none_is_said_in_a_line(monkeypatch, command):
    monkeypatch.setenv("BARACUDA_HOST_CXX", command)
    with pytest.raises(CompileError) as caught:
        HostDevice()
    assert len(str(caught.value).splitlines()) == 1 and "BARACUDA_HOST_CXX" in str(caught.value)


def test_threads_get_one_device_and_count_together(private_cache, monkeypatch):
    """However many threads ask for the host device at once, there is one, and it counts every compilation."""
    monkeypatch.setattr(devices, "_devices", {})
    monkeypatch.setattr(host, "HostDevice", lambda: time.sleep(0.05) or HostDevice())
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: devices.get_device("host"), range(8)))
    assert len(set(map(id, found))) == 1


FORKED = """
import os, sys, time
from pathlib import Path
from baracuda.runtime.cache.lock import key_lock
ready, done = os.pipe()
with key_lock(Path(os.environ["LOCK"])):
    if os.fork() == 0:
        os.write(done, b"1")  # what a fork runs in the child has run
        os.close(1)
        time.sleep(30)
        os._exit(0)
    os.read(ready, 1)
    print(os.getpid(), flush=True)
    sys.stdin.read()
"""


def test_children_of_a_killed_holder_hold_no_lock(tmp_path):
    """A child that was forked while a lock was held does not keep it when its parent is killed."""
    holder = start(0, program=FORKED, LOCK=str(tmp_path / "lock"))
    assert holder.stdin is not None and holder.stdout is not None
    with holder.stdin, holder.stdout:
        assert holder.stdout.readline()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with key_lock(tmp_path / "lock", wait=False):
            pass
