"""Invariant: what is remembered is said again of the same input by the same tools only; any other byte is looked at."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from repository import LONG

from baracuda.checking.audit import facts
from baracuda.cli import memo as remembered
from baracuda.cli.kernels import audit_report
from baracuda.cli.main import main
from baracuda.cli.memo import Question
from baracuda.codegen.emit.generate import TEMPLATES
from baracuda.runtime import CompileError
from baracuda.runtime.compile import cubin

Run = Callable[..., Result]
FILES = {
    "codegen": ("render.py", "audit/rules.py"),
    "runtime": ("plan.py", "include/baracuda/row/row.cuh"),
    "templates": ("row.cu.jinja",),
    "specs": ("scale.yaml", "deep/er/norm.yaml", "tuned/sm_90/scale.json", "functions.txt"),
}
EVERY = [f"{folder}/{name}" for folder, names in FILES.items() for name in names]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are compiled once for this file; answers are each test's own."""
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "remembered-cache"))


@pytest.fixture
def question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Question:
    """Asked of small folders, all older than this process is said to be, with an answer."""
    monkeypatch.setattr(remembered, "STARTED", time.time() + 60)
    for name in EVERY:
        write(tmp_path / name, f"text of {name}")
    tools = tuple(tmp_path / name for name in ("codegen", "runtime", "templates"))
    made = Question(tmp_path / "specs", (), ("what",), tools=tools)
    made.remember(["this"])
    assert replace(made).recall() == ["this"]
    return made


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (1e9, 1e9))


@pytest.mark.parametrize("name", EVERY)
def test_each_byte_counts(question: Question, tmp_path: Path, name: str) -> None:
    """A byte of any file is another question; with the old byte it is the old one."""
    before = (tmp_path / name).read_text()
    write(tmp_path / name, before.replace("t", "T", 1))
    assert replace(question).recall() is None
    write(tmp_path / name, before)
    assert replace(question).recall() == ["this"]


@pytest.mark.parametrize("name", EVERY)
def test_each_file_counts(question: Question, tmp_path: Path, name: str) -> None:
    """So is a file more or less, elsewhere, or that is none."""
    path, other = tmp_path / name, tmp_path / Path(name).with_stem("other")
    write(other, "")
    assert replace(question).recall() is None
    other.unlink()
    moved = path.rename(path.with_stem("moved"))
    assert replace(question).recall() is None
    path.mkdir()
    assert replace(question).recall() is None
    path.rmdir()
    moved.rename(path)
    assert replace(question).recall() == ["this"]


def test_all_that_is_asked_counts(question: Question, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So are other words, a folder of another name, another Python, and another version of a package."""
    assert replace(question, query=("what", "else")).recall() is None
    assert replace(question, inputs=("another",)).recall() is None
    assert replace(question, specs=(tmp_path / "specs").rename(tmp_path / "moved")).recall() is None
    (tmp_path / "moved").rename(tmp_path / "specs")
    with monkeypatch.context() as other:
        other.setattr(sys, "version", "4.0")
        assert replace(question).recall() is None
    with monkeypatch.context() as other:
        other.setattr(sys, "path", [*sys.path, str(tmp_path)])
        assert replace(question).recall() == ["this"]
        (tmp_path / "numpy-99.0.dist-info").mkdir()
        assert replace(question).recall() is None
    assert replace(question).recall() == ["this"]


def test_what_may_have_been_seen_by_halves_is_forgotten(question: Question, tmp_path: Path) -> None:
    """Nothing is kept where a file was written meanwhile, a source is younger than the process, or templates are
    somebody's."""
    late = replace(question, query=("late",))
    assert late.recall() is None
    write(tmp_path / EVERY[-1], "other")
    late.remember(["wrong"])
    assert replace(late).recall() is None
    write(tmp_path / EVERY[-1], f"text of {EVERY[-1]}")
    assert replace(late).recall() is None
    foreign = replace(question, templates=(tmp_path,))
    foreign.remember(["wrong"])
    assert replace(foreign).recall() is None
    os.utime(tmp_path / EVERY[0], (time.time() + 99, time.time() + 99))
    assert replace(question).recall() is None
    replace(question).remember(["wrong"])
    write(tmp_path / EVERY[0], f"text of {EVERY[0]}")
    assert replace(question).recall() == ["this"]


def test_what_cannot_be_kept_or_read_is_looked_at(question: Question, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged answer is none, an earlier one goes, and where nothing can be written nothing is said of it."""
    path = question._answers.folder / question._name
    content = path.read_bytes()
    for damaged in (content.replace(b"this", b"that"), content[:-1], b"", b"\xff"):
        path.write_bytes(damaged)
        assert replace(question).recall() is None
    path.write_bytes(content)
    assert replace(question).recall() == ["this"]
    other = replace(question, inputs=("of another compiler",))
    other.remember(["other"])
    assert (replace(other).recall(), replace(question).recall()) == (["other"], None)
    monkeypatch.setenv("BARACUDA_CACHE_DIR", "/dev/null/none")
    replace(question).remember(["this"])
    assert replace(question).recall() is None


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command line where ./specs is rms_norm of one dtype, its files generated."""
    text = (LONG / "rms_norm.yaml").read_text()
    write(tmp_path / "specs/rms_norm.yaml", text.replace("dtypes: [f32, f16, bf16, f64]", "dtypes: [f32]"))
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(main, ["generate"])
    return lambda *arguments: CliRunner().invoke(main, [*arguments], catch_exceptions=False)


def test_check_says_again_what_it_found(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same nothing is looked at but the output; of another compiler, architecture or layout everything is."""
    check = "check", "--layouts", "packed"
    first = run(*check)
    asked: list[str] = []

    def refused(jobs: Any, *, on_done: Any, within: Any) -> None:
        asked.extend(job.arch for job in jobs)
        for index in range(len(jobs)):
            on_done(index, CompileError("refused"))

    monkeypatch.setattr(audit_report, "collect", refused)
    again = run(*check)
    assert (first.exit_code, again.exit_code, asked) == (0, 0, [])
    assert [line.split(" in ")[0] for line in again.output.splitlines()[:2]] == [
        line.split(" in ")[0] for line in first.output.splitlines()[:2]
    ]
    for more in (("--arch", "sm_80"), ("--layouts", "dense"), ("rms_norm",), ("--package", "mine")):
        assert run(*check, *more).exit_code == 1 and asked
        asked.clear()
    for module, name, value in (
        (cubin, "nvrtc_build", lambda: "another"),
        (facts, "disassembler", lambda: (Path(), "another")),
        (facts, "_REVISION", -1),
    ):
        with monkeypatch.context() as other:
            other.setattr(module, name, value)
            assert run(*check).exit_code == 1 and asked
        asked.clear()
    assert run(*check).exit_code == 0 and not asked
    (tmp_path / "generated/normalization/rms_norm.cu").write_text("// @generated by baracuda-gen\n")
    edited = run(*check)
    assert "would be written: generated/normalization/rms_norm.cu" in edited.output
    assert edited.exit_code == 1 and not asked


def test_what_is_wrong_is_never_remembered(run: Run, tmp_path: Path) -> None:
    """A kernel against its contract is told each time."""
    path = tmp_path / "specs/rms_norm.yaml"
    write(path, path.read_text().replace("{sm_80: {", "{sm_80: {registers: 16, "))
    run("generate")
    for _ in range(2):
        found = run("check", "--layouts", "packed")
        assert found.exit_code == 1 and " registers a thread, allowed are 16\n" in found.stderr


_WATCHED = """
import os, sys
opened = set()
def watch(event, given):
    if event == "open" and isinstance(given[0], str) and not given[2] & (os.O_WRONLY | os.O_RDWR):
        opened.add(os.path.realpath(given[0]))
sys.addaudithook(watch)
from baracuda.cli.main import main
try:
    main(["check", "--layouts", "packed"])
finally:
    print(*opened, sep="\\n")
"""


def test_nothing_else_is_read(run: Run, tmp_path: Path) -> None:
    """Whatever `check` reads is a source of ours, a spec, the output, the cache, or of Python and its packages."""
    path = os.pathsep.join(filter(os.path.isdir, sys.path))
    around = {**os.environ, "PYTHONPATH": path, "BARACUDA_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", _WATCHED], env=around, capture_output=True, text=True, check=True)
    assert "14 kernels audited" in done.stdout and " 0 cached" in done.stdout
    read = {Path(line) for line in done.stdout.splitlines() if line.startswith("/")}
    assert tmp_path / "specs/rms_norm.yaml" in read and TEMPLATES / "row.cu.jinja" in read
    python = {Path(p).resolve() for p in (sys.prefix, sys.base_prefix, "/proc", "/dev", "/sys", "/etc", "/usr/lib")}
    known = {*remembered._OURS, *python, *(tmp_path / name for name in ("specs", "generated", "cache"))}
    assert not [one for one in read if one.is_file() and not any(one.is_relative_to(folder) for folder in known)]
