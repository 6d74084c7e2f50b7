"""Mutation testing: what is a mutant, that none is lost, and that the spec's tests catch a sample of all ops'."""

from __future__ import annotations

import ast
import json
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from repository import ROOT

from baracuda.checking.apart import Lost
from baracuda.checking.executors import Pool
from baracuda.checking.mutation import verdict, worker
from baracuda.checking.mutation.mutants import (
    kernels,
    name_operators,
    operators,
    probes,
    python_operators,
    semantic_operators,
)
from baracuda.checking.mutation.mutants.code import Code
from baracuda.checking.mutation.mutants.inline_headers import with_headers
from baracuda.checking.mutation.mutants.kernels import KERNEL_OPERATORS, Mutant
from baracuda.checking.mutation.mutants.plans import PLAN_OPERATORS, of_plan
from baracuda.checking.mutation.mutants.scopes import definitions, reached
from baracuda.checking.mutation.mutants.targets import pasted, reached_by, representatives
from baracuda.checking.mutation.mutants.tokens import tokenize
from baracuda.checking.mutation.report import Report
from baracuda.checking.mutation.sample import sample, shard
from baracuda.checking.mutation.state import State
from baracuda.checking.mutation.survivors import Declared, declared, unused
from baracuda.checking.mutation.verdict import Outcome
from baracuda.checking.mutation.worker import Job, jobs_of, run
from baracuda.checking.oracles.memo import memo, memoized
from baracuda.checking.problems.subject import Subject
from baracuda.cli.main import main
from baracuda.cli.prove import mutate as mutate_module
from baracuda.codegen.spec.load import load_folder
from baracuda.runtime import InvalidProblem, SpecError


def names(text: str, *defined: str) -> list[str]:
    return [token.text for token in tokenize(text, "a.cu", frozenset(defined))]


def test_tokens_leave_out_comments_and_directives() -> None:
    text = '#pragma unroll\nint a = 1; // b\n/* c\nd */ "e // f" #\n#define g \\\n  h\ni->j <<= 0x1fu >= 2.5e-3f'
    assert names(text) == ["int", "a", "=", "1", ";", '"e // f"', "#", "i", "->", "j", "<<=", "0x1fu", ">=", "2.5e-3f"]


def test_tokens_of_one_kernel() -> None:
    text = "#ifdef SKU_a\none\n#else\ntwo\n#endif\n#ifndef SKU_a\nthree\n#ifdef X\nno\n#endif\n#endif\nfour"
    assert names(text, "SKU_a") == ["one", "four"]
    assert names(text) == ["two", "three", "four"]


def test_tokens_that_only_the_host_device_or_only_a_gpu_sees_are_no_ones() -> None:
    assert names("#ifdef BARACUDA_HOST\na\n#ifdef B\nb\n#endif\n#else\nc\n#endif\nd", "B", "BARACUDA_HOST") == ["d"]


@pytest.mark.parametrize(
    "condition, expected",
    [
        ("if defined(A)", ["a"]),
        ("if !defined(A)", ["b"]),
        ("if defined(B)  // of defined(A)", ["b"]),
        ("ifdef A  // and B", ["a"]),
        ("if !defined(BARACUDA_HOST) && __CUDA_ARCH__ >= 890", ["b"]),
        ("if defined(BARACUDA_HOST)", []),
        ("if X > 1", ["a", "b"]),
    ],
)
def test_branches_of_a_condition(condition: str, expected: list[str]) -> None:
    assert names(f"#{condition}\na\n#else\nb\n#endif", "A") == expected


def test_only_headers_of_branches_that_are_compiled_are_pasted() -> None:
    """In another branch an #include stays, so that the same one behind it is pasted."""
    text = "#if defined(A)\n#include <baracuda/pack.cuh>\n#endif\n#include <baracuda/pack.cuh>\n"
    first, _, rest = with_headers(text, "a.cu").partition("#endif")
    assert "#include <baracuda/pack.cuh>" in first and "struct" in rest
    first, _, rest = with_headers(text, "a.cu", {"A"}).partition("#endif")
    assert "struct" in first


def test_tokens_know_where_they_were_written() -> None:
    text = 'a\n#line 7 "x.jinja"\nb\n\nc // d\n#line 3\ne'
    found = [(t.text, t.file, t.line) for t in tokenize(text, "a.cu", frozenset())]
    assert found == [("a", "a.cu", 1), ("b", "x.jinja", 7), ("c", "x.jinja", 9), ("e", "x.jinja", 3)]


def test_pasted_headers_keep_their_lines() -> None:
    twice = "#include <baracuda/pack.cuh>\n" * 2
    text = with_headers(f'a\n#line 40 "t.jinja"\n{twice}b\n', "a.cu")
    places = {t.text: (t.file, t.line) for t in tokenize(text, "a.cu", frozenset())}
    lines = (ROOT / "runtime/include/baracuda/pack.cuh").read_text().splitlines()
    assert places["a"] == ("a.cu", 1) and places["b"] == ("t.jinja", 42)
    assert places["store"][0] == "baracuda/pack.cuh" and "void store" in lines[places["store"][1] - 1]
    assert "#include <baracuda" not in text and "#pragma once" not in text


def test_what_a_kernel_reaches() -> None:
    text = """
    namespace n { constexpr int A = 1, B = 2; template <typename T> struct alignas(8) S { T a; };
    template <class T> __device__ int f(S<T> s) { return g(A); }  __device__ int g(int a) { return a; }
    int unused() { return k(); } MACRO(x, y) }
    extern "C" __global__ void __launch_bounds__(1, h(1)) k(int a) { if (f<int>(a)) { } }"""
    found = list(definitions(tokenize(text, "a.cu", frozenset())))
    assert [one.name for one in found] == ["A", "S", "f", "g", "unused", "k"]
    assert [one.name for one in reached(found, {"k"})] == ["A", "S", "f", "g", "k"]


KINDS = {"x": "PerElement", "y": "PerElement", "m": "PerRow", "n": "PerRow", "w": "PerCol"}
SIBLINGS = ("x_tensor", "y_tensor", "x_slice", "rows_size", "cols_size", "f")
MUTATED: dict[str, tuple[str, set[str]]] = {
    "comparison": ("if (a < b<c>(d) && e == f) { }", {"< -> <=", "== -> !="}),
    "connective": (
        "return !a && b + 1 < c || d;",
        {"! -> ", "&& -> ||", "!a -> true", "b + 1 < c -> true"}
        | {"|| -> &&", "!a && b + 1 < c -> false", "d -> false"},
    ),
    "guard": (
        "if (a(b)) return c ? d : e;",
        {"a(b) -> true", "a(b) -> false", "c -> true", "c -> false"},
    ),
    "arithmetic": ("T* a = b + c * -d; return (e) - f % g;", {"+ -> -", "* -> /", "- -> ", "- -> +", "% -> /"}),
    "constant": (
        "int a[2]; b = 1 + 16 + 0xffu + 2.0f + 0.0; c = true; static_assert(d == 4);",
        {"2 -> 1", "1 -> 2", "16 -> 8", "0xffu -> 0x7fu", "2.0f -> 2.125f", "0.0 -> 1.0", "true -> false"},
    ),
    "index": ("T a[N]; b[c * d] = e[f][0]; auto g = [h](int i) { };", {"c * d -> c * d + 1", "f -> f + 1"}),
    "assignment": ("for (; a; b += c) d += e; f ^= 1;", {"+= -> -=", "+= -> =", "^= -> |="}),
    "step": (
        "for (int i = 0; i < n; ++i) { } for (; a; b += c * d) { }",
        {"< -> + 1 <", "++i -> i += 2", "c * d -> 2 * (c * d)"},
    ),
    "statement": (
        "int a = 1; b = a; if (c) d.e(f); P<T, 2> g; read<L>(h, i); return j;",
        {"b = a -> ", "d.e(f) -> ", "read<L>(h, i) -> "},
    ),
    "ordering": (
        "a(); __syncthreads(); b.full(c.d).wait(e); wgmma_wait<1>(); if (wait(f)) g = h.arrive();",
        {"__syncthreads() -> ", "b.full(c.d).wait(e) -> ", "wgmma_wait<1>() -> ", "h.arrive() -> "},
    ),
    "phase": ("int stage = 0; wait(a.parity ^ 1, stage); stage = 1;", {"a.parity -> !a.parity", "stage -> !stage"}),
    "exchange": (
        "f(a, b + 1); if (c) min(d, e); g<T>(h, h); T<int> i(j(k), l, m);",
        {"a, b + 1 -> b + 1, a", "j(k), l -> l, j(k)", "l, m -> m, l"},
    ),
    "term": ("a = b + c * d - (e + f) < g;", {"+ c * d -> ", "b + -> ", "- (e + f) -> ", "+ f -> ", "e + -> "}),
    "factor": ("a = b * c + d / e;", {"* c -> ", "b * -> ", "/ e -> "}),
    "identity": ("A a = -math::infinity<A>();", {"math::infinity<A>() -> 0"}),
    "partial": (
        "a = ceil_div(b + 1, c); d = round_up(e, 64);",
        {"ceil_div(b + 1, c) -> (b + 1) / (c)", "round_up(e, 64) -> e"},
    ),
    "accumulator": (
        "acc_t a = 0; const acc_t b = 1; int c; a = a + b; a += b; c += 1;",
        {"= a + b -> = decltype(a + 0)(bf16(a + b))", "+= b -> = decltype(a + 0)(bf16(a + (b)))"},
    ),
    "width": ("long long a = 0; const long long b = 1; for (long long c = 0; c < b; ++c) { }", {"long long -> int"}),
    "tensor": ("f(args.x.data, args.w.col_stride, args.w.data);", {"x -> y", "w -> x"}),
    "offset": (
        "a = args.x.row(s, r); b = args.m.at(s, r); c = args.w.at(s, r);",
        {
            "args.x.row(s, r) -> (args.x.data + (args.y.row(s, r) - args.y.data))",
            "args.m.at(s, r) -> args.m.data[&args.n.at(s, r) - args.n.data]",
        },
    ),
    "sibling": ("T x_tensor = f; read(x_slice, x_tensor);", {"x_tensor -> y_tensor"}),
    "twin": (
        "a = space.rows + rows_size * Tile::LANES + blockIdx.x; long long rows = cols_size;",
        {"rows -> cols", "rows_size -> cols_size", "cols_size -> rows_size", "LANES -> ROWS", "x -> y"},
    ),
    "function": ("a = fold<Sum<A>>(exp(b), max);", {"Sum -> Max", "exp -> exp2"}),
}


@pytest.mark.parametrize("name", KERNEL_OPERATORS)
def test_kernel_operator(name: str) -> None:
    body, expected = MUTATED[name]
    text = f"void k() {{ {body} }}"
    (definition,) = definitions(tokenize(text, "a.cu", frozenset()))
    code = Code(text, definition, SIBLINGS, KINDS)
    found = [f"{text[edit.start : edit.end]} -> {edit.after}" for edit in KERNEL_OPERATORS[name](code)]
    assert set(found) == expected


def test_every_operator_is_used() -> None:
    modules = operators, name_operators, semantic_operators, python_operators
    there = {n for m in modules for n, f in vars(m).items() if getattr(f, "__module__", "") == m.__name__}
    made = {n for n in there if n[0].islower() and n not in ("another", "closing_is")}
    assert made == {*KERNEL_OPERATORS, *PLAN_OPERATORS}


MODULE = """
class D:
    a: int
    _elements = (1, 2)
    _requires = (rt.Requirement("not 1 <= len(a)", error=rt.Unsupported), "a or b")
class P:
    TENSORS = (rt.Argument("x", "in", "row", dtypes=("T", "acc"), optional="f", layout="any"),)
    CHECK_ORDER = ("x", "y")
    RUNGS = ("f", "g")
    PROMISES = rt.table(y=("d", "s"))
    ROW_REDUCTIONS = 2
    def run(self, x, y):
        return self._run((x, y), workspace)
"""
PLANS: dict[str, set[str]] = {
    "comparison": {"\"not 1 <= len(a)\" -> 'not (1 < len(a))'"},
    "connective": {
        "\"not 1 <= len(a)\" -> '(1 <= len(a))'",
        *(f"\"a or b\" -> '({after})'" for after in ("a and b", "a", "b")),
    },
    "constant": {
        "\"not 1 <= len(a)\" -> 'not 2 <= len(a)'",
        "\"not 1 <= len(a)\" -> 'not (0) <= len(a)'",
        *("2 -> 3", "2 -> (1)"),
    },
    "error": {
        "rt.Unsupported -> rt.InvalidProblem",
        "\"a or b\" -> rt.Requirement('a or b', error=rt.Unsupported)",
    },
    "wiring": {"x, y -> y, x"},
}


@pytest.mark.parametrize("name", PLANS)
def test_plan_operator(name: str) -> None:
    module = ast.parse(MODULE)
    found = {f"{ast.get_source_segment(MODULE, node)} -> {after}" for node, after in PLAN_OPERATORS[name](module)}
    assert found == PLANS[name]


def test_requirements_are_removed_and_exchanged() -> None:
    first, second = "rt.Requirement('not 1 <= len(a)', error=rt.Unsupported)", "'a or b'"
    changed = [after for _, after in python_operators.check(ast.parse(MODULE))]
    assert changed == [f"({second},)", f"({first},)", f"{second}, {first}"]


def test_tables_lose_and_exchange_entries() -> None:
    changed = PLAN_OPERATORS["table"](ast.parse(MODULE))
    found = {f"{ast.get_source_segment(MODULE, node)} -> {after}" for node, after in changed}
    assert {"\"in\" -> 'inout'", "\"row\" -> 'col'", "\"f\" -> ''", "\"any\" -> 'contiguous'"} < found
    assert {"(\"T\", \"acc\") -> ('acc',)", "\"T\", \"acc\" -> 'acc', 'T'", "\"x\", \"y\" -> 'y', 'x'"} < found
    assert {"(\"x\", \"y\") -> ('y',)", "(1, 2) -> (2,)", "int -> float"} < found
    assert {"rt.table(y=(\"d\", \"s\")) -> rt.table()", "(\"d\", \"s\") -> ('s',)"} < found
    assert {"(\"f\", \"g\") -> ('g',)"} < found


def test_mutated_plans_are_python() -> None:
    from baracuda.generated.softmax import softmax

    text = Path(softmax.__file__).read_text()
    found = list(of_plan("softmax", softmax))
    assert len({mutant.id for mutant in found}) == len(found) > 30
    for mutant in found:
        ast.parse(mutant.apply(text))
        assert mutant.code == text.splitlines()[mutant.line - 1].strip()


def test_statements_that_are_not_compiled_have_no_marks() -> None:
    text = "void k(int a) { if (0) { b(); } else if (a) c(); for (;;) if (a) { d(); } e(); }"
    found = list(definitions(tokenize(text, "a.cu", frozenset())))
    listed = probes.statements(found)
    inner = [text[s.start : s.end] for s in listed if "{" not in text[s.start : s.end]]
    assert inner == ["b();", "if (a) c();", "c();", "d();", "e();"]
    assert text[listed[probes.statement_at(listed, text.index("b()")) or 0].start :].startswith("b();")
    assert text[listed[probes.statement_at(listed, text.index("a) c")) or 0].start :].startswith("if (a) c")
    marked = probes.marked(text, listed)
    assert marked.count("asm volatile") == len(listed) and marked.count("{") == marked.count("}")
    assert probes.marks(b"..[3]\0[12]..") == {3, 12}


def mutant(number: int, op: str = "softmax", operator: str = "guard", code: str = "if (a) b;") -> Mutant:
    return Mutant(op, f"{op}_k", operator, "row.cu.jinja", number, code, number, "a", "true")


def outcome(of: Mutant, what: str) -> Outcome:
    return Outcome(of.id, verdict.Verdict(what, "smallest", "said"), 0.5)


def test_state_survives_a_torn_line(tmp_path: Path) -> None:
    file, first, second = tmp_path / "state", mutant(1), mutant(2)
    State(file, "tests").add(outcome(first, verdict.KILLED))
    with file.open("a") as torn:
        torn.write('{"against": "tests", "id": "12')
    State(file, "tests").add(outcome(second, verdict.SURVIVED))
    assert State(file, "tests").outcomes == {m.id: outcome(m, w) for m, w in ((first, "killed"), (second, "survived"))}
    assert State(file, "other tests").outcomes == {}


def test_report_counts_what_is_a_mutant_only() -> None:
    words = [verdict.KILLED, verdict.SAME, verdict.STILLBORN, verdict.SURVIVED]
    found = [mutant(number) for number in range(4)] + [mutant(9, code="for (;;) c(a);")]
    outcomes = {m.id: outcome(m, w) for m, w in zip(found, [*words, verdict.SURVIVED], strict=True)}
    known = [Declared("for (*", "a -> *", "it ends anyway", "*", "*", "*", "x")]
    report = Report(found, outcomes, known)
    assert report.score == 50.0
    assert [row["reason"] for row in report.listed()] == ["no test fails", "it ends anyway"]
    (row,) = report.by("op", lambda m: m.op)
    assert list(row.values()) == ["softmax", 5, 1, 1, 1, 1, 1, "50.0 %"]
    same = [m for m in found if outcomes[m.id].verdict.what == verdict.SAME]
    (row,) = Report(same, outcomes, known).by("op", lambda m: m.op)
    assert row["score"] == "-"  # nothing was judged


def test_declarations_do_not_rot(tmp_path: Path) -> None:
    entry = "survivors:\n  - {line: 'if (a) *', change: a -> true, reason: why, ops: soft*}\n"
    (tmp_path / "row.survivors.yaml").write_text(entry)
    (one,) = declared(tmp_path)
    assert one.matches(mutant(1)) and not one.matches(mutant(1, op="layer_norm"))
    assert unused([one], [mutant(1)]) == []
    assert unused([one], [mutant(1, code="if (b) c;")])[0].startswith("row.survivors.yaml: entry 1 matches no survivor")
    (tmp_path / "row.survivors.yaml").write_text("survivors:\n  - {line: a, change: b}\n")
    with pytest.raises(SpecError, match="entry 1 needs change, line, reason"):
        declared(tmp_path)


def test_declarations_match_lines_that_there_are() -> None:
    globs = "generated/*/*.cu", "generated/*/*.py", "runtime/**/*.cuh", "runtime/**/*.py", "specs/*/*.yaml"
    files = [path for glob in globs for path in ROOT.glob(glob)]
    lines = {line.strip() for path in files for line in path.read_text().splitlines()}
    for one in declared():
        anyhow = replace(one, change="*", ops="*", targets="*", uses="*")
        assert any(anyhow.matches(mutant(1, code=line)) for line in lines), one.place


def test_samples_and_shards() -> None:
    found = [mutant(number, op, operator) for number in range(20) for op in "ab" for operator in "cd"]
    drawn = sample(found, 8, seed=3)
    assert drawn == sample(found[::-1], 8, seed=3) != sample(found, 8, seed=4)
    assert {m.op + m.operator for m in sample(found, 4, seed=0)} == {"ac", "ad", "bc", "bd"}
    parts = [shard(found, f"{i}/3") for i in (1, 2, 3)]
    assert [m for part in parts for m in part] == found
    with pytest.raises(InvalidProblem, match="got '4/3'"):
        shard(found, "4/3")
    jobs = jobs_of(found, 2)
    assert sorted(m.id for job in jobs for m in job.mutants) == sorted(m.id for m in found)
    assert {(m.op, m.target) == (job.op, job.target) for job in jobs for m in job.mutants} == {True}


def test_a_job_that_takes_long_gives_what_it_has_and_a_lost_one_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [mutant(number, op, "c") for number in range(3) for op in "abd"]
    asked: list[tuple[str, int]] = []

    def judge(job: Job) -> list[Outcome]:
        asked.append((job.op, len(job.mutants)))
        if job.op == "b":
            raise Lost("the process that had this task died with -9")
        return [outcome(one, verdict.KILLED) for one in job.mutants[:2]]

    monkeypatch.setattr(worker, "judge", judge)
    reported: list[Outcome] = []
    with pytest.raises(InvalidProblem, match=r"of b was not judged to the end: the process .* died with -9"):
        run(found, Pool(ThreadPoolExecutor(1), 1), reported.append)
    assert asked == [("a", 3), ("a", 1), ("b", 3), ("d", 3), ("d", 1)]
    assert {one.id for one in reported} == {one.id for one in found if one.op != "b"} and len(reported) == 6


def test_a_job_ends_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tuple(mutant(number, "a", "c") for number in range(3))
    monkeypatch.setattr(worker, "_judged", lambda job, one: verdict.Verdict(verdict.KILLED, one.id))
    job = Job("a", found[0].target, found)
    assert [one.verdict.stage for one in worker.judge(job)] == [one.id for one in found]
    monkeypatch.setattr(worker, "_AT_ONCE", -1.0)
    assert [one.id for one in worker.judge(job)] == [found[0].id]


def test_a_mutant_that_crashes_or_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash() -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    assert verdict.judged_apart(crash) == verdict.Verdict(verdict.KILLED, "process", "killed by SIGKILL")
    assert verdict.judged_apart(lambda: os._exit(3)).said == "exited with 3"
    monkeypatch.setattr(verdict, "SECONDS", 0.3)
    assert verdict.judged_apart(lambda: time.sleep(60)).said == "not finished after 0.3 seconds"  # type: ignore[arg-type, return-value]
    assert verdict.judged_apart(lambda: verdict.Verdict("survived")) == verdict.Verdict("survived")


@pytest.mark.parametrize("op", ["repeat", "rms_norm", "causal_conv1d_update", "flash_sdpa"])
def test_mutants_are_of_what_a_kernel_is_compiled_from(op: str) -> None:
    """Each kernel's source is changed where the mutant says, in the headers of its own architecture."""
    loaded = load_folder(ROOT / "specs")
    subject = Subject(loaded[op], loaded, "baracuda.generated")
    for row in representatives(subject)[3:5] or representatives(subject)[:1]:
        found, text = list(islice(kernels.of_kernel(subject, row), 500)), pasted(row)
        assert len(found) > 100 and {mutant.target for mutant in found} == {row.sku.symbol}
        assert all(mutant.apply(text) != text for mutant in found[:20])
        used = {token.file for definition in reached_by(subject, row) for token in definition.tokens}
        assert any("forward_sm90" in file for file in used) == (row.sku.arch == "sm_90a")


def test_the_oracle_is_asked_once_for_each_question() -> None:
    """Within `memo` alone. Keyword arguments are part of the question; what a caller adds to an answer is its own."""
    asked: list[Any] = []

    @memoized
    def tolerances(problem: Any, arrays: Any, *, saved: Any = None) -> dict[str, Any]:
        asked.append((arrays, saved))
        return {"y": len(asked)}

    @memoized
    def explicit(problem: Any, arrays: Any, *, saved: Any = None) -> dict[str, Any]:
        return {"y": 0}

    problem: Any = SimpleNamespace(descriptor="d", arguments={"x": 0}, plan=SimpleNamespace(sku="s"))
    questions: list[dict[str, Any]] = [{}, {"saved": {"r": np.zeros(2)}}, {"saved": {"r": np.ones(2)}}, {"saved": {}}]
    with memo():
        for _ in range(2):
            for number, named in enumerate(questions, start=1):
                answer = tolerances(problem, {"x": np.arange(3)}, **named)
                assert answer == {"y": number} and explicit(problem, {"x": np.arange(3)}, **named) == {"y": 0}
                answer["more"] = 0
        assert len(asked) == len(questions)
    tolerances(problem, {"x": np.arange(3)})
    assert len(asked) == len(questions) + 1


def test_a_run_that_was_interrupted_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process has judged is not judged again. Which mutants are killed, test_frozen_mutants.py says."""
    state, add, left = tmp_path / "state", State.add, list[str]()
    loaded = load_folder(ROOT / "specs")
    subject = Subject(loaded["softmax"], loaded, "baracuda.generated")
    every = kernels.of_kernel(subject, representatives(subject)[0])
    some = [m for m in every if m.operator == "arithmetic" and m.file.startswith("templates")][:2]
    monkeypatch.setattr(mutate_module, "_mutants", lambda *_: some)
    command = ["mutate", "softmax", "--at-least", "0", "--jobs", "1", "--state", str(state)]

    def interrupted(of: State, one: Outcome) -> None:
        add(of, one)
        raise OSError("no room")

    def run(rest: list[Mutant], within: Pool, report: Callable[[Outcome], None]) -> None:
        for one in rest:
            left.append(one.id)
            report(outcome(one, verdict.KILLED))

    with monkeypatch.context() as patch:
        patch.setattr(State, "add", interrupted)
        assert CliRunner().invoke(main, command).exit_code == 1
    before = state.read_text()
    (judged,) = map(json.loads, before.splitlines())
    assert (judged["id"], judged["verdict"]["what"]) == (some[0].id, verdict.KILLED)
    monkeypatch.setattr(mutate_module, "run", run)
    said = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)
    assert left == [some[1].id] and said["ops"][0]["mutants"] == 2
    assert state.read_text().startswith(before) and state.read_text().count("\n") == 2
