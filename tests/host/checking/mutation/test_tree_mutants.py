"""Mutants of specs and of the runtime: what they change, and how one is judged."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT, SPECS

from baracuda.checking.mutation import mutant_trial, tree_run
from baracuda.checking.mutation.mutant_trial import TreeBench
from baracuda.checking.mutation.mutants.expression_operators import EXPRESSION_OPERATORS
from baracuda.checking.mutation.mutants.kernels import RUNTIME, SPEC, Mutant
from baracuda.checking.mutation.mutants.module_operators import MODULE_OPERATORS
from baracuda.checking.mutation.mutants.runtime import of_module, of_runtime
from baracuda.checking.mutation.mutants.specs import of_spec
from baracuda.checking.mutation.tree_run import Tree
from baracuda.checking.mutation.tree_trial import Question, cases
from baracuda.checking.mutation.verdict import KILLED, SAME, SURVIVED, Verdict
from baracuda.checking.problems.subject import Subject
from baracuda.checking.variables import SAMPLE
from baracuda.codegen.spec.load import load_folder

EXPRESSIONS: dict[str, tuple[str, set[str]]] = {
    "comparison": ("a < b <= c", {"a < b <= c -> (a <= b <= c)", "a < b <= c -> (a < b < c)"}),
    "connective": (
        "not (a and b)",
        {"a and b -> (a or b)", "a and b -> (b)", "a and b -> (a)", "not (a and b) -> (a and b)"},
    ),
    "constant": ("f(True, 2)", {"True -> False", "2 -> 3", "2 -> (1)"}),
    "term": ("a + b - c", {"a + b -> (a)", "a + b -> (b)", "a + b - c -> (a + b)"}),
    "factor": ("a * b // c", {"a * b -> (a)", "a * b -> (b)", "a * b // c -> (a * b)"}),
    "exchange": (
        "f(a, b) if min(c, d) else e",
        {"f(a, b) -> f(b, a)", "f(a, b) if min(c, d) else e -> (e if min(c, d) else f(a, b))"},
    ),
    "function": ("max(a, ceil_div(b + 1, c))", {"max -> min", "ceil_div(b + 1, c) -> (b + 1) // (c)"}),
}
MODULES: dict[str, tuple[str, set[str]]] = {
    "condition": ("if a < b: c = 1", {"a < b -> True", "a < b -> False"}),
    "key": (
        "key = a, b; d.e[f, g] = h[i, j]",
        {"a, b -> ((b,))", "a, b -> ((a,))", "f, g -> ((g,))", "f, g -> ((f,))"},
    ),
    "statement": ("a.clear(); b.c = d; e = f", {"a.clear() -> pass", "b.c = d -> pass"}),
    "turn": ("for a in b: continue", {"continue -> break"}),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expression_operator(name: str) -> None:
    text, expected = EXPRESSIONS[name]
    found = {f"{ast.get_source_segment(text, n)} -> {a}" for n, a in EXPRESSION_OPERATORS[name](ast.parse(text))}
    assert found == expected


@pytest.mark.parametrize("name", MODULES)
def test_module_operator(name: str) -> None:
    text, expected = MODULES[name]
    found = {f"{ast.get_source_segment(text, n)} -> {a}" for n, a in MODULE_OPERATORS[name](ast.parse(text))}
    assert found == expected


def test_every_operator_is_tested() -> None:
    assert set(EXPRESSIONS) == set(EXPRESSION_OPERATORS) and set(MODULES) == set(MODULE_OPERATORS)


def test_what_readers_alone_see_is_not_mutated() -> None:
    text = """\
@decorated(a=1)
class A(b[1]):
    c: d[2] = 3
    def e(self, f=4) -> g[5]:
        log.debug("%s", h < 6)
        if i: raise ValueError(f"{7}")
        return f"{8}" + j[9]
    def __repr__(self): return k + 10
"""
    numbers = {mutant.before for mutant in of_module(text, "a.py") if mutant.operator == "constant"}
    assert numbers == {"3", "9"}


def test_mutants_of_the_runtime_are_python() -> None:
    found = list(of_runtime(ROOT))
    assert len({mutant.id for mutant in found}) == len(found)
    assert {"arrays", "plans", "families", "compile", "cache"} <= {mutant.file.split("/")[1] for mutant in found}
    for mutant in found[::100]:
        ast.parse(mutant.apply((ROOT / mutant.file).read_text()))


TEXT = """\
op: a
doc: 1 < 2
descriptor:
  m: {type: int, default: 1}
  n: {type: int, doc: 3 < 4}
  x: {type: float}
require:
  - {that: "m < n", raises: Unsupported}
  - {that: x > 0, raises: InvalidProblem}
program: |
  y = m * x
schedules:
  - {threads: 64, numbers: {k: 1}}
  - {threads: 64, fits: m <= n
      and n <= x}
reproducibility:
  y: [deterministic, bit_stable_across_arch]
tests: {cases: [{m: 1}]}
"""
GIVEN = "[deterministic, bit_stable_across_arch]"


def test_mutants_of_a_spec(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(TEXT)
    found = {(mutant.operator, mutant.change, mutant.line) for mutant in of_spec("a", path, "a.yaml")}
    expected = {
        ("constant", "1 -> 2", 4),
        ("comparison", "m < n -> (m <= n)", 8),
        ("name", "m -> n", 8),
        ("word", "Unsupported -> InvalidProblem", 8),
        ("dropped", '- {that: "m < n", raises: Unsupported} -> nothing', 8),
        ("factor", "m * x -> (x)", 11),
        ("connective", "m <= n and n <= x -> (m <= n)", 14),
        ("comparison", "n <= x -> (n < x)", 15),
        ("dropped", f"{GIVEN} -> [bit_stable_across_arch]", 17),
        ("claimed", f"{GIVEN} -> [deterministic, bit_stable_across_arch, batch_invariant]", 17),
    }
    assert expected <= found and not {line for *_, line in found} & {1, 2, 5, 18}
    schedules = {mutant.line: mutant.use for mutant in of_spec("a", path, "a.yaml") if mutant.use}
    assert schedules == {13: "0", 14: "1", 15: "1"}


def bench() -> TreeBench:
    loaded = load_folder(SPECS)
    return TreeBench(ROOT, {op: Subject(entry, loaded, "baracuda.generated") for op, entry in loaded.items()}, {})


def mutant(before: str, after: str, file: str = "specs/attention/alibi.yaml", kind: str = SPEC) -> Mutant:
    start = (ROOT / file).read_text().index(before)
    return Mutant("alibi" if kind == SPEC else RUNTIME, kind, "o", file, 1, "", start, before, after)


def test_a_spec_that_generates_the_same_is_no_defect() -> None:
    assert bench().judge(mutant("op: alibi\n", "op: alibi  # b\n")) == Verdict(SAME)


def test_a_case_that_objects_to_the_unchanged_tree_kills_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[bool, str]] = []

    def tested(tree: Tree, question: Question) -> Iterator[Verdict]:
        asked.append((tree.root == ROOT, question.only))
        assert question.ops[-1] == "flash_sdpa" and len(question.kernels) == len(question.ops)
        unsound = Verdict(KILLED, "a", "b")
        yield from [unsound] if question.only == "a" else [] if question.only else [unsound, Verdict(KILLED, "c", "d")]

    for module in (mutant_trial, tree_run):
        monkeypatch.setattr(module, "tested", tested)
    changed, judge = mutant("if stride < 0:", "if True:", "runtime/arrays/axes.py", RUNTIME), bench().judge
    assert [judge(changed), judge(changed)] == 2 * [Verdict(KILLED, "c", "d")]
    assert asked == [(False, ""), (True, "a"), (True, "c"), (False, "")]
    monkeypatch.setattr(mutant_trial, "tested", lambda *_: (yield from ()))
    assert bench().judge(changed) == Verdict(SURVIVED)


def test_a_mutant_in_a_schedule_is_judged_by_its_kernel() -> None:
    question = bench().question(Mutant("flash_sdpa", SPEC, "o", "", 1, "", 0, "", "", use="4"))
    assert question.ops == ("flash_sdpa",) and not question.watched
    assert question.kernels[0] == "flash_sdpa_f64_t32_block_q8_block_k16_stages2_splits256"


def test_the_cases_of_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of its op come before."""
    monkeypatch.setenv(SAMPLE, "0")
    symbol = "alibi_f64_t256_packs4_blocks1056"
    names: list[Any] = [case.name for case in cases(Question(("alibi",), kernels=(symbol,), watched=False))]
    of_op = [name.endswith("[alibi]") for name in names]
    assert f"test layouts[{symbol}]" in names and f"test asynchrony[{symbol}]" not in names
    assert all(name.endswith(("[alibi]", f"[{symbol}]")) for name in names)
    assert of_op[1:] == sorted(of_op[1:], reverse=True) and "test selections[alibi]" in names
    assert not any(name.startswith("test --check") for name in names)
