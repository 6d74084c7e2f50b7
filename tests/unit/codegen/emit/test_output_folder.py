"""Invariant: generating removes and replaces what it has written itself, and touches nothing else wherever it lies."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from repository import SAMPLES

from baracuda.codegen.emit.generate import MARK, generate
from baracuda.codegen.emit.output import MANIFEST, Changes, compare, manifest_of, write
from baracuda.runtime import SpecError

TEXT = f'"""{MARK} from x. Do not edit."""\n'


def files(*paths: str) -> dict[str, str]:
    """Generated files with these paths, and their list."""
    return {**dict.fromkeys(paths, TEXT), MANIFEST: manifest_of(paths)}


def listing(out: Path, *paths: str) -> None:
    """Put a list of these into the folder, as nobody but an attacker would."""
    out.mkdir(exist_ok=True)
    (out / MANIFEST).write_text(json.dumps({MARK: "", "files": list(paths)}, indent=1))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "pkgs"


def test_another_projects_folder_stays(out: Path, tmp_path: Path) -> None:
    """Whether its files have our mark or not, and whether it has a list of its own."""
    write(files("theirs/op.py"), out / "project")
    (out / "older").mkdir(parents=True)
    (out / "older" / "op.py").write_text(TEXT)
    assert write(files("mine/op.py"), out).removed == ()
    assert write(files("mine/other.py"), out).removed == ("mine/op.py",)
    assert (out / "project" / "theirs" / "op.py").is_file() and (out / "older" / "op.py").is_file()


def test_nothing_is_written_into_another_projects_folder(out: Path) -> None:
    """Where a category has its name."""
    write(files("op.py"), out / "project")
    with pytest.raises(SpecError, match="'project' is the output folder of another project; rename the category"):
        write(files("project/op.py"), out)
    listing(out, "project/op.py")
    assert write(files("mine/op.py"), out).removed == () and (out / "project" / "op.py").is_file()


def test_what_is_listed_and_is_no_more_generated_goes(out: Path) -> None:
    """With the folder that it leaves empty, and what Python has cached of it."""
    write(files("gone/__init__.py", "gone/deep/op.py", "kept/op.py"), out)
    for folder, name in (("gone/deep", "op"), ("gone", "__init__"), ("kept", "op")):
        (out / folder / "__pycache__").mkdir()
        (out / folder / "__pycache__" / f"{name}.cpython-311.pyc").write_bytes(b"")
    assert write(files("kept/op.py"), out) == Changes(
        (MANIFEST,), ("gone/__init__.py", "gone/deep/op.py"), ("kept/op.py",)
    )
    assert sorted(p.name for p in out.iterdir()) == [MANIFEST, "kept"]


def test_what_is_cached_of_others_stays(out: Path) -> None:
    """A compiled module is no file of ours, even alone."""
    write(files("gone/op.py"), out)
    cached = out / "gone" / "__pycache__" / "theirs.cpython-311.pyc"
    cached.parent.mkdir()
    cached.write_bytes(b"")
    assert write(files(), out).removed == ("gone/op.py",) and cached.is_file()


def test_what_is_listed_without_our_mark_stays(out: Path) -> None:
    """It was replaced by its user's own."""
    write(files("a/op.py"), out)
    (out / "a" / "op.py").write_text("mine = 1\n")
    assert write(files(), out).removed == () and (out / "a" / "op.py").read_text() == "mine = 1\n"


OUTSIDE = [
    "../victim.py",
    "a/../../victim.py",
    "/{}/victim.py",
    "./../victim.py",
    "a\\..\\victim.py",
    "..",
    "",
    ".",
    "//",
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_list_names_nothing_outside(out: Path, tmp_path: Path, path: str) -> None:
    """Neither to be removed nor to be written."""
    victim, named = tmp_path / "victim.py", path.format(tmp_path)
    victim.write_text(TEXT)
    listing(out, named)
    assert write(files("a/op.py"), out).removed == () and victim.read_text() == TEXT
    with pytest.raises(SpecError, match="is no place of a generated file"):
        compare({named: TEXT}, out)


@pytest.mark.parametrize("target", ["elsewhere", "pkgs/b"])
def test_links_are_not_followed(out: Path, tmp_path: Path, target: str) -> None:
    """Folders and files, to write and to remove, wherever they lead."""
    folder = tmp_path / target
    folder.mkdir(parents=True)
    (folder / "op.py").write_text(TEXT)
    listing(out, "a/op.py", "file.py")
    (out / "a").symlink_to(folder)
    (out / "file.py").symlink_to(folder / "op.py")
    assert write(files("c/op.py"), out).removed == ()
    with pytest.raises(SpecError, match="'a' is no folder but a file or a symbolic link; move it away"):
        write(files("a/other.py"), out)
    with pytest.raises(SpecError, match="was not generated, so it is not overwritten"):
        write(files("file.py"), out)
    assert os.listdir(folder) == ["op.py"] and (folder / "op.py").read_text() == TEXT


def test_a_file_where_a_folder_is_to_be_is_refused(out: Path) -> None:
    """Before anything is written."""
    out.mkdir()
    (out / "b").write_text("mine")
    with pytest.raises(SpecError, match="'b' is no folder"):
        write(files("a/op.py", "b/op.py"), out)
    assert os.listdir(out) == ["b"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"files": ["a/op.py"]}',
        b'{\n "@generated by baracuda-gen": "",\n "files": 3}',
        b'{\n "@generated by baracuda-gen": "",\n "files": [["a/op.py"], null, {}]}',
        b'{\n "@generated by baracuda-gen": "",\n "files": ["a/op.py"' + b" " * (1 << 20) + b"]}",
    ],
)
def test_a_damaged_list_removes_nothing(out: Path, content: bytes) -> None:
    """It is written anew where it is ours, and left where it is not."""
    write(files("a/op.py"), out)
    (out / MANIFEST).write_bytes(content)
    if content and b"@generated" not in content:
        with pytest.raises(SpecError, match=f"{MANIFEST}: was not generated"):
            write(files("b/op.py"), out)
    else:
        assert write(files("b/op.py"), out).removed == ()
        assert (out / MANIFEST).read_text() == manifest_of(["b/op.py"])
    assert (out / "a" / "op.py").is_file()


def test_what_was_written_before_an_interruption_is_known(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it goes when its spec does."""
    write(files("a/op.py"), out)
    real = os.replace

    def stops(source: str, target: Path) -> None:
        if Path(target).name == "z.py":
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(os, "replace", stops)
    with pytest.raises(KeyboardInterrupt):
        write(files("b/op.py", "b/z.py"), out)
    monkeypatch.undo()
    assert write(files("c/op.py"), out).removed == ("a/op.py", "b/op.py")


def test_a_folder_of_an_older_version_gets_its_list(tmp_path: Path, out: Path) -> None:
    """Its files are replaced where they are to be written, and none is removed."""
    (out / "a").mkdir(parents=True)
    for name in ("op.py", "old.py"):
        (out / "a" / name).write_text(TEXT + "# old\n")
    assert write(files("a/op.py"), out) == Changes((MANIFEST, "a/op.py"), (), ())
    assert (out / "a" / "old.py").is_file()


def test_a_project_lists_its_files(tmp_path: Path, out: Path) -> None:
    """All of them, and the list itself; the same in every run."""
    specs = SAMPLES
    written = generate(specs, out).written
    assert json.loads((out / MANIFEST).read_text())["files"] == list(written)
    assert not generate(specs, out).any
