"""Compiling a kernel: the flags that reach the compiler, what a cache key covers, and who compiles it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from baracuda.runtime.cache.entries import EntryStore
from baracuda.runtime.cache.lock import key_lock
from baracuda.runtime.cache.root import cache_root
from baracuda.runtime.compile import cubin as cubin_module
from baracuda.runtime.compile.cubin import Assembly, compile_cubin, compile_many, cubin_key, program_options
from baracuda.runtime.compile.kernel_key import kernel_key
from baracuda.runtime.device import Cubin, KernelSource
from baracuda.runtime.errors import CompileError

AXPY = """struct Args { float* x; float a; };
extern "C" __global__ void axpy(const __grid_constant__ Args args) {
    float x = args.x[threadIdx.x];
    args.x[threadIdx.x] = args.a * x + x;
}
"""
SOURCE = KernelSource("map/axpy.cu", AXPY, "axpy")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cubin"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Symbols that went through the compiler, in order."""
    symbols: list[str] = []
    real = cubin_module.assemble

    def assemble(source: KernelSource, arch: str, **options: Path) -> Assembly:
        symbols.append(source.symbol)
        return real(source, arch, **options)

    monkeypatch.setattr(cubin_module, "assemble", assemble)
    return symbols


def entry(folder: Path) -> Path:
    """The one file that the cache holds."""
    (file,) = (path for path in (folder / "entries").rglob("*") if path.is_file())
    return file


def ptx(*, contraction: bool = False, flush_subnormals: bool = False) -> str:
    """What NVRTC makes of AXPY with our options; not through cuda.core, which asks the driver first."""
    from cuda.bindings import nvrtc

    source = KernelSource("a.cu", AXPY, "axpy", contraction=contraction, flush_subnormals=flush_subnormals)
    options = program_options(source, "sm_90").as_bytes("nvrtc", "ptx")
    program = nvrtc.nvrtcCreateProgram(AXPY.encode(), b"axpy.cu", 0, None, None)[1]
    assert nvrtc.nvrtcCompileProgram(program, len(options), options)[0] == nvrtc.nvrtcResult.NVRTC_SUCCESS
    text = bytearray(nvrtc.nvrtcGetPTXSize(program)[1])
    nvrtc.nvrtcGetPTX(program, text)
    nvrtc.nvrtcDestroyProgram(program)
    return text.decode()


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90", "sm_90a"])
def test_image_is_an_elf_file_for_the_arch_asked_for(folder: Path, arch: str) -> None:
    """A cubin is machine code of exactly its architecture, whose number stands in the ELF flags."""
    image = compile_cubin(SOURCE, arch, folder=folder).image
    assert image[:4] == b"\x7fELF"
    assert int(re.findall(r"\d+", arch)[0]) in image[0x30:0x34]


def test_contraction_only_where_allowed() -> None:
    """a * b + c becomes one fma exactly when the source allows it."""
    assert "fma.rn.f32" in ptx(contraction=True)
    assert "fma.rn.f32" not in ptx(contraction=False)


def test_subnormals_flushed_only_where_allowed() -> None:
    """Arithmetic flushes subnormals exactly when the source allows it."""
    assert "mul.rn.ftz.f32" in ptx(flush_subnormals=True)
    assert ".ftz" not in ptx(flush_subnormals=False)


def test_defines_reach_the_compiler(folder: Path) -> None:
    """A kernel behind a macro exists when its macro is defined, and another value is another key."""
    text = "#if WIDTH == 4\n" + AXPY + "#endif\n"
    four, two = (KernelSource("a.cu", text, "axpy", defines=(f"WIDTH={width}",)) for width in (4, 2))
    compile_cubin(four, "sm_90", folder=folder)
    with pytest.raises(CompileError, match=r"'a\.cu' compiles for sm_90 but defines no kernel 'axpy'"):
        compile_cubin(two, "sm_90", folder=folder)


def test_resources_are_those_of_the_entry_point(folder: Path) -> None:
    """Shared memory and spills are reported for the kernel asked for, not for its neighbour in the file."""
    sums = "".join(f"v[{i}] = x[{i} * 1024 + threadIdx.x];\n" for i in range(96))
    text = (
        'extern "C" __global__ void shared(float* x) { __shared__ float s[300];\n'
        "s[threadIdx.x] = x[threadIdx.x]; __syncthreads(); x[threadIdx.x] = s[299 - threadIdx.x]; }\n"
        'extern "C" __global__ void __launch_bounds__(1024) spilling(float* x) { float v[96];\n'
        f"{sums}__syncthreads();\n#pragma unroll\n"
        "for (int i = 0; i < 96; ++i) x[(95 - i) * 1024 + threadIdx.x] = v[i]; }\n"
    )
    shared, spilling = (
        compile_cubin(KernelSource("two.cu", text, symbol), "sm_90", folder=folder).resources
        for symbol in ("shared", "spilling")
    )
    assert (shared.shared_bytes, shared.stack_bytes, shared.spill_bytes) == (1200, 0, 0)
    assert 0 < shared.registers < spilling.registers <= 64
    assert (
        spilling.shared_bytes == 0
        and spilling.stack_bytes > 0
        and spilling.spill_bytes >= spilling.stack_bytes
    )
    assert shared.seconds > 0 and spilling.seconds > 0


def test_hit_returns_the_same_without_compiling(folder: Path, compiled: list[str]) -> None:
    """A second compilation costs 0 seconds and returns the same image and resources."""
    first, second = (compile_cubin(SOURCE, "sm_90", folder=folder) for _ in range(2))
    assert compiled == ["axpy"]
    assert second.image == first.image and second.resources.seconds == 0 < first.resources.seconds
    assert second.resources.registers == first.resources.registers > 0


@pytest.mark.parametrize(
    "other",
    [
        KernelSource("map/axpy.cu", AXPY + "\n", "axpy"),
        KernelSource("map/axpy.cu", AXPY, "other"),
        KernelSource("map/axpy.cu", AXPY, "axpy", defines=("A=1",)),
        KernelSource("map/axpy.cu", AXPY, "axpy", contraction=True),
        KernelSource("map/axpy.cu", AXPY, "axpy", flush_subnormals=True),
    ],
)
def test_key_covers_every_field(other: KernelSource) -> None:
    """Whatever decides the machine code decides the key."""
    assert cubin_key(other, "sm_90") != cubin_key(SOURCE, "sm_90") != cubin_key(SOURCE, "sm_90a")


def test_key_follows_headers_by_content(tmp_path: Path) -> None:
    """A header reached through another one is part of the key; its folder and its neighbours are not."""
    text = "  #  include <baracuda/outer.cuh>\n" + AXPY
    source = KernelSource("map/axpy.cu", text, "axpy")

    def key(root: str, inner: str, neighbour: str = "") -> bytes:
        headers = tmp_path / root / "baracuda"
        headers.mkdir(parents=True, exist_ok=True)
        (headers / "outer.cuh").write_text('#pragma once\n#include "inner.cuh"\n')
        (headers / "inner.cuh").write_text(f"#include <baracuda/outer.cuh>\n{inner}\n")
        (headers / "neighbour.cuh").write_text(neighbour)
        return cubin_key(source, "sm_90", include=tmp_path / root)

    before = key("here", "// 1")
    assert key("there", "// 1") == before
    assert key("here", "// 10") != before
    assert key("here", "// 1", neighbour="// new") == before
    (tmp_path / "here/baracuda/inner.cuh").unlink()
    assert cubin_key(source, "sm_90", include=tmp_path / "here") != before


def test_edited_header_is_compiled(tmp_path: Path, folder: Path) -> None:
    """An edited header reaches the machine code although the source stayed the same."""
    header = tmp_path / "include/baracuda/factor.cuh"
    header.parent.mkdir(parents=True)
    source = KernelSource(
        "a.cu", "#include <baracuda/factor.cuh>\n" + AXPY.replace("+ x", "+ FACTOR"), "axpy"
    )
    images = []
    for factor in ("2.5f", "17.25f"):
        header.write_text(f"#define FACTOR {factor}\n")
        images.append(compile_cubin(source, "sm_90", folder=folder, include=tmp_path / "include").image)
    assert images[0] != images[1]


@pytest.mark.parametrize("damage", [lambda data: data[:100], lambda data: b"", lambda data: b"X" + data[1:]])
def test_damaged_entry_is_a_miss(
    folder: Path, compiled: list[str], caplog: pytest.LogCaptureFixture, damage: object
) -> None:
    """A truncated, emptied or altered entry is logged once, compiled again and replaced."""
    good = compile_cubin(SOURCE, "sm_90", folder=folder)
    whole = entry(folder).read_bytes()
    entry(folder).write_bytes(damage(whole))  # type: ignore[operator]
    assert compile_cubin(SOURCE, "sm_90", folder=folder).image == good.image
    assert compile_cubin(SOURCE, "sm_90", folder=folder).resources.seconds == 0
    assert compiled == ["axpy", "axpy"] and entry(folder).read_bytes() == whole
    assert [r.message.partition("entry")[0] for r in caplog.records] == ["kernel cache "]


def test_entry_under_another_key_is_a_miss(folder: Path, compiled: list[str]) -> None:
    """An intact file in the wrong place is not served."""
    compile_cubin(SOURCE, "sm_90", folder=folder)
    misplaced = entry(folder)
    wrong = misplaced.read_bytes()
    misplaced.unlink()
    compile_cubin(SOURCE, "sm_80", folder=folder)
    entry(folder).write_bytes(wrong)
    compile_cubin(SOURCE, "sm_80", folder=folder)
    assert compiled == ["axpy"] * 3


def test_unusable_folder_costs_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where nothing can be written, kernels still compile, and that is said once."""
    (tmp_path / "file").write_text("in the way")
    for arch in ("sm_80", "sm_90"):
        assert compile_cubin(SOURCE, arch, folder=tmp_path / "file/cubin").resources.seconds > 0
    assert [r.message.partition(" (")[0] for r in caplog.records] == [
        f"cannot write the kernel cache {tmp_path}/file/cubin"
    ]


def test_frozen_forbids_compiling(folder: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With BARACUDA_FROZEN=1 hits are served and a miss names its kernel and its key."""
    compile_cubin(SOURCE, "sm_90", folder=folder)
    monkeypatch.setenv("BARACUDA_FROZEN", "1")
    compile_cubin(SOURCE, "sm_90", folder=folder)
    with pytest.raises(CompileError, match=f"'axpy' of 'map/axpy.cu'.*{kernel_key(SOURCE, 'sm_80')}"):
        compile_cubin(SOURCE, "sm_80", folder=folder)
    assert compiled == ["axpy"]


def test_cache_root_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """BARACUDA_CACHE_DIR wins over XDG_CACHE_HOME, which wins over ~/.cache."""
    monkeypatch.setenv("HOME", "/h")
    for name in ("XDG_CACHE_HOME", "BARACUDA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert cache_root() == Path("/h/.cache/baracuda")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_root() == Path("/x/baracuda")
    monkeypatch.setenv("BARACUDA_CACHE_DIR", "/b")
    assert cache_root() == Path("/b")


def test_cache_root_below_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps what is made, also when it is the current folder, and stays where it is when another one is entered."""
    monkeypatch.chdir(tmp_path)
    for name, root in ((".", tmp_path), ("mine", tmp_path / "mine")):
        monkeypatch.setenv("BARACUDA_CACHE_DIR", name)
        assert cache_root() == root
        store = EntryStore(cache_root() / "cubin")
        store.put(bytes(32), b"body")
        assert store.get(bytes(32)) == b"body"


def test_error_shows_place_source_and_count(folder: Path) -> None:
    """A rejected source gives file:line, the lines around the first error, and how many errors are left."""
    text = AXPY.replace("float x = ", "float x = missing + ").replace(
        "    args.x", "    b;c;d;e;\n    args.x", 1
    )
    with pytest.raises(CompileError) as caught:
        compile_cubin(KernelSource("map/axpy.cu", text, "axpy"), "sm_90", folder=folder)
    assert str(caught.value).splitlines() == [
        "'map/axpy.cu' does not compile for sm_90 (kernel 'axpy'):",
        'map/axpy.cu:3: identifier "missing" is undefined',
        "     1 | struct Args { float* x; float a; };",
        '     2 | extern "C" __global__ void axpy(const __grid_constant__ Args args) {',
        ">    3 |     float x = missing + args.x[threadIdx.x];",
        "     4 |     b;c;d;e;",
        "     5 |     args.x[threadIdx.x] = args.a * x + x;",
        'map/axpy.cu:4: identifier "b" is undefined',
        'map/axpy.cu:4: identifier "c" is undefined',
        "and 2 more",
    ]
    assert not (folder / "entries").exists() or not list((folder / "entries").rglob("*"))


def test_error_honours_line_directives(folder: Path) -> None:
    """An error below #line is reported where the directive says, with the lines of the generated file around it."""
    text = AXPY + '#line 40 "templates/map.cu.jinja"\n__device__ int good;\n__device__ int bad = wrong;\n'
    with pytest.raises(CompileError) as caught:
        compile_cubin(KernelSource("map/axpy.cu", text, "axpy"), "sm_90", folder=folder)
    shown = str(caught.value).splitlines()
    assert shown[1:] == [
        'templates/map.cu.jinja:41: identifier "wrong" is undefined',
        "in map/axpy.cu:",
        "     5 | }",
        "     6 | __device__ int good;",
        ">    7 | __device__ int bad = wrong;",
    ]


def test_error_in_a_header_names_it_relative(tmp_path: Path, folder: Path) -> None:
    """An error in a header of this project is shown under the name by which it is included."""
    header = tmp_path / "baracuda/broken.cuh"
    header.parent.mkdir()
    header.write_text("__device__ int fine;\n__device__ int broken = nothing;\n")
    source = KernelSource("a.cu", "#include <baracuda/broken.cuh>\n" + AXPY, "axpy")
    with pytest.raises(CompileError) as caught:
        compile_cubin(source, "sm_90", folder=folder, include=tmp_path)
    assert 'baracuda/broken.cuh:2: identifier "nothing" is undefined' in str(caught.value)
    assert ">    2 | __device__ int broken = nothing;" in str(caught.value)


def test_errors_of_the_assembler_and_of_options_are_shown(folder: Path) -> None:
    """What fails after the front end, or before it, is one line as well."""
    big = KernelSource(
        "a.cu", AXPY.replace("float x =", "__shared__ volatile float s[99999]; s[0] = 1; float x ="), "axpy"
    )
    with pytest.raises(CompileError, match=r"\nptxas: .*uses too much shared data"):
        compile_cubin(big, "sm_90", folder=folder)
    with pytest.raises(
        CompileError, match=r"does not compile for sm_1 .*\n.*invalid value for --gpu-architecture"
    ):
        compile_cubin(SOURCE, "sm_1", folder=folder)


def test_missing_compiler_names_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without NVRTC the error names both extras."""
    cubin_module._nvrtc_size.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    with pytest.raises(
        CompileError, match=r"pip install 'baracuda-gen\[cuda12\]' or 'baracuda-gen\[cuda13\]'"
    ):
        compile_cubin(SOURCE, "sm_90", folder=folder)


def test_many_report_each_outcome_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every job is reported once, in the calling thread, failures among them, and equal jobs compile once."""
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path))
    bad = KernelSource("bad.cu", "nonsense", "bad")
    outcomes: dict[int, Cubin | CompileError] = {}
    threads = set()

    def on_done(index: int, outcome: Cubin | CompileError) -> None:
        assert index not in outcomes
        outcomes[index] = outcome
        threads.add(threading.current_thread())

    compile_many([(SOURCE, "sm_80"), (bad, "sm_80"), (SOURCE, "sm_80")], on_done=on_done, workers=3)
    assert threads == {threading.current_thread()}
    assert isinstance(outcomes[1], CompileError)
    cold = [o.resources.seconds > 0 for o in (outcomes[0], outcomes[2]) if isinstance(o, Cubin)]
    assert sorted(cold) == [False, True]


CHILD = """
import sys, os
from pathlib import Path
import cuda.core.utils
from baracuda.runtime.compile import cubin
from baracuda.runtime.device import KernelSource
folder, log, mode = sys.argv[1:]
real = cubin.assemble
def assemble(source, arch, **options):
    with open(log, "a") as file:
        file.write("compiling\\n")
    if mode == "hang":
        print("compiling", flush=True)
        sys.stdin.read()
    return real(source, arch, **options)
cubin.assemble = assemble
print("ready", flush=True)
sys.stdin.readline()
cubin.compile_cubin(KernelSource("map/axpy.cu", os.environ["AXPY"], "axpy"), "sm_90", folder=Path(folder))
"""


def child(folder: Path, log: Path, mode: str) -> subprocess.Popen[str]:
    """A process that has imported everything and compiles SOURCE once it reads a line."""
    environment = os.environ | {"AXPY": AXPY, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", CHILD, str(folder), str(log), mode]
    return subprocess.Popen(
        command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def read(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


def test_sixteen_processes_compile_once(folder: Path, tmp_path: Path) -> None:
    """Processes that miss the same key together compile it once, and leave no lock behind."""
    log = tmp_path / "log"
    processes = [child(folder, log, "run") for _ in range(16)]
    try:
        assert [read(process) for process in processes] == ["ready"] * 16
        for process in processes:
            go(process)
        for process in processes:
            process.communicate(timeout=30)
        assert [process.returncode for process in processes] == [0] * 16
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert log.read_text() == "compiling\n"
    assert not list((folder / "locks").iterdir())


def test_killed_holder_does_not_block_the_next(folder: Path, tmp_path: Path, compiled: list[str]) -> None:
    """A process killed in the middle of a compilation leaves its lock file, and the next one compiles."""
    with child(folder, tmp_path / "log", "hang") as holder:
        assert read(holder) == "ready"
        go(holder)
        assert read(holder) == "compiling"
        (lock,) = (folder / "locks").iterdir()
        waiting = threading.Thread(
            target=compile_cubin, args=(SOURCE, "sm_90"), kwargs={"folder": folder}, daemon=True
        )
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive() and compiled == []
        holder.send_signal(signal.SIGKILL)
        waiting.join(20)
    assert not waiting.is_alive() and compiled == ["axpy"] and not lock.exists()


def test_threads_compile_once(folder: Path, compiled: list[str]) -> None:
    """Threads of one process that miss the same key together compile it once."""
    barrier = threading.Barrier(8)

    def miss() -> None:
        barrier.wait()
        compile_cubin(SOURCE, "sm_90", folder=folder)

    threads = [threading.Thread(target=miss) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert compiled == ["axpy"]


def test_lock_is_exclusive_while_its_file_comes_and_goes(tmp_path: Path) -> None:
    """However often holders remove the lock file and make it anew, no two are inside at once."""
    inside: list[int] = []
    crowds: list[int] = []

    def enter() -> None:
        for _ in range(100):
            with key_lock(tmp_path / "lock"):
                inside.append(1)
                os.stat(tmp_path)  # lets other threads run
                crowds.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=enter) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(crowds) == {1} and len(crowds) == 800


def test_importing_the_runtime_loads_no_cuda() -> None:
    """Importing costs no CUDA library: machines without one can import it, and no context appears."""
    code = (
        "import sys, baracuda.runtime.devices.cuda; print([name for name in sys.modules if name.startswith('cuda.')])"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True) == "[]\n"
