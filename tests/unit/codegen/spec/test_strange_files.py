"""Invariant: files of a stranger's project cost little to look at, and what stops halfway leaves nothing in the way."""

from __future__ import annotations

import os
import signal
import sys
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from repository import SPECS

from baracuda.cli.main import main
from baracuda.cli.make.new import new
from baracuda.cli.make.schema import FILE, renew
from baracuda.cli.make.settled import Remembered
from baracuda.cli.tools import site as site_command
from baracuda.codegen.emit.output import MANIFEST, compare, manifest_of, write
from baracuda.codegen.spec.schema import schema_text
from baracuda.runtime import SpecError
from baracuda.runtime.plans.tuned import MARK

TEXT = f'"""{MARK} from x. Do not edit."""\n'


def generated(*paths: str) -> dict[str, str]:
    return {**dict.fromkeys(paths, TEXT), MANIFEST: manifest_of(paths)}


def test_a_deep_schema_is_replaced(tmp_path: Path) -> None:
    """It is not what it should be, however deep it goes."""
    (tmp_path / FILE).write_text(f'{{"{MARK}": ' + "[" * 100_000)
    assert renew(tmp_path, schema_text()) == [tmp_path / FILE]
    assert (tmp_path / FILE).read_text() == schema_text()


def test_of_a_large_schema_little_is_read(tmp_path: Path) -> None:
    """Neither to compare it nor to remember it."""
    with (tmp_path / FILE).open("wb") as file:
        file.truncate(256 << 20)
    tracemalloc.start()
    try:
        assert renew(tmp_path, schema_text()) == []
        Remembered.of(0, 0, 0, {}, tmp_path, renewed=False)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_of_large_generated_files_little_is_read(tmp_path: Path) -> None:
    """More than what is written is not what was written."""
    out = tmp_path / "pkgs"
    write(generated("op.py"), out)
    with (out / "op.py").open("ab") as file:
        file.truncate(256 << 20)
    tracemalloc.start()
    try:
        assert Remembered.of(0, 0, 0, {}, tmp_path, renewed=False).changes(tmp_path, out) is None
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_a_folder_of_anothers_output_is_refused(tmp_path: Path) -> None:
    """Which holds what is listed above it; beside its categories there is room."""
    write(generated("custom/op.py", "custom/deep/op.py"), tmp_path / "pkgs")
    for inner in ("custom", "custom/deep"):
        with pytest.raises(SpecError, match=r"holds files that .*pkgs.*lists; choose another folder"):
            compare(generated("op.py"), tmp_path / "pkgs" / inner)
    assert write(generated("op.py"), tmp_path / "pkgs" / "own").written == (MANIFEST, "op.py")


@pytest.mark.parametrize("name", ["a" * 303 + ".py", "/".join("a" * 400_000) + ".py"])
def test_names_that_no_file_can_have_are_no_files(tmp_path: Path, name: str) -> None:
    """However long the list's names are."""
    (tmp_path / MANIFEST).write_text(manifest_of([name]))
    assert write(generated("op.py"), tmp_path).removed == ()


def killed_at(event: int, specs: Path) -> bool:
    """Whether a process that begins an op was killed, at this audited event."""
    child = os.fork()
    if child == 0:
        left = [event]

        def hook(name: str, _: object) -> None:
            if name.startswith(("open", "os.", "fcntl.")) and name != "os.kill":
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        new("row_center", "row", "custom", specs)
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


def test_a_killed_new_leaves_its_name_free(tmp_path: Path) -> None:
    """Or a whole spec, and the schema that this names; wherever it was killed."""
    event, spec = 0, "custom/row_center.yaml"
    while killed_at(event, specs := tmp_path / str(event)):
        if not (specs / spec).exists():
            new("row_center", "row", "custom", specs)
        assert (specs / spec).read_text().rstrip().endswith("4096]}]}") and (specs / FILE).is_file()
        event += 1
    assert event > 3


def test_a_spec_of_the_same_name_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that comes while ours is written, and where there are no hard links."""
    path = tmp_path / "custom" / "row_center.yaml"
    path.parent.mkdir()
    path.write_text("theirs")
    monkeypatch.setattr(Path, "rglob", lambda *_: [])
    for _ in range(2):
        with pytest.raises(SpecError, match="already exists"):
            new("row_center", "row", "custom", tmp_path)
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(PermissionError(1, "no links")))
    assert path.read_text() == "theirs"
    path.unlink()
    assert new("row_center", "row", "custom", tmp_path).read_text().startswith("# yaml")
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_a_site_that_failed_can_be_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folders are its own from the start."""

    def stopped(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        raise SpecError("no space left")

    monkeypatch.setattr(site_command, "require_tools", lambda: None)
    monkeypatch.setattr(site_command, "pages", lambda _: SimpleNamespace(write=stopped))
    folders = ["--specs", str(SPECS / "softmax"), "--out", str(tmp_path / "site"), "--markdown", str(tmp_path / "md")]
    for _ in range(2):
        assert "no space left" in CliRunner().invoke(main, ["site", *folders]).stderr
