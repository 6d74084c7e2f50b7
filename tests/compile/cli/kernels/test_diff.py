"""Invariant: `diff` names each kernel that is not as in a revision, and runs nothing of that revision."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from repository import LONG

from baracuda.cli.kernels import diff as diff_module
from baracuda.cli.main import main
from baracuda.codegen.emit.generate import write
from baracuda.codegen.project import Project, installed
from baracuda.runtime.compile.cubin import INCLUDE

TILES = 14  # of rms_norm, each in one layout below
OP = "generated/normalization/rms_norm"

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """One cache for this file."""
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "diff-cache"))


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with rms_norm for f32 generated and committed, and a copy of the headers beside it."""
    root = tmp_path / "repository"
    specs = root / "specs" / "normalization"
    specs.mkdir(parents=True)
    spec = (LONG / "rms_norm.yaml").read_text()
    (specs / "rms_norm.yaml").write_text(spec.replace("dtypes: [f32, f16, bf16, f64]", "dtypes: [f32]"))
    write(Project.read(root / "specs").files, root / "generated")
    shutil.copytree(INCLUDE, root / "include")
    git(root, "init", "--quiet")
    commit(root)
    monkeypatch.chdir(root)
    return root


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True)


def commit(folder: Path) -> None:
    """Everything that is in the folder."""
    git(folder, "add", ".")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message=all")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments], catch_exceptions=False)


def rows(*arguments: object) -> list[dict[str, Any]]:
    """What differs from the last commit, in packed kernels."""
    result = run("diff", "HEAD", *arguments, "--layouts", "packed", "--json")
    found: list[dict[str, Any]] = json.loads(result.stdout)
    assert result.exit_code == bool(found)
    return found


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_kernels_of_every_family_are_compared(repository: Path) -> None:
    """Those of other families in the variants that the spec's problems need."""
    specs = repository / "specs" / "shape_layout"
    shutil.copytree(installed("baracuda.specs") / "shape_layout", specs)
    edit(specs / "repeat.yaml", "i8, i16, i32, i64, u8, u16, u32, u64, bool, f8e4m3, f8e5m2, c64, c128]", "c128]")
    write(Project.read(repository / "specs").files, repository / "generated")
    commit(repository)
    assert run("diff", "HEAD").exit_code == 0
    edit(repository / "generated/shape_layout/repeat.cu", "namespace baracuda {\n", "namespace baracuda {\n// said\n")
    found = rows("repeat")
    assert found and {row["what"] for row in found} == {"source only"}
    assert {row["sku"].split("/")[1] for row in found} == {"repeat"}


def test_files_with_a_condition_around_each_entry_point(repository: Path) -> None:
    """So they were once: the kernel of the condition is compared, and one that has none is new."""
    path, macro = repository / f"{OP}.cu", "BARACUDA_SYMBOL"
    text = path.read_text()
    shown = "rms_norm_f32_row32x4x4"
    included = "#include <baracuda/row/kernel.cuh>\n"
    entry = (INCLUDE / "baracuda/row/kernel.cuh").read_text().partition("#pragma once\n")[2]
    path.write_text(text.replace(included, f"#ifdef SKU_{shown}\n{entry.replace(macro, shown)}#endif\n"))
    commit(repository)
    path.write_text(text)
    found = {row["kernel"]: row["what"] for row in rows()}
    assert len(found) == TILES and found.pop(shown) == "source only"
    assert {*found.values()} == {"added"}


def refused(*arguments: str) -> str:
    """The one line with which `diff` ends when it compares nothing."""
    result = run("diff", *arguments)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    return result.stderr


def test_unknown_layouts_are_refused(repository: Path) -> None:
    assert "no layout 'flat'; known are packed, dense, strided, gathered" in refused("HEAD", "--layouts", "flat")


def test_equal_trees_differ_in_nothing(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled for that, and it does not matter where in the repository one is."""
    compared: list[object] = []
    monkeypatch.setattr(diff_module, "collect", lambda jobs, on_done: compared.extend(jobs))
    assert run("diff", "HEAD").output.endswith(f"{4 * TILES} kernels are as in HEAD\n")
    monkeypatch.chdir(repository / "specs")
    assert run("diff", "HEAD").exit_code == 0
    assert run("diff", "HEAD", "--out", "../generated", "--arch", "sm_80", "--arch", "sm_90").exit_code == 0
    assert compared == []


def test_a_comment_is_source_only(repository: Path) -> None:
    """The file differs, what is made of it does not."""
    edit(repository / f"{OP}.cu", "namespace baracuda {\n", "namespace baracuda {\n// said\n")
    found = rows()
    assert [row["what"] for row in found] == ["source only"] * TILES
    assert all(old == new for row in found for old, new in (row["ptx"], row["registers"], row["digest"]))
    assert all(old != new for row in found for old, new in (row["source"],))
    shown = run("diff", "HEAD", "--layouts", "packed")
    assert shown.exit_code == 1 and shown.output.count("source only") == TILES + 1
    code = run("diff", "HEAD", "--layouts", "packed", "--machine-code")
    assert code.exit_code == 0 and code.stdout == f"0 kernels are as in HEAD, {TILES} source only\n"


def test_other_arithmetic_is_a_change(repository: Path) -> None:
    """PTX and digest differ, and the table shows both; what was is of the revision, not of the working tree."""
    edit(repository / f"{OP}.cu", "math::fma(x_, x_,", "math::fma(x_, x_ * x_,")
    found = rows("rms_norm")
    assert [row["what"] for row in found] == ["changed"] * TILES
    assert all(old != new for row in found for old, new in (row["ptx"], row["digest"]))
    git(repository, "checkout", "--quiet", "generated")
    assert rows() == []


def test_kernels_come_and_go(repository: Path) -> None:
    """With their element types, and with their op."""
    spec = repository / "specs/normalization/rms_norm.yaml"
    edit(spec, "dtypes: [f32]", "dtypes: [f64]")
    write(Project.read(repository / "specs").files, repository / "generated")
    found = {(row["what"], row["sku"].split("/")[3]): row for row in rows()}
    assert {*found} == {("added", "f64"), ("removed", "f32")}
    assert found["added", "f64"]["digest"][0] is None and found["removed", "f32"]["digest"][1] is None
    spec.unlink()
    assert [row["what"] for row in rows()] == ["removed"] * TILES


def test_headers_are_part_of_a_source(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edited header that a kernel reaches counts, one that it does not reach does not."""
    monkeypatch.setattr(diff_module, "INCLUDE", repository / "include")
    assert rows() == []
    (repository / "include/baracuda/other.cuh").write_text("// unreached")
    assert rows() == []
    edit(repository / "include/baracuda/math.cuh", "::sqrtf", "::cbrtf")
    assert [row["what"] for row in rows()] == ["changed"] * TILES


def test_nothing_of_the_revision_is_executed(repository: Path) -> None:
    """A committed module that would end the process is only read."""
    module = repository / f"{OP}.py"
    text = module.read_text()
    module.write_text(
        text.replace("import baracuda.runtime as rt\n", "import baracuda.runtime as rt\nraise SystemExit\n")
    )
    commit(repository)
    module.write_text(text)
    assert run("diff", "HEAD").exit_code == 0


def test_what_does_not_compile_is_said(repository: Path) -> None:
    """It is a difference, not the end of the comparison."""
    edit(repository / f"{OP}.cu", "namespace baracuda {\n", "namespace baracuda {\noops\n")
    found = rows()
    assert [row["what"] for row in found] == ["does not compile"] * TILES
    assert all(row["digest"][0] and row["digest"][1] is None for row in found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "no revision 'nowhere' in "),
        (["--", "--all"], "no revision '--all' in "),
        (["HEAD", "rms_nrom"], "did you mean 'rms_norm'?"),
        (["HEAD", "--out", "elsewhere"], "no generated kernels in "),
        (["HEAD", "--layouts", "flat"], "no layout 'flat'; known are packed, dense, strided, gathered"),
    ],
)
def test_requests_that_cannot_be_met(repository: Path, arguments: list[str], message: str) -> None:
    """One line, exit 1, nothing on stdout."""
    assert message in refused(*arguments)


def test_outside_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to compare with."""
    monkeypatch.chdir(tmp_path)
    result = run("diff", "HEAD")
    assert result.exit_code == 1 and "is in no git repository" in result.stderr
