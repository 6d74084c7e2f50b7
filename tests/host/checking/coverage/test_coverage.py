"""Which branches kernels take, what of it is declared, and when the command fails."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from repository import KERNELS, SPECS

from baracuda.checking.coverage import run
from baracuda.checking.coverage.branches import Branch, branches
from baracuda.checking.coverage.run import Coverage, coverage_of
from baracuda.checking.coverage.untaken import Declared, declared, reason_of, unused
from baracuda.checking.variables import SAMPLE
from baracuda.cli.prove import coverage as command
from baracuda.runtime import CompileError, KernelInternal, SpecError
from baracuda.runtime.host.toolchain import Toolchain, coverage_flags

_LAUNCH = """
import ctypes, os, signal, struct, sys
from pathlib import Path
import numpy as np
from baracuda.runtime import get_device
from baracuda.runtime.device import KernelSource

device, file = get_device("host"), Path(sys.argv[1])
device.coverage = Path(sys.argv[2])
kernel = device.load(KernelSource(path=f"templates/{file.name}", text=file.read_text(), symbol="branches"))
y = device.empty(64, np.float32)
words = ctypes.create_string_buffer(struct.pack("qq", y.ctypes.data, 20))
kernel.launch((1, 1, 1), 32, ctypes.addressof(words), 16, 0)
assert y[0] == 6
if sys.argv[3:]:
    device.write_counts()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_branches_are_those_of_the_source(tmp_path: Path) -> None:
    """Inlined functions and instances of a template are counted where their text is; loops may have no iteration."""
    for killed in ([], ["killed"]):  # the counts of two processes are added, one of which does not end by itself
        command = [sys.executable, "-c", _LAUNCH, KERNELS / "branches.cu", tmp_path, *killed]
        assert subprocess.run(command).returncode == (-signal.SIGKILL if killed else 0)
    counts = branches(tmp_path)
    lines = (KERNELS / "branches.cu").read_text().splitlines()
    ways = {
        text: [counts[branch] for branch in sorted(counts) if text in lines[branch.line - 1]]
        for text in ("if (n > 100)", "threadIdx.x < args.n", "i < args.n", "i < COUNT", "args.n == 0", "2.0f")
    }
    assert ways == {
        "if (n > 100)": [0, 40],
        "threadIdx.x < args.n": [40, 24],
        "i < args.n": [0, 64],
        "i < COUNT": [12, 4],
        "args.n == 0": [0, 64],
        "2.0f": [0, 0],
    }


def test_only_gcc_counts_branches() -> None:
    with pytest.raises(CompileError, match=r"needs g\+\+"):
        coverage_flags(Toolchain(("clang++",), "clang version 19"))


def test_tests_of_an_op_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Branches of its kernels' headers; declared ones have their reason."""
    monkeypatch.setenv(SAMPLE, "0")
    entry = Declared("row.cuh", "for (", "a reason")
    chosen = "in_place and softmax_f32_row64x1x4"
    result = coverage_of("softmax", SPECS, "baracuda.generated", 0, [entry], chosen)
    files = {Path(branch.file).name for branch in result.untaken}
    assert {"row.cuh", "walk.cuh"} <= files and 20 < result.percent < 99
    assert {reason for branch, reason in result.untaken.items() if entry.matches("softmax", branch)} <= {"a reason"}


def test_a_failing_test_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "pytest_command", lambda: [sys.executable, "-c", "exit('test_x fails')"])
    with pytest.raises(KernelInternal, match="softmax: its tests fail"):
        coverage_of("softmax", SPECS, "baracuda.generated", 0, [])


def test_a_branch_without_reason_and_an_entry_without_branch_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    untaken = {Branch("templates/row.cu.jinja", 1, 2, 1): "it is one"}
    entries = [Declared("row.cu.jinja", "", "it is one", ("softmax",))]
    monkeypatch.setattr(command, "declared", lambda: entries)

    def fails(branches: int, reason: str, ops: tuple[str, ...] = ("softmax",)) -> bool:
        result = Coverage("softmax", branches, dict.fromkeys(untaken, reason))
        monkeypatch.setattr(command, "coverage_of", lambda *_: result)
        return not command.coverage(ops, SPECS, "baracuda.generated", 1, 95.0, as_json=False)

    assert not fails(20, "it is one")
    assert fails(20, ""), "a branch without a reason"
    assert Coverage("softmax", 20, dict.fromkeys(untaken, "")).percent == 95
    assert Coverage("softmax", 2, dict.fromkeys(untaken, "it is one")).percent == 100
    assert Coverage("softmax", 0, {}).percent == 0  # nothing was measured
    assert not fails(20, "it is one", ())
    entries.append(Declared("pack.cuh", "if (", "nothing there"))
    assert fails(20, "it is one", ()), "an entry that matches nothing"
    assert "remove the entry" in capsys.readouterr().out


def test_entries_name_file_line_and_ops(tmp_path: Path) -> None:
    here = Branch("templates/row.cu.jinja", 1, 2, 1)
    assert reason_of("softmax", here, [Declared("row.cu.jinja", here.text, "why")]) == "why"
    others = ("row.cuh", "", ()), ("row.cu.jinja", "no such text", ()), ("row.cu.jinja", "", ("alibi",))
    for other in (Declared(file, line, "why", ops) for file, line, ops in others):
        assert not reason_of("softmax", here, [other]) and unused([other], {"softmax": [here]})
    path = tmp_path / "untaken.yaml"
    path.write_text("untaken:\n  - {file: row.cuh, line: x}\n")
    with pytest.raises(SpecError, match="entry 1 needs file, line, reason"):
        declared(path)


def test_every_entry_has_a_reason() -> None:
    assert all(entry.reason for entry in declared())
