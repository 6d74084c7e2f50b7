"""The fuzzers find what they look for: planted faults of each kind are seen, and what is in order is not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import Field
from repository import ROOT

from baracuda.checking.apart import Lost
from baracuda.checking.executors import Pool
from baracuda.checking.fuzz import watch, worker
from baracuda.checking.fuzz.draw import places, specs
from baracuda.checking.fuzz.draw.mutate import change, garble
from baracuda.checking.fuzz.draw.payloads import MARK, value
from baracuda.checking.fuzz.draw.programs import program_spec
from baracuda.checking.fuzz.draw.specs import spec_case
from baracuda.checking.fuzz.generated import problems
from baracuda.checking.fuzz.report import WHAT, markdown
from baracuda.checking.fuzz.state import State
from baracuda.checking.fuzz.targets.all import SHARES, Target
from baracuda.checking.fuzz.targets.calls import Calls, hostile
from baracuda.checking.fuzz.targets.entries import Entries
from baracuda.checking.fuzz.targets.listing import List
from baracuda.checking.fuzz.targets.target import Generate, Read
from baracuda.checking.fuzz.verdict import ACCEPTED, FAILED, REFUSED, Fault, Verdict, refusal
from baracuda.cli.main import main
from baracuda.cli.prove import fuzz as command
from baracuda.codegen.families.row.spec import RowSpec
from baracuda.codegen.project import installed
from baracuda.codegen.spec.family import families
from baracuda.runtime import InvalidProblem, SpecError

# What is drawn


def test_a_new_key_is_found_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    class Newer(RowSpec):
        novel: dict[str, tuple[int, ...]] = Field(default={})

    monkeypatch.setitem(families(), "newer", replace(families()["row"], model=Newer))
    found = set(places.places("newer")) - set(places.places("row"))
    assert found == {("novel",), ("novel", places.KEY), ("novel", places.EACH), ("novel", places.EACH, places.ITEM)}


@pytest.mark.parametrize("family", families())
def test_every_key_of_the_model_is_a_place(family: str) -> None:
    named = {path[-1] for path in places.places(family)}
    assert set(re.findall(r'"properties": \{"(\w+)"', json.dumps(places.schema(family)))) <= named
    assert set(families()[family].model.model_fields) <= named


def test_what_is_missing_on_the_way_is_made_of_words_that_are_there() -> None:
    data: dict[str, Any] = {"arch": {"sm_89": {}}, "inputs": {"novel": {}}}
    places.put(data, "body", ("pinned", places.EACH, "doc"), lambda _: MARK, Random(0))
    assert [(pin["arch"], pin["doc"]) for pin in data["pinned"].values()] == [("sm_89", MARK)]


@pytest.mark.parametrize("family", families())
def test_something_is_put_at_every_place(family: str) -> None:
    for turn, path in enumerate(places.places(family)):
        data: dict[str, Any] = {"family": family}
        places.put(data, family, path, lambda old: MARK, Random(turn))
        assert MARK in json.dumps(data, default=str), path


def test_every_text_is_injected_alone_and_behind_what_is_there() -> None:
    texts = {".".join(path) for path in specs._text_places()}
    assert {"doc", "program", "pinned.<each>.doc", "inputs.<each>.shapes.<item>", "kernels.<item>.shared"} <= texts
    drawn = [spec_case(index, Random(index)) for turn in range(2 * len(texts)) for index in [turn // 2 * 10 + turn % 2]]
    assert {case.how.split()[3] for case in drawn} == texts
    assert sum("  # x" in case.files["a.yaml"].decode() for case in drawn) == len(texts)


def test_most_payloads_at_a_place_fit_the_model() -> None:
    path = ("kernels", places.ITEM, "threads")
    found = [specs._fitting("body", path, 32, Random(seed)) for seed in range(60)]
    assert sum(places.fits("body", path, value) for value in found) > 40
    assert not places.fits("body", ("schedules", places.ITEM, "threads"), 31)
    assert not places.fits("body", ("doc",), "two\nlines") and places.fits("body", ("doc",), "a line")
    key = ("pinned", places.KEY)
    assert places.fits("body", key, "SomePlan") and not places.fits("body", key, "some")


def test_a_case_follows_from_its_seed_and_number() -> None:
    assert spec_case(7, Random("a")) == spec_case(7, Random("a"))
    assert len({json.dumps(program_spec(Random(seed))) for seed in range(20)}) == 20


def test_mutations_change_something() -> None:
    text = (installed("baracuda.specs") / "softmax" / "softmax.yaml").read_bytes()
    assert sum(garble(text, Random(seed)) != text for seed in range(50)) > 45
    changed = 0
    for seed in range(50):
        data: dict[str, Any] = {"a": [1, {"b": "c"}], "d": 2.5}
        change(data, Random(seed), value)
        changed += data != {"a": [1, {"b": "c"}], "d": 2.5}
    assert changed > 40


# What is seen while a case runs


class Planted(Target):
    """A case does what its number says."""

    name = "planted"

    def case(self, index: int, rng: Random) -> object:
        return index

    def judge(self, case: object) -> str:
        match case:
            case 0:
                (self.folder / "fine").write_text("x")
            case 1:
                (self.folder.parent / "outside").write_text("x")
            case 2:
                os.replace(self.folder / "fine", self.folder.parent / "outside")
            case 3:
                exec(compile("1", "<spec>", "exec"))
            case 4:
                subprocess.run(["true"], check=True)
            case 5:
                sum(i * i for i in range(30_000_000))
            case 6:
                bytearray(b"x" * (300 << 20))
            case 7:
                raise KeyError("a traceback")
            case 8:
                return refusal(SpecError("a.yaml:3: wrong; right"))
            case 9:
                return refusal(ValueError("not ours"))
        return ""


_IN_A_PROCESS = """
from host.checking.fuzz.test_fuzz import Planted
from dataclasses import replace
from pathlib import Path
from baracuda.checking.apart import Lost
from baracuda.checking.executors import Pool
from baracuda.checking.fuzz import watch, worker
import json, dataclasses
folder = Path({folder!r}); folder.mkdir()
watch.install()
target = Planted(0, folder)
print(json.dumps([dataclasses.asdict(target.verdict(index)) for index in range(10)]))
"""


def test_what_a_case_may_not_do_is_seen(tmp_path: Path) -> None:
    """In a process of its own, since there is no way back."""
    code = _IN_A_PROCESS.format(folder=str(tmp_path / "own"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **_paths()})
    assert done.returncode == 0, done.stderr
    verdicts = [Verdict(**given) for given in json.loads(done.stdout)]
    assert [v.what for v in verdicts] == [ACCEPTED, *[FAILED] * 7, REFUSED, FAILED]
    expected = ("to write", "os.rename", "exec of", "subprocess.Popen", "s of CPU", "MB, the budget", "KeyError")
    for verdict, what in zip(verdicts[1:8], expected, strict=True):
        assert what in verdict.why


def _paths() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(sys.path)}


def test_budgets() -> None:
    seen = watch.Watched(Path("/"), pure=True, seconds=0.9, megabytes=190)
    assert watch.over_budget(seen) == []
    seen.seconds, seen.megabytes = 1.1, 201
    assert len(watch.over_budget(seen)) == 2


# What a refusal has to look like


@pytest.mark.parametrize(
    "error",
    [
        SpecError("no place"),
        SpecError("a.yaml:0: no such line"),
        SpecError("a.yaml:1: fine\nnot placed"),
        InvalidProblem(""),
        InvalidProblem("x" * 2001),
        InvalidProblem("\x1b[2J"),
        InvalidProblem("\u202etxet"),
        AssertionError(),
    ],
)
def test_a_bad_refusal_is_a_fault(error: Exception) -> None:
    with pytest.raises(Fault):
        refusal(error)


def test_a_good_refusal_is_none() -> None:
    assert refusal(SpecError("specs/a.yaml:12: wrong; right\nspecs/a.yaml:13: wrong; right"))
    assert refusal(InvalidProblem("x is 3; needs 4"))


# What generated files may hold


def test_the_files_of_this_distribution_are_in_order() -> None:
    root = installed("baracuda.generated")
    texts = {str(p): p.read_text(encoding="utf-8") for p in root.rglob("*") if p.suffix in (".py", ".pyi", ".cu")}
    del texts[str(root / "__init__.py")]  # imports on demand, by its own code
    assert list(problems(texts)) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", f'"""x""" + str({MARK}) + """y"""'),
        ("a.py", "import x\nopen('PWNED', 'w')"),
        ("a.py", "def f():\n    return eval('1')"),
        ("a.py", "while True:\n    pass"),
        ("a.py", "x = ("),
        ("a.py", "x = 1  # \u202e"),
        ("a.cu", f"// x\nint {MARK};"),
        ("a.cu", "// x \\\nint y;"),
        ("a.cu", "int x; }"),
        ("a.cu", "/* x */ /* */ int \u2028y;"),
    ],
)
def test_what_a_payload_would_leave_is_found(name: str, text: str) -> None:
    assert list(problems({name: text}))


def test_payloads_in_comments_and_strings_are_in_order() -> None:
    python, cuda = f'"""{MARK}"""\nX = "{MARK}"  # {MARK}', f'// {MARK}\nconst char *x = "{MARK}";'
    assert list(problems({"a.py": python, "a.cu": cuda})) == []


def test_a_parameter_may_be_called_like_a_builtin() -> None:
    assert list(problems({"a.py": "def f(open):\n    return (open,)"})) == []
    assert list(problems({"a.py": "def f(x):\n    return (open,)"}))


# Targets


@pytest.fixture(autouse=True)
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case that takes too long ends its process, which here would be the tests'."""
    monkeypatch.setattr(watch, "_limit", lambda *_: None)


def test_specs_are_read_and_generated(tmp_path: Path) -> None:
    for kind in (Read, Generate, List):
        (folder := tmp_path / kind.name).mkdir()
        target = kind(0, folder)
        verdicts = [target.verdict(index) for index in range(8)]
        assert {v.what for v in verdicts} <= {ACCEPTED, REFUSED}, verdicts


def test_a_swapped_entry_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = Entries(0, tmp_path)
    monkeypatch.setattr(type(target.store), "get", lambda self, key: b"another entry")
    with pytest.raises(Fault, match="was read as"):
        target._damaged_entry(Random(0), b"x")


def test_every_parameter_of_a_call_takes_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from baracuda.checking.fuzz.targets.calls import Call, Good

    monkeypatch.setattr(Calls, "prepare", lambda self: self.good.append(Good("f", dict, {"a": 1, "b": 2, "c": 3})))
    target = Calls(0, tmp_path)
    drawn = [target.drawn(index) for index in range(3)]
    assert [call.replaced[0] for call in drawn if isinstance(call, Call)] == ["a", "b", "c"]
    assert target.judge(drawn[0]) == "" and target.describe(drawn[0]).startswith("f(a=")


def test_hostile_values_are_made_without_harm() -> None:
    import numpy as np

    for seed in range(400):
        for old in (np.zeros((2, 3), np.float32), np.zeros((0,)), "f32", 3, None, (1, 2)):
            hostile(Random(seed), old)


def test_every_target_is_described_and_has_its_share() -> None:
    assert set(WHAT) == set(Target.kinds) - {"planted"}
    assert set(SHARES) == set(WHAT) - {"read", "validate"}
    assert int(2000 * SHARES["execute"]) == 50 and int(2000 * SHARES["calls"]) == 500


# States and the command


def test_a_state_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    state = State(path, 5, "texts")
    for index in (0, 1, 2, 9):
        state.add(Verdict("read", index, FAILED if index == 2 else REFUSED, "why", 0.25, 3.0))
    state.close()
    with path.open("a") as file:
        file.write('{"torn')
    known = State(path, 5, "texts")
    assert known.done == {"read": {0, 1, 2, 9}}
    tally = known.tallies["read"]
    assert (tally.cases, tally.accepted, tally.refused, tally.seconds) == (4, 0, 3, 0.25)
    assert [failure.index for failure in tally.failures] == [2]
    assert State(path, 6, "texts").done == {} and State(path, 5, "others").done == {}
    assert "| specs, read and validated | 4 | 0 | 3 | 1 | 0.25 s | 3 MB |" in markdown([path])


def test_the_command_tells_counts_and_single_cases(tmp_path: Path) -> None:
    state = str(tmp_path / "state.jsonl")
    arguments = ["fuzz", "read", "tables", "--count", "4", "--jobs", "1", "--state", state, "--json"]
    for _ in range(2):
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 0, done.output
        rows = json.loads(done.stdout)["targets"]
        assert [(row["target"], row["cases"]) for row in rows] == [("read", 4), ("tables", 4)]
    assert len(Path(state).read_text().splitlines()) == 2
    assert "| specs, read and validated | 4 | " in CliRunner().invoke(main, ["fuzz", "--report", state]).stdout
    unknown = CliRunner().invoke(main, ["fuzz", "raed"])
    assert unknown.exit_code == 1 and "did you mean 'read'?" in unknown.output


@pytest.mark.parametrize("error", [InvalidProblem("KeyError: 'gone'"), Lost("the process died with 7")])
def test_a_target_that_cannot_be_set_up_ends_the_run_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """In one line, before any case that could be blamed for it; whether it raises or its process dies."""

    def breaks(_seed: int, name: str) -> None:
        if name == "tables":
            raise error

    monkeypatch.setattr(command, "ready", breaks)
    monkeypatch.setattr(command, "judged", lambda *_: pytest.fail("no case says anything"))
    monkeypatch.setattr(command, "pool", lambda *_, **__: nullcontext(Pool(ThreadPoolExecutor(1), 1)))
    state = tmp_path / "state.jsonl"
    done = CliRunner().invoke(main, ["fuzz", "read", "tables", "--count", "500", "--state", str(state)])
    before = "the target 'tables' cannot be set up: " if isinstance(error, Lost) else ""
    assert (done.exit_code, done.stderr, state.exists()) == (1, f"{before}{error}\n", False)


def test_what_a_target_raises_when_it_is_set_up_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(target: Target) -> None:
        raise KeyError("gone")

    monkeypatch.setattr(Read, "prepare", gone)
    monkeypatch.setattr(watch, "install", lambda: None)  # it would stay
    monkeypatch.setattr(worker.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("BARACUDA_CACHE_DIR", "")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidProblem, match=r"^the target 'read' cannot be set up: KeyError: .*gone"):
        worker.ready(0, "read")


def test_what_takes_too_long_is_judged_again_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """In another process, beside no other: 1 was slow for what ran beside it, 2 is, and 3 has another fault."""
    pools: list[list[int]] = []

    def judged(_seed: int, case: worker.Case) -> Verdict:
        pools[-1].append(index := case[1])
        seconds = {1: 1.2 if len(pools) == 1 else 0.8, 2: 1.2}.get(index, 0.1)
        return Verdict("read", index, FAILED if seconds > 1 or index == 3 else REFUSED, "why", seconds)

    def pool(_where: str, jobs: int | None, **_: object) -> nullcontext[Pool]:
        pools.append([])
        return nullcontext(Pool(ThreadPoolExecutor(1), jobs or 2))

    monkeypatch.setattr(command, "ready", lambda *_: None)
    monkeypatch.setattr(command, "judged", judged)
    monkeypatch.setattr(command, "pool", pool)
    done = CliRunner().invoke(main, ["fuzz", "read", "--count", "4", "--json"])
    assert [failure["failure"] for failure in json.loads(done.stdout)["failures"]] == ["read 2", "read 3"]
    assert [sorted(cases) for cases in pools] == [[0, 1, 2, 3], [1, 2]]


# What CI installs


def _requirements(name: str) -> list[str]:
    text = (ROOT / ".ci" / "locked" / f"{name}.txt").read_text()
    return [line for line in text.replace("\\\n", "").splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("name", ["base", "test", "site", "lint", "frontends"])
def test_locked_requirements_have_a_version_and_hashes_and_no_address(name: str) -> None:
    lines = _requirements(name)
    assert lines
    for line in lines:
        assert re.fullmatch(r"[a-z0-9._-]+==[0-9a-z.+]+( ; [^-]*)?( +--hash=sha256:[0-9a-f]{64})+ *", line), line[:80]


def test_what_is_locked_is_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = {"base": project["dependencies"], "lint": extras["lint"]}
    asked |= {"test": asked["base"] + extras["cuda12"] + extras["test"]}
    asked |= {"site": asked["test"] + extras["docs"]}
    for name, requirements in asked.items():
        locked = {line.partition("==")[0] for line in _requirements(name)}
        for requirement in requirements:
            assert re.sub(r"[._]", "-", re.split(r"[<>=\[]", requirement)[0].lower()) in locked, (name, requirement)


def test_dependencies_are_bounded_above() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [*project["dependencies"], *(r for extra in project["optional-dependencies"].values() for r in extra)]
    unbounded = {r for r in listed if "<" not in r and "==" not in r}
    assert unbounded == {"setuptools>=77"}  # of which only the declarative part is used, which stays
