"""Invariant: nothing is taken from a cache that others may write, and nothing in a cache makes a command write."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner, Result

from baracuda.checking.fuzz.cache_kinds import filled
from baracuda.cli.main import main
from baracuda.cli.memo import Question
from baracuda.codegen.project import installed
from baracuda.runtime.cache import folder as cache_folder
from baracuda.runtime.cache.entries import EntryStore
from baracuda.runtime.cache.folder import CacheFolder, entries
from baracuda.runtime.cache.lock import key_lock
from baracuda.runtime.cache.publish import publish
from baracuda.runtime.compile.headers import header_digest
from baracuda.runtime.errors import BaracudaError

KEY, OTHER, BODY = bytes(range(32)), b"o" * 32, b"machine code"
Run = Callable[..., Result]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def store(root: Path) -> EntryStore:
    """A store with one entry."""
    made = EntryStore(root / "cubin")
    made.put(KEY, BODY)
    assert made.get(KEY) == BODY
    return made


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def levels(store: EntryStore) -> list[Path]:
    """Every folder from the cache's root to the one entry."""
    (entry,) = entries(store.folder)
    found = [entry.path.parent]
    while found[-1] != store.folder.parent:
        found.append(found[-1].parent)
    return found


def refused(store: EntryStore, what: str) -> None:
    """Reading, writing and the commands say in one line which folder it is, and what to do."""
    for call in (lambda: store.get(KEY), lambda: store.put(KEY, BODY)):
        with pytest.raises(BaracudaError, match=what) as caught:
            call()
        message = str(caught.value)
        assert "\n" not in message and "BARACUDA_CACHE_DIR" in message and "BARACUDA_SHARED_CACHE=1" in message


def test_modes_do_not_follow_the_umask(open_umask: None, store: EntryStore) -> None:
    with store.lock(KEY):
        found = list(store.folder.parent.rglob("*"))
    modes = {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_dir()}
    assert modes == {0o700} and {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_file()} == {0o600}


@pytest.mark.parametrize("level", range(4))
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o722])
def test_folder_that_others_may_write_is_refused(store: EntryStore, level: int, mode: int) -> None:
    folder = levels(store)[level]
    folder.chmod(mode)
    refused(store, f"{folder} may be written by (all|others)")


def test_shared_cache_is_asked_for(store: EntryStore, monkeypatch: pytest.MonkeyPatch, open_umask: None) -> None:
    for folder in levels(store):
        folder.chmod(0o777)
    monkeypatch.setenv("BARACUDA_SHARED_CACHE", "1")
    assert store.get(KEY) == BODY
    store.put(OTHER, BODY)
    assert {path.stat().st_mode & 0o777 for path in store.folder.rglob("6f*/*")} == {0o666}


@needs_root
@pytest.mark.parametrize("level", range(4))
def test_folder_of_another_user_is_refused(store: EntryStore, level: int) -> None:
    folder = levels(store)[level]
    os.chown(folder, 12345, -1)
    refused(store, f"{folder} belongs to user 12345")


@needs_root
def test_file_of_another_user_is_not_read(store: EntryStore) -> None:
    (entry,) = entries(store.folder)
    os.chown(entry.path, 12345, -1)
    assert store.get(KEY) is None


def test_links_lead_to_no_other_folder(store: EntryStore, tmp_path: Path) -> None:
    """A link to a folder of one's own is as good as the folder; the target is looked at like any other."""
    moved = store.folder.rename(tmp_path / "moved")
    store.folder.symlink_to(moved)
    assert store.get(KEY) == BODY
    moved.chmod(0o777)
    refused(store, f"{moved} may be written by all")
    moved.chmod(0o770)
    refused(store, f"{store.folder} may be written by others")
    moved.chmod(0o700)
    tmp_path.chmod(0o777)
    refused(store, f"{tmp_path} may be written by all")
    tmp_path.chmod(0o1777)
    assert store.get(KEY) == BODY
    if os.geteuid() == 0:
        os.chown(store.folder, 12345, -1, follow_symlinks=False)
        refused(store, f"{store.folder} is a link of user 12345")


def test_entry_that_is_no_file_is_none(store: EntryStore) -> None:
    """A link, a pipe or a folder in an entry's place is not followed, waited for or served."""
    (entry,) = entries(store.folder)
    kept = entry.path.rename(entry.path.with_name("kept"))
    entry.path.symlink_to(kept)
    assert store.get(KEY) is None
    entry.path.unlink()
    os.mkfifo(entry.path)
    assert store.get(KEY) is None
    entry.path.unlink()
    entry.path.mkdir()
    assert store.get(KEY) is None


def built(index: int) -> str:
    """The name of a library."""
    return f"{index:040x}.so"


def test_least_used_entries_go(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Size and age are bounded, by what was used last; a clock that was wrong keeps nothing for ever."""
    monkeypatch.setattr(cache_folder, "MOST_BYTES", 32_000)
    files, body, past = CacheFolder(root / "host"), bytes(1000), time.time() - 1000
    for index in range(100):
        files.write(built(index), body)
        os.utime(root / "host" / built(index), (past + index, past + index))
    left = [one.path.name for one in entries(root / "host")]
    assert 28 <= len(left) <= 34 and left == [built(99 - index) for index in range(len(left))]
    for name, stamp in ((built(99), 1), (built(98), 2**33)):
        os.utime(root / "host" / name, (stamp, stamp))
    cache_folder.prune(root / "host")
    used = {one.path.name: one.used for one in entries(root / "host")}
    assert built(99) not in used and past < used[built(98)] < 2**32


def test_reading_keeps_an_entry(root: Path) -> None:
    files = CacheFolder(root / "host")
    for name in (built(0), built(1)):
        files.write(name, bytes(1000))
        os.utime(root / "host" / name, (1.7e9, 1.7e9))
    assert files.read(built(0)) is not None
    cache_folder.prune(root / "host", nbytes=1500, days=1e6)
    assert [one.path.name for one in entries(root / "host")] == [built(0)]


def test_what_killed_writers_left_goes(tmp_path: Path) -> None:
    left, held = (tmp_path / f".y.cu.{name}.baracuda-tmp" for name in ("01234567", "89abcdef"))
    left.write_text("half")
    with key_lock(held):
        publish(tmp_path / "y.cu", "whole")
        assert {path.name for path in tmp_path.iterdir()} == {"y.cu", held.name}


def test_files_that_others_left_stay(tmp_path: Path) -> None:
    """Only names that nobody else gives are taken for temporary files."""
    names = {".y.cu.swp", ".y.cu.01234567", ".y.cu.0123456.baracuda-tmp", ".z.cu.01234567.baracuda-tmp"}
    for name in names:
        (tmp_path / name).write_text("mine")
    publish(tmp_path / "y.cu", "whole")
    assert {path.name for path in tmp_path.iterdir()} == {*names, "y.cu"}


def test_header_edited_in_place_is_read_again(tmp_path: Path) -> None:
    """Neither its size nor its time of modification need to tell."""
    header, source = tmp_path / "a.cuh", "#include <a.cuh>\n"
    found = set()
    for text in ("#define A 1\n", "#define A 2\n", "#define A 3\n"):
        header.write_text(text)
        os.utime(header, (1e9, 1e9))
        found.add(header_digest(source, tmp_path))
    assert len(found) == 3


@pytest.fixture
def run(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command line where ./specs is alibi of one dtype."""
    text = (installed("baracuda.specs") / "attention" / "alibi.yaml").read_text()
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs/alibi.yaml").write_text(text.replace("dtypes: [f32, f16, bf16, f64]", "dtypes: [f32]"))
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, [*arguments], catch_exceptions=False)


@pytest.mark.parametrize(
    "answer",
    [
        [1, {"../evil.py": "planted", "evil.py": "planted"}, ""],
        [1, 0, {"../evil.py": "planted"}, ""],
        [1, 0, "", ""],
        [True, [], 0, 1],
        {"ops": 1},
        "../evil.py",
        [[[]]] * 4,
    ],
)
def test_planted_answer_writes_nothing(run: Run, tmp_path: Path, answer: object) -> None:
    """Whatever is remembered, `generate` writes what the specs say and nothing else."""
    assert run("generate").exit_code == 0
    right = {path: path.read_bytes() for path in (tmp_path / "generated").rglob("*") if path.is_file()}
    (tmp_path / "generated/__init__.py").unlink()
    Question(Path("specs"), (), ("generate",)).remember(answer)
    assert run("generate").exit_code == 0
    assert {path: path.read_bytes() for path in (tmp_path / "generated").rglob("*") if path.is_file()} == right
    assert not list(tmp_path.rglob("evil.py"))


def test_cache_command(run: Run, store: EntryStore) -> None:
    """It shows what there is, finds what is damaged, and removes that or what is too much."""
    store.put(OTHER, BODY)
    shown = json.loads(run("cache", "show", "--json").output)
    assert shown["folder"] == str(store.folder.parent) and shown["kinds"][0]["entries"] == 2
    assert run("cache", "verify").output == "2 entries, 0 damaged\n"
    first, second = entries(store.folder)
    first.path.write_bytes(second.path.read_bytes())
    found = run("cache", "verify")
    assert found.exit_code == 1 and found.output == f"{first.path}\n2 entries, 1 damaged\n"
    assert run("cache", "verify", "--remove").exit_code == 0 and run("cache", "verify").exit_code == 0
    assert "1 entries removed" in run("cache", "prune", "--size", "0").output and not entries(store.folder)
    store.folder.chmod(0o777)
    for command in ("show", "verify", "prune"):
        refusal = run("cache", command)
        assert refusal.exit_code == 1 and f"{store.folder} may be written by " in refusal.stderr
        assert len(refusal.stderr.splitlines()) == 1
    assert f"{store.folder.parent}" in run("doctor").output and run("generate").exit_code == 0
    store.folder.parent.chmod(0o777)
    told = run("doctor")
    assert told.exit_code == 1 and "may be written by all" in " ".join(told.output.split())
    assert run("generate").exit_code == 0


def test_every_kind_of_entry_is_listed(root: Path) -> None:
    held = [one for kind in filled(root, Random(0)).values() for one in kind]
    assert {one.path for one in entries(root)} == {one.path for one in held}


def test_only_what_the_cache_wrote_is_removed(run: Run, store: EntryStore, tmp_path: Path) -> None:
    """Another's files stay, whatever folder the variable names: beside ours, below ours, and where links lead."""
    root, elsewhere = store.folder.parent, tmp_path / "elsewhere"
    strangers = [elsewhere / built(0), elsewhere / "locks" / built(0), elsewhere / "tmp" / ("0" * 16) / "a"]
    strangers += [root / name for name in ("thesis.tex", ".profile", "src/main.c", f"src/{built(0)}", "cubin/notes")]
    strangers += [root / "cubin" / name for name in ("locks/a", "tmp/a/b", "deep/locks/a", "entries/00/.a.swp")]
    for path in strangers:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text("mine")
        os.utime(path, (1, 1))
    (root / "host").symlink_to(elsewhere)
    (root / "cubin" / "entries" / "ff").symlink_to(elsewhere)
    assert run("cache", "verify", "--remove").output == "1 entries, 0 damaged\n"
    assert "1 entries removed" in run("cache", "prune", "--size", "0").output
    (root / "host").unlink()
    (root / "host").mkdir()
    (root / "host" / "locks").symlink_to(elsewhere / "locks")
    (root / "host" / "tmp").symlink_to(elsewhere / "tmp")
    cache_folder.sweep(root / "host")
    assert all(path.read_text() == "mine" for path in strangers)


def test_names_are_shown_in_lines(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that are no text, and what a terminal obeys, are printed as question marks."""
    root = tmp_path / os.fsdecode(b"caf\xe9\x1b[31m\ncache")
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(root))
    EntryStore(root / "cubin").put(KEY, BODY)
    (root / "cubin" / os.fsdecode(b"\xff\x1b")).touch()
    (entry,) = entries(root)
    entry.path.write_bytes(b"damaged")
    for command in ("verify", "show"):
        found = run("cache", command)
        assert "caf??[31m cache" in found.output and "\x1b" not in found.output
    folder = CacheFolder(tmp_path / os.fsdecode(b"\xff"))
    folder.write(built(0), BODY)
    assert folder.read(built(0)) == BODY
    root.chmod(0o777)
    assert "\x1b" not in (refusal := run("cache", "verify").stderr) and len(refusal.splitlines()) == 1


@pytest.mark.parametrize("option", ["--size", "--days"])
@pytest.mark.parametrize("number", ["nan", "inf", "1e308"])
def test_numbers_without_bounds_are_refused(run: Run, store: EntryStore, option: str, number: str) -> None:
    refusal = run("cache", "prune", option, number)
    assert refusal.exit_code == 1 and len(refusal.stderr.splitlines()) == 1
    assert f"{option} {float(number):g}: must be a number from 0 to 1e+12" in refusal.stderr
    assert store.get(KEY) == BODY


def test_locks_of_a_shared_cache_follow_the_umask(
    store: EntryStore, monkeypatch: pytest.MonkeyPatch, open_umask: None
) -> None:
    monkeypatch.setenv("BARACUDA_SHARED_CACHE", "1")
    with store.lock(KEY), CacheFolder(store.folder).building():
        locks = [path for path in store.folder.rglob("*") if path.is_file() and path.parent.name in ("locks", "tmp")]
        assert [stat.S_IMODE(path.stat().st_mode) for path in locks] == [0o666] * 2


def test_fault_table() -> None:
    """Everything that is done to caches is held off."""
    command = [sys.executable, "-m", "baracuda.checking.fuzz.cache_faults", "60", "1"]
    around = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    rows = json.loads(subprocess.run(command, env=around, check=True, capture_output=True, timeout=100).stdout)
    assert len(rows) >= 19 and [row for row in rows if row["contained"] != row["tried"]] == []
    assert all(row["tried"] or row["skipped"] for row in rows)
