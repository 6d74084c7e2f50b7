"""Invariant: `diff` names each row kernel that is not as in a revision, and runs nothing of that revision."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from baracuda.checking.listing.variants import sources_of
from baracuda.cli.kernels import diff as diff_module
from baracuda.cli.kernels.generated_table import other_ops, read_table
from baracuda.cli.main import main
from baracuda.codegen.emit.generate import write
from baracuda.codegen.lower.op import RowOp
from baracuda.codegen.project import Project, installed, plans_of
from baracuda.runtime import REGISTRY
from baracuda.runtime.compile.cubin import INCLUDE

PROJECT = Project.read(installed("baracuda.specs"))
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
    spec = (installed("baracuda.specs") / "normalization" / "rms_norm.yaml").read_text()
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


def add_maps(repository: Path) -> Path:
    """Ops of another family, generated into the same folder: where they are."""
    folder = repository / "generated" / "shape_layout"
    shutil.copytree(installed("baracuda.generated") / "shape_layout", folder)
    return folder


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


def test_the_table_is_read_as_it_registers() -> None:
    """Without importing: the same kernels, in order of preference, with the same sources as `compile` takes."""
    plans_of("baracuda.generated")
    held = list(read_table(installed("baracuda.generated"), "baracuda.generated"))
    rows = {name: op for name, op in PROJECT.ops.items() if isinstance(op, RowOp)}
    registered = [row for row in REGISTRY if row.source.package.startswith("baracuda.generated.")]
    assert [h.row.sku for op in rows for h in held if h.row.sku.op == op] == [
        row.sku for op in rows for row in registered if row.sku.op == op
    ]
    assert {h.row.sku.op for h in held} == {*rows}
    for one in held:
        assert one.sources() == sources_of(REGISTRY.lookup(one.row.sku), rows[one.row.sku.op])


def test_ops_of_other_families_are_known() -> None:
    """Each op is either in the table or named with its family, so that none is passed over in silence."""
    found = other_ops(installed("baracuda.generated"))
    assert found == {name: op.family for name, op in PROJECT.ops.items() if not isinstance(op, RowOp)}
    assert {"map", "body"} == {*found.values()}


def test_ops_of_other_families_are_said_to_be_left_out(repository: Path) -> None:
    """On stderr, and only when nothing was asked for by name; the row kernels are compared all the same."""
    add_maps(repository)
    said = "only kernels of family row are compared, not those of repeat, repeat_backward\n"
    result = run("diff", "HEAD")
    assert (result.exit_code, result.stdout) == (0, f"{4 * TILES} kernels are as in HEAD\n")
    assert result.stderr == said
    assert run("diff", "HEAD", "--json").stdout.strip() == "[]"
    assert run("diff", "HEAD", "rms_norm").stderr == ""
    shutil.rmtree(repository / "generated" / "normalization")
    commit(repository)
    result = run("diff", "HEAD")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "0 kernels are as in HEAD\n", said)


def test_an_op_of_another_family_is_refused(repository: Path) -> None:
    """With its family, wherever it is: in the working tree, or in the revision alone."""
    folder = add_maps(repository)
    said = "'repeat' is of family map; `diff` compares kernels of family row"
    assert said in refused("HEAD", "rms_norm", "repeat") and "did you mean 'repeat'?" in refused("HEAD", "repeats")
    commit(repository)
    shutil.rmtree(folder)
    assert said in refused("HEAD", "repeat")


def refused(*arguments: str) -> str:
    """The one line with which `diff` ends when it compares nothing."""
    result = run("diff", *arguments)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    return result.stderr


def test_equal_trees_differ_in_nothing(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled for that, and it does not matter where in the repository one is."""
    compared: list[object] = []
    monkeypatch.setattr(diff_module, "collect", lambda jobs, on_done: compared.extend(jobs))
    assert run("diff", "HEAD").output == f"{4 * TILES} kernels are as in HEAD\n"
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
    assert shown.exit_code == 1 and shown.output.count("source only") == TILES


def test_other_arithmetic_is_a_change(repository: Path) -> None:
    """PTX and digest differ, and the table shows both; what was is of the revision, not of the working tree."""
    edit(repository / f"{OP}.cu", "math::fma(x_, x_,", "math::fma(x_, x_ * x_,")
    found = rows("rms_norm")
    assert [row["what"] for row in found] == ["changed"] * TILES
    assert all(old != new for row in found for old, new in (row["ptx"], row["digest"]))
    git(repository, "checkout", "--quiet", "generated")
    assert rows() == []


def test_kernels_come_and_go(repository: Path) -> None:
    """A tile of another name is one kernel more and one less."""
    for name in (f"{OP}.cu", f"{OP}.py"):
        path = repository / name
        path.write_text(path.read_text().replace("row32x4x4", "row32x8x4").replace("<32, 4, 4", "<32, 8, 4"))
    found = {(row["what"], row["sku"].split("/")[7]): row for row in rows()}
    assert found["added", "row32x8x4r8"]["digest"][0] is None
    assert found["removed", "row32x4x4r8"]["digest"][1] is None
    (repository / f"{OP}.cu").unlink()
    (repository / f"{OP}.py").unlink()
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


def test_a_table_of_unknown_form_is_named(repository: Path) -> None:
    """With its place, for it may be of a revision that registered kernels otherwise."""
    edit(repository / f"{OP}.py", "row32x4x4r8", "warp32")
    result = run("diff", "HEAD")
    assert result.exit_code == 1 and result.stderr.count("\n") == 1
    assert "normalization/rms_norm.py:" in result.stderr and "warp32" in result.stderr
