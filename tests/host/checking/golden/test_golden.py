"""Invariant: the bits of a kernel on the host device are those of its golden hash, which only a new name changes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from repository import few

from baracuda.checking.golden import proof, table
from baracuda.checking.golden.hashes import Golden, fitting, golden_of
from baracuda.checking.golden.numbers import Philox
from baracuda.checking.problems.subject import Subject
from baracuda.checking.trials.memory import memory_of
from baracuda.cli.main import main
from baracuda.codegen.spec.load import load_folder
from baracuda.runtime import InvalidProblem
from baracuda.runtime.host.toolchain import Toolchain

ROOT = Path(__file__).parents[4]
LOADED = load_folder(ROOT / "specs")
RECORDED = table.read(ROOT / "specs")
SKU = "normalization/rms_norm/forward/f32/sm_80/bespoke/f32.f32.dsba{}/row4x32x2r8/-/-/-"
FIRST, SECOND = SKU.format(""), SKU.format(".2")
GOLDEN = Golden(FIRST, "p", "e", "o", steady=True)
UPDATE = "run 'baracuda-gen golden rms_norm --update'"
LINES = {FIRST: {"on": "p", "host": "e o", "sm_90 12.9": "e c"}}


@pytest.mark.parametrize("op", few(LOADED, 8) if proof.holds(ROOT / "specs", "baracuda.generated") else LOADED)
def test_bits_are_those_of_the_golden_hashes(op: str) -> None:
    """Of a sample, where nothing has changed since all were computed."""
    lines = table.of_op(RECORDED, op)
    problems = fitting(Subject(LOADED[op], LOADED, "baracuda.generated"), "host", but(lines))
    computed = golden_of(problems, memory_of("host"))
    assert [*table.complaints(op, lines, computed, "host", "host")] == []


def but(lines: table.Lines) -> set[str]:
    return table.silent(lines, "host")


def test_all_ops_have_golden_hashes() -> None:
    """Each of its element types; and promises are kept by all devices that were recorded."""
    for op, loaded in LOADED.items():
        elements = {name.split("/")[3] for name in table.of_op(RECORDED, op)}
        assert elements == set(loaded.spec.dtypes), op
    for name, line in RECORDED.items():
        everywhere = {text.split()[0] for device, text in line.items() if device != table.PROBLEM}
        assert len(everywhere) <= 1, name
    devices = {device for line in RECORDED.values() for device in line} - {table.PROBLEM}
    assert (ROOT / "specs" / table.FILE).stat().st_size < 65_000 + 30_000 * len(devices)


def test_the_changelog_lists_revisions() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    revised = {op: loaded.spec.numerics for op, loaded in LOADED.items() if loaded.spec.numerics > 1}
    assert unlisted(revised, text) == []
    assert unlisted({"rms_norm": 3}, "- `rms_norm` 2: sums in pairs.\n- `rms_norm` 3: and so on.") == []
    assert unlisted({"rms_norm": 3}, "- `rms_norm` 2: sums in pairs.") == ["rms_norm 3"]


def test_a_proof_is_of_everything_that_decides_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of kernels, specs, hashes and the compiler; another file of a folder makes another one."""
    specs, package = tmp_path / "specs", tmp_path / "proved"
    for folder, name in ((specs, "a.yaml"), (specs, "golden.json"), (package, "__init__.py"), (package, "a.cu")):
        folder.mkdir(exist_ok=True)
        (folder / name).write_text("1")
    monkeypatch.syspath_prepend(tmp_path)
    assert not proof.holds(specs, "proved")
    proof.record(specs, "proved")
    assert proof.holds(specs, "proved")
    for path in (specs / "a.yaml", specs / "golden.json", package / "a.cu"):
        path.write_text("2")
        assert not proof.holds(specs, "proved"), path
        path.write_text("1")
    compilers = Toolchain(("g++",), "another version")
    monkeypatch.setattr(proof, "find_toolchain", lambda: compilers)
    assert not proof.holds(specs, "proved")


def unlisted(revised: dict[str, int], text: str) -> list[str]:
    """The revisions that no line `- OP N: why` of the changelog lists."""
    due = [(op, number) for op, last in revised.items() for number in range(2, last + 1)]
    return [f"{op} {number}" for op, number in due if not re.search(rf"^- `{op}` {number}: \w", text, re.MULTILINE)]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, ""),
        ({"everywhere": "x"}, "other bits on host than its golden hash says; raise 'numerics' to 2 in the spec"),
        ({"others": "x"}, "other bits on host than its golden hash says; raise 'numerics' to 2 in the spec"),
        ({"problem": "x"}, "has a golden hash of another problem; run"),
        ({"sku": SECOND}, f"has no golden hash; {UPDATE}"),
    ],
)
def test_what_differs_is_a_line(changes: dict[str, str], says: str) -> None:
    lines = [*table.complaints("rms_norm", LINES, [replace(GOLDEN, **changes)], "host", "host")]  # type: ignore[arg-type]
    assert says in "".join(lines) and bool(lines) == bool(says)


def test_a_promise_holds_on_devices_that_nothing_is_recorded_of() -> None:
    for golden, wrong in ((GOLDEN, False), (replace(GOLDEN, everywhere="x"), True)):
        (lines,) = ([*table.complaints("rms_norm", LINES, [golden], "sm_120 13.0", "sm_120")],)
        assert bool(lines) == wrong
        assert all("computes other bits on sm_120 13.0 than on host; needs the same" in line for line in lines)


def test_hashes_change_with_the_revision_alone() -> None:
    other = replace(GOLDEN, everywhere="x", others="y")
    with pytest.raises(InvalidProblem, match="raise 'numerics' to 2"):
        table.updated("rms_norm", LINES, [other], "host", "host")
    raised = table.updated("rms_norm", LINES, [replace(other, sku=SECOND)], "host", "host")
    assert raised == {SECOND: {"on": "p", "host": "x y"}}
    with pytest.raises(InvalidProblem, match="'numerics' was 2 before and cannot be less"):
        table.updated("rms_norm", raised, [GOLDEN], "host", "host")


def test_another_device_gets_a_column() -> None:
    lines = table.updated("rms_norm", LINES, [replace(GOLDEN, others="d")], "sm_100 13.0", "sm_100")
    assert lines == {FIRST: {**LINES[FIRST], "sm_100 13.0": "e d"}}
    with pytest.raises(InvalidProblem, match="than on host; needs the same, for it is bit_stable"):
        table.updated("rms_norm", LINES, [replace(GOLDEN, everywhere="x")], "sm_100 13.0", "sm_100")


def test_what_compilers_may_change_is_not_recorded() -> None:
    unsteady = replace(GOLDEN, steady=False)
    assert table.updated("rms_norm", {}, [unsteady], "host", "host") == {FIRST: {"on": "p", "host": "e"}}
    assert table.updated("rms_norm", {}, [replace(unsteady, everywhere="")], "host", "host") == {FIRST: {"on": "p"}}


def test_numbers_are_those_of_philox() -> None:
    assert Philox(7).integers(0, 1000, (4,)).tolist() == [692, 655, 120, 522]
    drawn = Philox(7).standard_normal((100, 100))
    assert abs(drawn.mean()) < 0.05 and 1 < drawn.std() < 1.3
    assert (drawn.astype(np.float32).view(np.uint32) & 1).any()  # all bits of a number are used


def test_the_command_refuses_other_bits(tmp_path: Path) -> None:
    """It records, compares, and records nothing under the name of a kernel whose bits are others."""
    (tmp_path / "normalization").mkdir()
    spec = "normalization/rms_norm.yaml"
    (tmp_path / spec).write_text((ROOT / "specs" / spec).read_text())

    def run(*options: str) -> tuple[int, list[str]]:
        shown: Any = CliRunner().invoke(main, ["golden", "rms_norm", "--specs", str(tmp_path), "--json", *options])
        return shown.exit_code, json.loads(shown.stdout)["wrong"]

    code, wrong = run()
    assert code == 1 and wrong[0].endswith("(and 7 others) has no golden hash; " + UPDATE)
    assert run("--update") == run() == (0, [])
    lines = table.read(tmp_path)
    of_gpus = {key for line in RECORDED.values() for key in line} - {table.PROBLEM, "host"}
    recorded = table.of_op(RECORDED, "rms_norm").items()
    assert lines == {name: {k: v for k, v in line.items() if k not in of_gpus} for name, line in recorded}
    broken = {name: {**line, "host": "0" * 12} for name, line in lines.items()}
    table.write(tmp_path, broken)
    for options in ((), ("--update",)):
        code, (line,) = run(*options)
        assert code == 1 and "computes other bits on host" in line and "raise 'numerics' to 2" in line
    assert table.read(tmp_path) == broken
