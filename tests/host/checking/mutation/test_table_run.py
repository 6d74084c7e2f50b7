"""Judging a table of defects: what is asked of a tree in which order, what a crash is, and what the report says."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from repository import ROOT

from baracuda.checking.apart import Lost
from baracuda.checking.executors import PROCESSES, Pool
from baracuda.checking.mutation import tree_run, tree_trial
from baracuda.checking.mutation.stages import Stage
from baracuda.checking.mutation.table import Defect, Edit
from baracuda.checking.mutation.table_report import TableReport
from baracuda.checking.mutation.tree_run import Tree, judge, run
from baracuda.checking.mutation.tree_trial import Question, cases, objections
from baracuda.checking.mutation.verdict import KILLED, SAME, STILLBORN, SURVIVED, Outcome, Verdict
from baracuda.checking.variables import SAMPLE
from baracuda.cli.prove import mutate_table as command
from baracuda.runtime import CompileError, InvalidProblem


def defect(name: str, *edits: Edit, stratum: str = "row", ops: tuple[str, ...] = ("alibi",)) -> Defect:
    return Defect(name, stratum, True, f"{name} is wrong", edits, ops)


def test_a_tree_imports_its_own_packages(tmp_path: Path) -> None:
    tree = Tree.copy_of(ROOT, tmp_path, {"SEEN": "1"})
    text = "import os, baracuda.runtime.plans.plan as p; print(os.path.realpath(p.__file__), os.environ['SEEN'])"
    with tree.start([sys.executable, "-c", text], stdout=subprocess.PIPE) as process:
        assert process.communicate()[0].split() == [str(tmp_path.resolve() / "runtime/plans/plan.py"), "1"]


def test_a_spec_that_no_longer_validates_is_caught_by_generate() -> None:
    edit = Edit("specs/attention/alibi.yaml", "doc: slope of each head}", "doc: slope of each head, default: 1}")
    verdict, unsound = judge(defect("optional", edit), ROOT, {})
    assert (verdict.what, verdict.stage, unsound) == (KILLED, "generate", ())
    assert "specs/attention/alibi.yaml:16: 'slopes' needs both `optional` and `default`" in verdict.said


@pytest.mark.parametrize("complaints, said", [("c\nd", "c"), ("", "b")])
def test_a_refusal_is_the_first_complaint_or_the_last_line(tmp_path: Path, complaints: str, said: str) -> None:
    main = tmp_path / ".imports/baracuda/cli/main.py"
    main.parent.mkdir(parents=True)
    main.write_text(f"""
import sys
def main():
    print("a\\nb")
    print({complaints!r}, file=sys.stderr)
    sys.exit(len(sys.argv) - 1)
""")
    tree = Tree(tmp_path, {})
    assert (tree.refusal(), tree.refusal("x")) == (None, said)


def asked(monkeypatch: pytest.MonkeyPatch, tested: Verdict | None, refused: str = "", same: bool = False) -> list[str]:
    """Have the steps of `judge` answer so; the list grows by each that is asked."""
    steps: list[str] = []

    def found(tree: Tree, question: Question) -> Iterator[Verdict]:
        if tree.root == ROOT:
            steps.append(f"unchanged {question.only}")
            return
        steps.append(f"test {' '.join(question.ops)} {bool(question.unchanged)}")
        yield from [tested] if tested else []

    def refusal(tree: Tree, *arguments: str) -> str | None:
        if tree.root == ROOT:
            steps.append(f"unchanged {arguments[0]}")
            return None
        steps.append(arguments[0])
        return "no" if arguments[0] == refused else None

    def same_code(*_: object) -> bool:
        steps.append("same code")
        return same

    for name, step in {"tested": found, "_same_code": same_code}.items():
        monkeypatch.setattr(tree_run, name, step)
    monkeypatch.setattr(Tree, "refusal", refusal)
    monkeypatch.setattr(tree_run, "find_spec", lambda name: name)
    return steps


HEADER = Edit("runtime/include/baracuda/map/find.cuh", "I row = ~I(0);", "I row = 0;")
MODULE = Edit("runtime/arrays/axes.py", "if stride < 0:", "if stride <= 0:")
SPEC = Edit("specs/attention/alibi.yaml", "plan: AlibiPlan", "plan: AliBiPlan")
ALL = ["test alibi False", "compare", "check"]


@pytest.mark.parametrize(
    "edit, tested, refused, same, verdict, steps",
    [
        (SPEC, None, "generate", False, Verdict(KILLED, "generate", "no"), ["generate"]),
        (MODULE, Verdict(KILLED, "a", "b"), "", False, Verdict(KILLED, "a", "b"), ["test alibi False", "unchanged a"]),
        (MODULE, None, "compare", False, Verdict(KILLED, "compare", "no"), [*ALL[:2], "unchanged compare"]),
        (
            SPEC,
            None,
            "check",
            True,
            Verdict(KILLED, "check", "no"),
            ["generate", *ALL, "unchanged check"],
        ),
        (MODULE, None, "", True, Verdict(SURVIVED), ALL),
        (HEADER, Verdict(SAME), "", True, Verdict(SAME), ["test alibi True", "check", "same code"]),
        (HEADER, None, "", False, Verdict(SURVIVED), ["test alibi True", "compare", "check", "same code"]),
    ],
)
def test_the_first_command_that_objects_decides(
    monkeypatch: pytest.MonkeyPatch,
    edit: Edit,
    tested: Verdict | None,
    refused: str,
    same: bool,
    verdict: Verdict,
    steps: list[str],
) -> None:
    """Only changes of kernels may leave machine code the same; what the host device cannot see, it is not asked."""
    seen = asked(monkeypatch, tested, refused, same)
    assert (judge(defect("a", edit), ROOT, {}), seen) == ((verdict, ()), steps)


def test_what_objects_to_the_unchanged_tree_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a crash there, after which cases begin anew without it."""
    wrong = {"first": "a", "crash": "b", "last": "c"}
    begun: list[tuple[str, ...]] = []

    def found(tree: Tree, question: Question) -> Iterator[Verdict]:
        if tree.root == ROOT:
            yield from [Verdict(KILLED, question.only)] if question.only != "last" else []
            return
        begun.append(question.without)
        for case in (case for case in wrong if case not in question.without):
            yield Verdict(KILLED, case, wrong[case])
            if case == "crash":
                return

    monkeypatch.setattr(tree_run, "tested", found)
    verdict = judge(defect("a", MODULE), ROOT, {})
    assert verdict == (Verdict(KILLED, "last", "c"), ("first", "crash"))
    assert begun == [(), ("first", "crash")]


def test_a_command_that_objects_to_the_unchanged_tree_judges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked(monkeypatch, None)
    monkeypatch.setattr(Tree, "refusal", lambda tree, *arguments: "no" if arguments[0] == "check" else None)
    with pytest.raises(InvalidProblem, match=r"^check objects to alibi without a defect: no$"):
        judge(defect("a", MODULE), ROOT, {})


def test_a_process_that_dies_objects_in_its_last_case(tmp_path: Path) -> None:
    module = tmp_path / ".imports/baracuda/checking/mutation/tree_trial.py"
    module.parent.mkdir(parents=True)
    module.write_text("""
import os, sys
print('{"case": "one"}\\n{"verdict": ["killed", "one", "two"]}\\n{"case": "three"}', flush=True)
print("four", file=sys.stderr, flush=True)
os.abort()
""")
    verdicts = list(tree_run.tested(Tree(tmp_path, {}), Question(("alibi",))))
    assert verdicts == [Verdict(KILLED, "one", "two"), Verdict(KILLED, "three", "the process ended with -6: four")]


def test_cases_that_object_are_named_and_others_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(error: Exception) -> None:
        raise error

    runs = {"fine": lambda: None, "wrong": lambda: raises(ValueError("a")), "known": lambda: raises(ValueError("b"))}
    runs["broken"] = lambda: raises(CompileError("c"))
    monkeypatch.setattr(tree_trial, "cases", lambda question: [Stage(name, work) for name, work in runs.items()])
    begun: list[str] = []
    found = list(objections(Question(("alibi",), without=("known",)), begun.append))
    assert begun == ["fine", "wrong", "broken"]
    assert found == [Verdict(KILLED, "wrong", "ValueError: a"), Verdict(STILLBORN, "broken", "CompileError: c")]


def test_the_cases_are_those_of_test_and_of_its_check_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SAMPLE, "0")
    names = [case.name for case in cases(Question(("alibi",)))]
    assert len(set(names)) == len(names) and all("[alibi" in name for name in names)
    for check in ("smallest", "layouts", "accesses", "accuracy", "declarations", "requirements", "random order"):
        assert any(name.startswith(f"test {check}[") for name in names), check
    assert any(name.startswith("test --check layouts[") for name in names)


@pytest.mark.parametrize(
    "before, after, seen",
    [
        ('asm("max.NaN.f32', 'asm("max.f32', True),  # of a GPU alone
        ("// The functions of the program", "// The function of the program", False),
        ("if (b == 0) return 0;", "if (b == 0) return 1;", True),
        ("#include <baracuda/element.cuh>", "#include <baracuda/no_element.cuh>", True),  # an error is seen, too
    ],
)
def test_what_the_host_device_sees_of_a_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, before: str, after: str, seen: bool
) -> None:
    monkeypatch.setenv(SAMPLE, "0")
    shutil.copytree(ROOT / "runtime/include", tmp_path / "include")
    header = tmp_path / "include/baracuda/math.cuh"
    assert before in header.read_text()
    header.write_text(header.read_text().replace(before, after))
    unchanged = tree_trial.INCLUDE
    monkeypatch.setattr(tree_trial, "INCLUDE", tmp_path / "include")
    assert tree_trial._differs(("alibi",), unchanged) == seen


def test_a_change_of_any_kernel_of_a_plan_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first kernel of most plans of linear_amax multiplies otherwise, and some alike by their defines' names."""
    monkeypatch.setenv(SAMPLE, "0")
    shutil.copytree(ROOT / "runtime/include", tmp_path / "include")
    header = tmp_path / "include/baracuda/matrix/product_mma.cuh"
    header.write_text(header.read_text() + "int another;")
    unchanged = tree_trial.INCLUDE
    monkeypatch.setattr(tree_trial, "INCLUDE", tmp_path / "include")
    assert tree_trial._differs(("linear_amax",), unchanged)


def test_only_the_case_that_is_asked_for_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(question: Question) -> Iterator[Stage]:
        yield Stage("a", lambda: pytest.fail("runs"))
        yield Stage("b", lambda: None)
        pytest.fail("goes on")

    monkeypatch.setattr(tree_trial, "cases", listed)
    begun: list[str] = []
    assert list(objections(Question(("alibi",), only="b"), begun.append)) == [] and begun == ["b"]


def test_each_defect_is_reported_and_a_lost_one_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def judged(one: Defect, root: Path, variables: object) -> tuple[Verdict, tuple[str, ...]]:
        if one.id == "lost":
            raise Lost("the process that had this task died with -9")
        return Verdict(SURVIVED), (f"{one.id} x",)

    monkeypatch.setattr(tree_run, "judge", judged)
    reported: list[Outcome] = []
    with pytest.raises(InvalidProblem, match=r"^lost was not judged: the process that had this task died with -9$"):
        run([defect("one"), defect("lost"), defect("two")], Pool(ThreadPoolExecutor(1), 1), reported.append)
    assert [(outcome.id, outcome.unsound) for outcome in reported] == [("one", ("one x",)), ("two", ("two x",))]


def outcomes(**verdicts: Verdict) -> dict[str, Outcome]:
    return {name: Outcome(name, verdict, 1.0) for name, verdict in verdicts.items()}


def test_the_report_counts_by_stratum_and_lists_what_is_not_caught() -> None:
    some = [defect("a"), defect("b"), defect("c", stratum="map"), defect("d", stratum="map"), defect("e")]
    known = outcomes(
        a=Verdict(KILLED, "test layouts[x]", ""),
        b=Verdict(SURVIVED),
        c=Verdict(KILLED, "test layouts[y]", ""),
        d=Verdict(SAME),
    )
    known["c"] = replace(known["c"], unsound=["test --check z[x]"])
    report = TableReport(some, known)
    scores = {row["stratum"]: (row["defects"], row["caught"], row["score"]) for row in report.strata()}
    assert scores == {"row": (2, 1, "50.0 %"), "map": (2, 1, "100.0 %"), "all": (4, 2, "66.7 %")}
    assert report.commands() == [{"caught by": "test layouts", "defects": 2}]
    assert [(row["defect"], row["verdict"]) for row in report.listed()] == [("b", "survived"), ("d", "equivalent")]
    assert report.objections() == [{"case": "test --check z[x]"}]
    page = report.markdown("Title", ["Note."])
    assert page.startswith("# Title\n\n66.7 % of 4 defects are caught, of 5 in the table.\n\nNote.\n\n| stratum |")
    assert "| b | row | survived | b is wrong |" in page and "| test --check z[x] |" in page


ENTRY = "- {id: a, semantic: true, wrong: b, file: c, find: d, replace: e, ops: [alibi]}\n"


def test_the_command_resumes_and_names_what_the_table_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "row.yaml").write_text(ENTRY + ENTRY.replace("id: a", "id: f"))
    asked: list[list[str]] = []

    def judged(defects: list[Defect], within: Pool, report: Callable[[Outcome], None]) -> None:
        asked.append([one.id for one in defects])
        for one in defects:
            report(Outcome(one.id, Verdict(KILLED if one.id == "a" else SURVIVED, "test x[y]"), 1.0))

    def mutate(only: list[str], strata: list[str] = [], at_least: float = 50) -> bool:  # noqa: B006
        state, out = tmp_path / "state", tmp_path / "report.md"
        where = state, PROCESSES, None
        return command.mutate_table(tmp_path, ["alibi"], strata, only, *where, at_least, out, as_json=True)

    monkeypatch.setattr(command, "run", judged)
    assert mutate(["a"]) and mutate([]) and not mutate([], at_least=51)
    assert asked == [["a"], ["f"], []]
    assert json.loads(capsys.readouterr().out.split("\n}\n")[0] + "}")["strata"][0]["caught"] == 1
    assert "| row | 2 | 2 | 1 | 1 | 0 | 0 | 50.0 % |" in (tmp_path / "report.md").read_text()
    with pytest.raises(InvalidProblem, match="no stratum 'map'; known are row"):
        mutate([], ["map"])
    with pytest.raises(InvalidProblem, match="no defect 'z'; known are a, f"):
        mutate(["z"])
