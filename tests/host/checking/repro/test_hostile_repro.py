"""Invariant: a repro file of a stranger imports nothing, keeps to its limits, and is tried or refused in a line."""

from __future__ import annotations

import io
import json
import os
import resource
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from baracuda.checking.problems.problem import Problem
from baracuda.checking.problems.subject import Subject
from baracuda.checking.repro import bundle
from baracuda.checking.repro.bundle import read, replay, write
from baracuda.checking.trials.memory import HostMemory
from baracuda.checking.verify import checks
from baracuda.cli.main import main
from baracuda.codegen.project import installed, plans_of
from baracuda.codegen.spec.load import load_folder
from baracuda.runtime import BaracudaError

PACKAGE, FACTS = "baracuda.generated", "repro.json"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What a file holds that is as it should be."""
    plans_of(PACKAGE)
    loaded = load_folder(installed("baracuda.specs"))
    problem = Problem.of(Subject(loaded["softmax"], loaded, PACKAGE), {"input_shape": (3, 4), "softmax_axis": 1}, "f32")
    trial = checks.drawn(problem, "normal")
    return write(trial, tmp_path_factory.mktemp("good"), "nothing", HostMemory(), {}).read_bytes()


def parts(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def packed(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return path


def with_facts(good: bytes, path: Path, change: Callable[[Any], object]) -> Path:
    members = parts(good)
    facts = json.loads(members[FACTS])
    members[FACTS] = json.dumps(changed if (changed := change(facts)) is not None else facts).encode()
    return packed(path, members)


def without(facts: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name != key}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["repro", *map(str, arguments)])


def refused(result: Result, path: Path) -> str:
    """The line that says why."""
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1), (result.exception, result.output)
    assert str(path) in result.stderr and len(result.stderr) < 2000 and isinstance(result.exception, SystemExit)
    return result.stderr


def test_the_file_chooses_no_package(good: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an installed one nor one beside it: what is named is said."""
    for folder in ("evil", "evil/generated"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("import pathlib; pathlib.Path('PWNED').touch()")
    monkeypatch.chdir(tmp_path)
    path, before = with_facts(good, tmp_path / "a.zip", lambda f: f.update(package="evil.generated")), list(sys.path)
    result = run(path)
    assert result.exit_code == 0 and result.stdout.endswith("before: nothing\npasses now\n")
    assert "it failed in package 'evil.generated' and runs in 'baracuda.generated'; --package" in result.stderr
    assert not (tmp_path / "PWNED").exists() and "evil" not in sys.modules and sys.path == before


def test_the_command_to_try_again_names_the_package() -> None:
    """Where it is another one than ours."""
    assert replay(Path("a.zip"), None, PACKAGE) == "baracuda-gen repro a.zip"
    assert replay(Path("a.zip"), None, "mine.generated") == "baracuda-gen repro a.zip --package mine.generated"


HOSTILE = [
    None,
    True,
    -1,
    2**70,
    1.5,
    "",
    "x" * 10**5,
    "a\nb",
    "../../x",
    [],
    [[]],
    ["x"],
    {},
    {"x": 1},
    {"x": {"x": []}},
]


def keys(good: bytes) -> list[str]:
    return list(json.loads(parts(good)[FACTS]))


def test_each_fact_is_of_its_type_or_refused(good: bytes, tmp_path: Path) -> None:
    """Missing, or of any other value: one line, or a trial; nothing is raised but our own errors."""
    loaded, path = load_folder(installed("baracuda.specs")), tmp_path / "a.zip"
    changes: list[Callable[[Any], object]] = []
    for key in keys(good):
        changes.append(lambda f, k=key: without(f, k))
        changes += [lambda f, k=key, v=value: f.update({k: v}) for value in HOSTILE]
        changes += [lambda f, k=key, v=value: f[k].update(x=v) if isinstance(f[k], dict) else f for value in HOSTILE]
    for value in HOSTILE:
        changes.append(lambda f, v=value: f["case"].update(input_shape=v))
        changes.append(lambda f, v=value: [v])
    for change in changes:
        with_facts(good, path, change)
        try:
            read(path).trial(loaded, PACKAGE, "host")
        except BaracudaError as error:
            assert "\n" not in str(error) and len(str(error)) < 2000 and str(path) in str(error)


WRONG: dict[str, tuple[Callable[[Any], object], str]] = {
    "a fact too many": (lambda f: f.update(code="x"), "code: Extra inputs are not permitted"),
    "a missing fact": (lambda f: without(f, "tuned"), "tuned: Field required"),
    "a device": (lambda f: f.update(device="/dev/sda"), "device: "),
    "a member outside": (lambda f: f["numbers"]["inputs"].update({"../x": "f32"}), "numbers.inputs.../x"),
    "a kind": (lambda f: f["numbers"]["inputs"].update(x="f99"), "unknown kind of numbers 'f99'"),
    "a pattern": (lambda f: f["patterns"].update(x="spiral"), "patterns.x: "),
    "a tensor": (lambda f: f["patterns"].update(z="gap"), "has patterns of z, which the problem does not have"),
    "an axis": (lambda f: f["broadcast"].update(x=5), "has 'x' broadcast along axis 5"),
    "a choice": (lambda f: f["choice"].update(y="i8"), "'y' must hold f32, got i8"),
    "a workspace": (lambda f: f.update(shift_workspace=2**40), "shift_workspace: "),
    "turns": (lambda f: f.update(repeats=10**9), "repeats: "),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said_in_a_line(good: bytes, tmp_path: Path, what: str) -> None:
    """With its place in the file."""
    change, said = WRONG[what]
    path = with_facts(good, tmp_path / "a.zip", change)
    assert said in refused(run(path), path)


def npy(shape: tuple[int, ...], data: bytes = b"") -> bytes:
    """A file whose header says more than there is."""
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return out.getvalue() + data


@pytest.mark.parametrize(
    "data", [npy((2**40,)), npy((-2, -6), b"\0" * 48), npy((2**62, 2**62)), npy((3, 4)), b"\x93NUMPY\x09\0", b"", b"PK"]
)
def test_an_array_is_as_long_as_it_says(good: bytes, tmp_path: Path, data: bytes) -> None:
    """And nothing is allocated for what is not there."""
    path = packed(tmp_path / "a.zip", {**parts(good), "inputs/x.npy": data})
    assert "is no bundle, or a damaged one" in refused(run(path), path)


def test_an_array_of_objects_is_not_loaded(good: bytes, tmp_path: Path) -> None:
    """Which would run what it holds."""
    out = io.BytesIO()
    np.save(out, np.array([print], object), allow_pickle=True)
    path = packed(tmp_path / "a.zip", {**parts(good), "inputs/x.npy": out.getvalue()})
    assert "numbers of dtype object" in refused(run(path), path)


def test_a_small_file_takes_little_memory(good: bytes, tmp_path: Path) -> None:
    """Zeros by the gigabyte are counted before they are unpacked, and so are the extents that a case asks for."""
    before, path = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, tmp_path / "zeros.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in without(parts(good), "inputs/x.npy").items():
            file.writestr(name, data)
        with file.open("inputs/x.npy", "w") as member:
            member.write(npy((bundle.LARGEST // 4,)))
            for _ in range(bundle.LARGEST >> 20):
                member.write(bytes(1 << 20))
    assert path.stat().st_size < 1 << 20
    assert "bytes of numbers; a bundle has" in refused(run(path), path)
    case = {"input_shape": [1 << 20, 1 << 20], "softmax_axis": 1}
    text = f"SoftmaxDescriptor(input_shape=({1 << 20}, {1 << 20}), softmax_axis=1, element='f32')"
    path = with_facts(good, tmp_path / "large.zip", lambda f: f.update(case=case, descriptor=text))
    assert "at most are tried" in refused(run(path), path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


def test_numbers_that_spread_are_refused(good: bytes, tmp_path: Path) -> None:
    """Compared with an output, they would take the product of both."""
    members = parts(good)
    kind = json.loads(members[FACTS])["numbers"]["allowed"]["y"]
    shape = (2,) if kind == "sum" else ()
    array = io.BytesIO()
    np.save(array, np.zeros((*shape, 10**4, 1, 4), np.float64))
    path = packed(tmp_path / "a.zip", {**members, "allowed/y.npy": array.getvalue()})
    assert "has numbers of shape (10000, 1, 4) for 'y'" in refused(run(path), path)


def test_what_is_no_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe is not waited for, and a large file not read."""
    pipe, large = tmp_path / "pipe", tmp_path / "large"
    os.mkfifo(pipe)
    with large.open("wb") as file:
        file.truncate(bundle.LARGEST + 1)
    assert "is not a regular file" in refused(run(pipe), pipe)
    assert "bytes; a bundle has" in refused(run(large), large)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compression_is_refused(good: bytes, tmp_path: Path, method: int) -> None:
    """Python unpacks a whole block of it at once, whatever size the file declares."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as file:
        for name, data in parts(good).items():
            file.writestr(name, data, method if name == "inputs/x.npy" else None)
    assert "has inputs/x.npy compressed by another method than deflate" in refused(run(path), path)


def test_a_member_is_as_long_as_it_says(good: bytes, tmp_path: Path) -> None:
    """More of it is not unpacked."""
    path, data = tmp_path / "a.zip", {**parts(good), "inputs/x.npy": bytes(256 << 20)}
    packed(path, data)
    damaged = path.read_bytes().replace((256 << 20).to_bytes(4, "little"), (1000).to_bytes(4, "little"))
    path.write_bytes(damaged)
    tracemalloc.start()
    try:
        assert "a damaged one" in refused(run(path), path)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_members_are_few(good: bytes, tmp_path: Path) -> None:
    """Each takes memory, read or not."""
    path = packed(tmp_path / "a.zip", parts(good) | {f"{n:0100}": b"" for n in range(10_000)})
    assert "bytes of names; a bundle has" in refused(run(path), path)
    path.write_bytes(good + b"x")
    assert "is no bundle, or a damaged one" in refused(run(path), path)


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.complex64])
def test_a_sum_is_of_doubles(good: bytes, tmp_path: Path, dtype: type) -> None:
    """Of anything narrower, few bytes would take many."""
    out = io.BytesIO()
    np.save(out, np.zeros((2, 3, 4), dtype))
    changed = with_facts(good, tmp_path / "a.zip", lambda f: f["numbers"]["exact"].update(y="sum"))
    path = packed(tmp_path / "b.zip", {**parts(changed.read_bytes()), "exact/y.npy": out.getvalue()})
    assert f"a sum of numbers of dtype {np.dtype(dtype)}" in refused(run(path), path)


def test_what_changed_is_said_in_a_line(good: bytes, tmp_path: Path) -> None:
    """Whatever the file calls it; of many names, none."""
    path = with_facts(good, tmp_path / "a.zip", lambda f: f.update(of={"\x1b[2J\n%d" + "A" * 150: "x"}))
    result = run(path)
    assert result.exit_code == 0 and result.stderr.startswith("changed since: ?[2J %dAAA")
    assert "\x1b" not in result.stderr and len(result.stderr) < 200
    path = with_facts(good, path, lambda f: f.update(of={str(n): "x" for n in range(1000)}))
    assert "of: " in refused(run(path), path)


def test_a_trial_is_not_repeated_for_hours(good: bytes, tmp_path: Path) -> None:
    """Its repeats count with its elements."""
    case = {"input_shape": [1 << 10, 1 << 10], "softmax_axis": 1}
    text = f"SoftmaxDescriptor(input_shape=({1 << 10}, {1 << 10}), softmax_axis=1, element='f32')"
    change = {"case": case, "descriptor": text, "repeats": 10_000}
    path = with_facts(good, tmp_path / "large.zip", lambda f: f.update(change))
    assert "needs 10000 runs on tensors of 2097152 elements" in refused(run(path), path)
