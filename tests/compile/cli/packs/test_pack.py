"""Invariant: what `pack` writes is run without a compiler, as it was compiled, or is refused in a line."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
import zlib
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from click.testing import CliRunner, Result
from repository import project

from baracuda.checking.listing.variants import variants_of
from baracuda.checking.trials.recording import recording
from baracuda.cli.main import main
from baracuda.cli.packs.problems import Problem
from baracuda.codegen.project import PACKAGE
from baracuda.generated import SoftmaxDescriptor, SoftmaxPlan
from baracuda.runtime.arrays.element import ElementKind
from baracuda.runtime.arrays.tensor import TensorView
from baracuda.runtime.compile.cubin import INCLUDE, compile_cubin
from baracuda.runtime.compile.packed import packed_cubin
from baracuda.runtime.device import KernelSource
from baracuda.runtime.devices import cuda
from baracuda.runtime.errors import NotCompiled, PackError
from baracuda.runtime.packs.layout import KERNELS, MANIFEST, PATHS
from baracuda.runtime.packs.pack import Pack

NORM = "RMSNormPlan input_shape=4,64 norm_axes_mask=2 eps=1e-06 has_gamma=true element=f32 select.layouts=packed"
SOFTMAX = "SoftmaxPlan input_shape=4,64 softmax_axis=-1 element=f16 select.layouts=packed"
ARCHS = ["sm_80", "sm_90"]
PACK = ["pack", "--problem", NORM, "--problem", SOFTMAX, "--arch", "sm_80,sm_90a"]

# Looks for each kernel of some problems, where nothing of CUDA can be imported, and prints what it finds.
SERVE = """
import json, sys
sys.modules["cuda"] = None
from hashlib import sha256
from baracuda.cli.packs.problems import Problem
from baracuda.runtime.compile.packed import packed_cubin
codes = {}
for line in json.loads(sys.argv[1]):
    for arch in sys.argv[2].split(","):
        for kernel in Problem.read(line, "baracuda.generated").wanted(arch):
            cubin = packed_cubin(kernel.source, arch)
            found = cubin and [sha256(cubin.image).hexdigest(), cubin.resources.registers]
            codes[f"{kernel.source.defines} {arch}"] = found
print(json.dumps(codes))
"""

# Prepares plans in two processes, for a device that only takes kernels.
PROGRAM = """
import os
from baracuda.generated import SoftmaxDescriptor, SoftmaxPlan
from baracuda.runtime.devices.architecture import Architecture

class Device(Architecture):
    def load(self, source):
        return source

os.fork()
for n in (64, 8, 64):
    plan = SoftmaxPlan.select(SoftmaxDescriptor(input_shape=(4, n), softmax_axis=-1, element="f32"))
    plan.prepare(Device("sm_90", "sm_90"))
"""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One cache for this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BARACUDA_CACHE_DIR", str(folder := tmp_path_factory.mktemp("cache")))
        yield folder


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments], catch_exceptions=False)


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packs") / "pack"
    result = run(*PACK, "--ptx", "--out", folder)
    assert result.exit_code == 0 and re.fullmatch(rf"{folder}: \d+ kernels, .* MB, in .* s\n", result.stdout)
    return folder


@pytest.fixture
def copied(pack: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pack, tmp_path / "copied"))


def served(archs: str, environment: dict[str, str], *paths: Path) -> dict[str, Any]:
    """What a new process finds of the kernels of both problems."""
    done = subprocess.run(
        [sys.executable, "-c", SERVE, json.dumps([NORM, SOFTMAX]), archs],
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(map(str, [*paths, *sys.path]))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def compiled(archs: list[str]) -> dict[str, Any]:
    """The same as they are compiled here."""
    found = {}
    for line in (NORM, SOFTMAX):
        for arch in archs:
            for kernel in Problem.read(line, PACKAGE).wanted(arch):
                cubin = compile_cubin(kernel.source, kernel.arch)
                found[f"{kernel.source.defines} {arch}"] = [sha256(cubin.image).hexdigest(), cubin.resources.registers]
    return found


def test_a_new_process_runs_all_of_it_without_a_compiler(pack: Path, tmp_path: Path) -> None:
    """With an empty cache, BARACUDA_FROZEN=1 and no NVRTC, each kernel's code is what was compiled."""
    empty = tmp_path / "empty"
    environment = {PATHS: str(pack), "BARACUDA_CACHE_DIR": str(empty), "BARACUDA_FROZEN": "1"}
    assert served("sm_80,sm_90", environment) == compiled(ARCHS) != {}
    assert not empty.exists()
    assert set(served("sm_80", {**environment, PATHS: ""}).values()) == {None}


def test_other_gpus_run_code_of_their_generation_and_later_ones_ptx(pack: Path) -> None:
    """sm_86 takes what sm_80 does; sm_120 takes PTX, of the latest architecture alone; sm_75 has nothing."""
    (source, *_) = [kernel.source for kernel in Problem.read(NORM, PACKAGE).wanted("sm_90")]
    environment = {PATHS: str(pack)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(*next(iter(environment.items())))
        for_80, for_86, for_120 = (packed_cubin(source, arch) for arch in ("sm_80", "sm_86", "sm_120"))
        assert for_80 == for_86 != packed_cubin(source, "sm_90")
        assert for_120 and b".target sm_90" in for_120.image and for_120.image.endswith(b"\0")
        assert packed_cubin(source, "sm_75") is None
    assert Pack(pack).archs == {"sm_80", "sm_90", "compute_90"}


def test_the_same_bytes_each_time(pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another cache, another folder, another time and an installed pack change no byte of folder and wheel."""
    monkeypatch.setenv(PATHS, str(pack))
    assert run(*PACK, "--out", tmp_path / "packs" / "one").exit_code == 0
    wheels = [tmp_path / "w" / "baracuda_pack-0.1.0-py3-none-any.whl"]
    assert run(*PACK, "--wheel", "--out", wheels[0].parent).exit_code == 0
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path / "cache"))
    assert run(*reversed_problems(), "--jobs", 1, "--out", tmp_path / "two").exit_code == 0
    assert run(*reversed_problems(), "--wheel", "--out", tmp_path / "w2").exit_code == 0
    first, second = (contents(tmp_path / name) for name in ("packs/one", "two"))
    assert first == second and len(first) > 4
    assert contents(tmp_path / "w") == contents(tmp_path / "w2")
    manifest = json.loads(first[MANIFEST])
    assert manifest["licence"] == "Apache-2.0" and re.fullmatch(r"\d+\.\d+", manifest["NVRTC"])
    assert all(manifest["headers"][f"baracuda/{name}"] for name in ("row/row.cuh", "element.cuh"))


def reversed_problems() -> list[str]:
    return ["pack", "--problem", SOFTMAX, "--problem", NORM, "--arch", "sm_90", "--arch", "sm_80"]


def lines_of(pack: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in (pack / KERNELS).iterdir() for line in file.read_text().splitlines()]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_wheel_is_found_where_it_is_installed(tmp_path: Path) -> None:
    """A folder on the path with the wheel's files is all it takes; pip's check of names and digests passes."""
    assert run(*PACK, "--wheel", "--name", "my-pack", "--out", tmp_path).exit_code == 0
    with zipfile.ZipFile(tmp_path / "my_pack-0.1.0-py3-none-any.whl") as archive:
        archive.extractall(site := tmp_path / "site")
        assert {Path(name).suffix for name in archive.namelist()} == {".py", ".json", ".jsonl", ".zlib", ".txt", ""}
    for line in (site / "my_pack-0.1.0.dist-info/RECORD").read_text().splitlines()[:-1]:
        path, digest, size = line.split(",")
        content = (site / path).read_bytes()
        assert len(content) == int(size) and digest.startswith("sha256=")
    environment = {"BARACUDA_FROZEN": "1", PATHS: ""}
    assert served("sm_80,sm_90", environment, site) == compiled(ARCHS)
    shutil.rmtree(site / "my_pack")
    done = subprocess.run(
        [sys.executable, "-c", SERVE, json.dumps([NORM]), "sm_80"],
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join([str(site), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert "names 'my_pack', which is no package; install its wheel again" in done.stderr.splitlines()[-1]


def test_a_tampered_pack_is_refused(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changed code is not run, and not silently compiled again either."""
    monkeypatch.setenv(PATHS, str(copied))
    (source, *_) = [kernel.source for kernel in Problem.read(NORM, PACKAGE).wanted("sm_90")]
    good = packed_cubin(source, "sm_90")
    assert good is not None
    file = copied / f"code/{sha256(good.image).hexdigest()}.cubin.zlib"
    file.write_bytes(zlib.compress(good.image[:-1] + bytes([good.image[-1] ^ 1])))
    with pytest.raises(PackError, match=re.escape(f"pack {copied}: code/{file.name} is not what {KERNELS}/")):
        packed_cubin(source, "sm_90")
    assert packed_cubin(source, "sm_80") is not None


def test_a_half_written_pack_never_exists(pack: Path, copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk in the middle leaves the pack that was there, or nothing, and no other file."""
    before, written = contents(copied), []
    real = Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        written.append(path)
        if len(written) == 3:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return real(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    for folder in (copied, copied.parent / "new"):
        written.clear()
        result = run(*PACK, "--out", folder)
        assert result.exit_code == 1 and "No space left on device" in result.stderr
    assert contents(copied) == before and [path.name for path in copied.parent.iterdir()] == ["copied"]
    monkeypatch.undo()


def test_a_pack_replaces_a_pack_and_nothing_else(copied: Path, tmp_path: Path) -> None:
    """A folder of other files is refused, and stays."""
    assert run("pack", "--problem", SOFTMAX, "--arch", "sm_80", "--out", copied).exit_code == 0
    assert Pack(copied).archs == {"sm_80"} and [path.name for path in copied.parent.iterdir()] == ["copied"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    result = run("pack", "--problem", SOFTMAX, "--arch", "sm_80", "--out", other)
    assert result.exit_code == 1 and f"{other} is no pack and not empty; name another" in result.stderr
    assert contents(other) == {"mine.txt": b"mine"}


def test_frozen_says_what_is_missing_and_why(pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line: the kernel, its key, and the nearest thing that the pack has; with NVRTC and without."""
    include = Path(shutil.copytree(INCLUDE, tmp_path / "include"))
    (source, *_) = [kernel.source for kernel in Problem.read(NORM, PACKAGE).wanted("sm_90")]
    monkeypatch.setenv("BARACUDA_FROZEN", "1")
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path / "cache"))

    def said(source: KernelSource, arch: str = "sm_90") -> str:
        with pytest.raises(NotCompiled) as caught:
            compile_cubin(source, arch, include=include)
        assert "\n" not in str(caught.value) and re.search(r"\(key [0-9a-f]{64}\)", str(caught.value))
        assert str(caught.value).endswith("and BARACUDA_FROZEN=1 forbids compiling it")
        return str(caught.value)

    monkeypatch.setenv(PATHS, "")
    assert "no pack is installed" in said(source)
    monkeypatch.setenv(PATHS, str(pack))
    assert f"the pack {pack} has it, but packs are not read where another one is made" in said(source)
    changed = include / "baracuda/element.cuh"
    changed.write_text(f"{changed.read_text()}// of another version\n")
    assert f"the pack {pack} has it from other headers (baracuda/element.cuh)" in said(source)
    assert "has it for compute_90, sm_80, sm_90" in said(source, "sm_75")
    others: dict[str, dict[str, Any]] = {
        "lacks it": {"symbol": "other"},
        "has other variants of it": {"defines": (*source.defines, "MORE=1")},
        "has it from another generated text": {"text": f"{source.text}// of another version\n"},
    }
    for why, fields in others.items():
        assert why in said(KernelSource(**{**{n: getattr(source, n) for n in source.__slots__}, **fields}))
    monkeypatch.setattr("baracuda.runtime.compile.cubin._nvrtc_size", no_nvrtc)
    assert "from other headers" in said(source)


def no_nvrtc() -> NoReturn:
    from baracuda.runtime.errors import CompileError

    raise CompileError("no NVRTC to compile with")


def test_the_command_that_frozen_names_adds_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch on a GPU fails with a command; that run, the launch takes its code from the pack."""
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("BARACUDA_FROZEN", "1")
    monkeypatch.chdir(tmp_path)
    descriptor = SoftmaxDescriptor(input_shape=(8, 64), softmax_axis=-1, element="f32")
    buffers = np.zeros((2, 8, 64), np.float32)
    facts = (8, 64), (64, 1), ElementKind("f32"), "cuda:0", False, (0, 512)
    x, y = (TensorView(buffer.ctypes.data, *facts, buffer) for buffer in buffers)
    with recording() as driver:
        monkeypatch.setattr(cuda, "compile_cubin", compile_cubin)
        plan = SoftmaxPlan.select(descriptor, device="cuda:0", layouts=["packed"])
        with pytest.raises(NotCompiled) as caught:
            plan.run(x=x, y=y, stream=0)
        before, _, command = str(caught.value).partition("; to add it: ")
        assert "no pack is installed" in before and "\n" not in command
    monkeypatch.delenv("BARACUDA_FROZEN")
    program, *arguments = shlex.split(command)
    assert program == "baracuda-gen" and run(*arguments).exit_code == 0
    monkeypatch.setenv("BARACUDA_FROZEN", "1")
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path / "empty"))
    monkeypatch.setenv(PATHS, str(tmp_path / "PACK"))
    with recording() as driver:
        monkeypatch.setattr(cuda, "compile_cubin", compile_cubin)
        plan = SoftmaxPlan.select(descriptor, device="cuda:0", layouts=["packed"])
        for source in plan.sources():
            cubin = packed_cubin(source, "sm_90")
            assert cubin is not None
            driver._images[cubin.image] = source, "sm_90"
        plan.run(x=x, y=y, stream=0)
        (launched,) = driver.launches
        assert launched.source in set(plan.sources())
    assert not (tmp_path / "empty").exists()


def test_record_writes_what_plans_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each problem once, of all processes of a program, whose exit status is that of the command."""
    monkeypatch.chdir(tmp_path)
    Path("program.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    assert run("record", "--out", "mine.txt", "--", sys.executable, "program.py").exit_code == 0
    lines = Path("mine.txt").read_text().splitlines()
    assert lines == [f"SoftmaxPlan input_shape=4,{n} softmax_axis=-1 element=f32" for n in (64, 8)]
    assert run("pack", "--problems", "mine.txt", "--arch", "sm_90", "--out", "pack").exit_code == 0
    assert {of["sku"].split("/")[1] for of in lines_of(Path("pack"))} == {"softmax"}
    assert run("record", "--", sys.executable, "-c", "raise SystemExit(7)").exit_code == 7
    assert Path("problems.txt").read_text() == ""
    assert "no program to run" in run("record").stderr
    assert "no program 'no-such-program'" in run("record", "--", "no-such-program").stderr


def test_ops_are_packed_as_compile_lists_them(tmp_path: Path) -> None:
    """Every kernel of an op is in the pack, for each architecture."""
    options = ["--op", "embedding", "--arch", "sm_90", "--layouts", "packed", "--json"]
    facts = json.loads(run("pack", *options, "--out", tmp_path / "pack").stdout)
    lines = lines_of(tmp_path / "pack")
    listed = variants_of(project(), ["embedding"], archs=["sm_90"], layouts=["packed"])
    wanted = {(str(v.row.sku), v.arch, v.source.defines) for v in listed}
    assert {(of["sku"], of["arch"], tuple(of["constants"])) for of in lines} == wanted
    assert facts["kernels"] == len(lines) == len(wanted) > 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to pack; name ops with --op, or problems with --problems or --problem"),
        (["--op", "swiglu,swigluu"], "did you mean 'swiglu'"),
        (["--problem", SOFTMAX, "--wheel", "--hub"], "--wheel and --hub are two forms of a pack; name one of them"),
        (["--problem", SOFTMAX, "--wheel", "--name", "my pack"], "'my pack' is no name of a distribution"),
        (["--problem", f"{SOFTMAX} select.schedules=row1x1x1r1"], "no kernel for"),
    ],
)
def test_what_cannot_be_packed_is_said(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = run("pack", *arguments, "--arch", "sm_90", "--out", tmp_path / "out")
    assert result.exit_code == 1 and message in result.stderr and not list(tmp_path.rglob("*"))


def test_commands_show_packs(pack: Path, copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`why-miss` finds their kernels, where the cache has none; `doctor` lists them, and those that are damaged."""
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(copied.parent / "cache"))
    fields = [word for word in NORM.split() if not word.startswith("select.")]
    for paths, hits in ((str(pack), "hit"), ("", "miss")):
        monkeypatch.setenv(PATHS, paths)
        answers = json.loads(run("why-miss", *fields, "--device", "sm_90", "--json").stdout)
        assert {answer["hit"] for answer in answers if answer["layout"] == "packed"} == {hits == "hit"}
    monkeypatch.setenv(PATHS, str(copied))
    (copied / MANIFEST).write_text("{}")
    assert f"pack {copied}: {MANIFEST} cannot be read" in run("doctor").stdout
    monkeypatch.setenv(PATHS, str(pack))
    assert f"{pack}: {len(Pack(pack))} kernels for compute_90, sm_80, sm_90" in run("doctor").stdout


def test_a_path_without_a_pack_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATHS, str(tmp_path))
    with pytest.raises(PackError, match=re.escape(f"pack {tmp_path}: {MANIFEST} cannot be read (No such file")):
        packed_cubin(KernelSource("a.cu", "", "a"), "sm_90")
