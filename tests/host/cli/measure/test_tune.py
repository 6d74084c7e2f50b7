"""Invariant: a kernel takes the rule's place only where it computes the same, keeps every promise and clearly wins."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from host.host_machine import HostMachine

import baracuda.benchmarks.candidates as candidates_module
import baracuda.cli.measure.tune as commanded
from baracuda.benchmarks import tuning, worker
from baracuda.benchmarks.candidates import candidates
from baracuda.benchmarks.case import Case, cases_of, sweep_of
from baracuda.benchmarks.contest import OURS, Measured
from baracuda.benchmarks.tuning import Trial, decided, groups, objection, tried, winner
from baracuda.checking.executors import Pool
from baracuda.checking.problems.subject import Subject
from baracuda.cli.main import main
from baracuda.codegen.project import installed, plans_of
from baracuda.codegen.spec.load import Loaded, load_folder
from baracuda.codegen.spec.tuned import path_of, read_table, write_table
from baracuda.runtime import REGISTRY, ElementKind, Facts, Measurement

SPECS, PACKAGE = installed("baracuda.specs"), "baracuda.generated"
plans_of(PACKAGE)
WARP, BLOCK = (str(row.sku) for row in REGISTRY.candidates("sdpa", "f32"))
ABOUT = {"device": "Host", "driver": "1", "nvrtc": "unknown"}
Tune = Callable[..., Any]


@cache
def loaded() -> dict[str, Loaded]:
    return load_folder(SPECS)


def subject(op: str) -> Subject:
    return Subject(loaded()[op], loaded(), PACKAGE)


def attention(batch: int = 1, **changes: Any) -> Case:
    """Scores that the rule gives to a warp a row."""
    given = {"batch_size": batch, "num_heads": 2, "query_len": 8, "key_len": 8, "d_k": 8, "d_v": 8, "scale": 0.5}
    return Case(subject("sdpa"), {**given, **changes}, ElementKind.F32, tuned=False)


def rows(op: str, count: int, cols: int) -> Case:
    axis = {"softmax_axis": 1} if op == "softmax" else {"norm_axes_mask": 2}
    return Case(subject(op), {"input_shape": [count, cols], **axis}, ElementKind.F32, tuned=False)


def line(case: Case, peer: str, us: float | None, **changes: Any) -> Measured:
    given = {"us": us, "low": us, "high": us, "samples": 9, "how": "graph", "error": 1e-7}
    return Measured(case.op, case.label, case.element.value, peer, **{**given, **changes})


def trial(case: Case, rule: float | None, **others: float | None) -> Trial:
    return Trial(case, (line(case, OURS, rule), *(line(case, peer, us) for peer, us in others.items())))


# ---------------------------------------------------------------------------------------------------------- candidates


def test_candidates_serve_the_problem_promise_as_much_and_are_not_mostly_idle() -> None:
    case = rows("softmax", 4, 1000)
    by_rule = case.plan("host").sku
    found = {str(c.sku.schedule): c for c in candidates(case, by_rule, HostMachine())}
    assert by_rule not in {c.sku for c in found.values()}
    assert [n for n, c in found.items() if c.plan] == ["row128x1x4r8", "row128x1x8r8", "row256x1x8r4", "wide128x1x8r8"]
    assert all(c.plan.sku == c.sku for c in found.values() if c.plan)
    assert found["row8x16x4r8"].problem == "a row has 1000 columns, the tile holds 128"
    assert found["row512x1x8r2"].problem == "has 512 threads for a row of 250 packs"


def test_what_promises_something_else_or_spills_is_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    case = attention()
    sku = case.plan("host").sku
    weaker = replace(sku, precision_guarantee=replace(sku.precision_guarantee, batch_invariant=False))
    said = candidates_module._unlike(weaker, sku)
    assert said == "promises f32.f32.ds--, the rule's choice f32.f32.dsb-"
    monkeypatch.setattr(candidates_module, "_spilled", lambda plan, arch: 8 if str(plan.sku) == BLOCK else 0)
    (other,) = candidates(case, sku, HostMachine())
    assert (str(other.sku), other.plan, other.problem) == (BLOCK, None, "spills 8 bytes, the rule's choice 0")


def test_kernels_of_other_layouts_are_left_alone() -> None:
    given = {"batch_size": 1, "channels": 4, "seq_len": 20, "width": 4}
    case = Case(subject("causal_conv1d"), given, ElementKind.F32, tuned=False)
    assert all(c.sku.layout is None for c in candidates(case, case.plan("host").sku, HostMachine()))


def test_a_trial_times_the_rule_and_whoever_agrees_with_it() -> None:
    rule, block = tried(attention(), HostMachine({OURS: 300.0, BLOCK: 200.0}))
    assert (rule.peer, rule.us, rule.kernel) == (OURS, 300.0, "sdpa_f32_t128_lanes32")
    assert (block.peer, block.us) == (BLOCK, 200.0) and 0 <= (block.error or 0) < 1e-6


def test_a_candidate_that_computes_something_else_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = HostMachine.error
    monkeypatch.setattr(HostMachine, "error", lambda *args: real(*args) + 0.1)
    _, block = tried(attention(), HostMachine({OURS: 300.0, BLOCK: 200.0}))
    assert block.us is None and block.problem.startswith("disagrees: relative error 0.1")


def test_where_there_is_one_kernel_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "contest", lambda *_: pytest.fail("nobody to hold a contest with"))
    given = {"batch_size": 2, "num_heads": 2, "query_len": 8, "key_len": 8}
    (rule,) = tried(Case(subject("alibi"), given, ElementKind.F32, tuned=False), HostMachine())
    assert (rule.us, rule.problem) == (None, "")
    impossible = Case(subject("softmax"), {"input_shape": [2, 8], "softmax_axis": 5}, ElementKind.F32, tuned=False)
    (failed,) = tried(impossible, HostMachine())
    assert failed.problem.startswith("InvalidProblem: ")


# ------------------------------------------------------------------------------------------------------------- winning


@pytest.mark.parametrize(
    ("changes", "margin", "said"),
    [
        ({"us": 97.0, "high": 97.0}, 0.03, ""),
        ({"us": 98.0, "high": 98.0}, 0.03, "wins by less than 3%"),
        ({"us": 98.0, "high": 98.0}, 0.0, ""),
        ({"us": 101.0, "high": 101.0}, 0.0, "slower"),
        ({"us": 90.0, "high": 99.5}, 0.03, "wins by less than the spread"),
        ({"us": 50.0, "high": 50.0, "how": "events"}, 0.03, "timed by events, the rule's choice by graph"),
        ({"us": None, "problem": "disagrees"}, 0.03, "disagrees"),
    ],
)
def test_a_win_is_by_the_margin_and_beyond_the_spread(changes: dict[str, Any], margin: float, said: str) -> None:
    case = attention()
    rule = line(case, OURS, 100.0, low=99.0, high=101.0)
    other = line(case, BLOCK, changes.pop("us"), **changes)
    assert objection(other, rule, margin, exact=False) == said


def test_where_bits_are_promised_everywhere_only_the_same_bits_win() -> None:
    """Other architectures have other tables, or none."""
    other = str(next(r.sku for r in REGISTRY.candidates("rms_norm", "f32") if "row256" in str(r.sku)))
    case = rows("rms_norm", 4, 1000)
    assert winner([trial(case, 10.0, **{other: 5.0})], 0.03) is None
    same = Trial(case, (line(case, OURS, 10.0), line(case, other, 5.0, error=0.0)))
    assert winner([same], 0.03) == other
    assert winner([trial(rows("softmax", 4, 1000), 10.0, **{other: 5.0})], 0.03) == other


def test_the_batch_has_no_say_and_a_winner_wins_whatever_it_is() -> None:
    """A row's bits must not depend on how many rows there are, so neither may its kernel."""
    few, many, longer = rows("softmax", 4, 1000), rows("softmax", 4000, 1000), rows("softmax", 4, 1024)
    first, second = groups([trial(few, 1.0), trial(longer, 1.0), trial(many, 1.0)])
    assert [t.case for t in first] == [few, many] and [t.case for t in second] == [longer]
    assert first[0].facts == Facts({"packed": 1}, {"cols": 1000})
    assert "batch_size" not in trial(attention(3), 1.0).facts.near
    assert winner([trial(few, 10.0, a=5.0, b=9.0), trial(many, 10.0, a=11.0, b=9.0)], 0.03) == "b"
    assert winner([trial(few, 10.0, a=5.0, b=9.0), trial(many, 10.0, a=9.0, b=9.0)], 0.03) == "a"
    assert winner([trial(few, 10.0, a=5.0), trial(many, 10.0)], 0.03) is None


def test_a_table_is_merged() -> None:
    """What won replaces what was measured of the same, what no longer wins goes, what was not measured stays."""
    case, failed = attention(), attention(key_len=64)
    (kept,) = decided([trial(attention(key_len=99), 10.0, **{BLOCK: 5.0})], [], 0.03, ABOUT)
    (old,) = decided([trial(failed, 10.0, **{BLOCK: 5.0})], [], 0.03, ABOUT)
    (first,) = decided([trial(case, 10.0, **{BLOCK: 5.0})], [], 0.03, ABOUT)
    assert first.cases == {case.label: (5.0, 10.0)} and (first.sku, first.device) == (BLOCK, "Host")
    broken = Trial(failed, (line(failed, OURS, None, problem="CompileError"),))
    after = decided([trial(case, 12.0, **{BLOCK: 4.0}), broken], [kept, first, old], 0.03, ABOUT)
    assert after == [kept, replace(first, cases={case.label: (4.0, 12.0)}), old]
    assert decided([trial(case, 5.0, **{BLOCK: 5.0})], after, 0.03, ABOUT) == [kept, old]
    assert decided([trial(case, None)], after, 0.03, ABOUT) == [kept, old]  # there is nothing left to choose from


def test_a_table_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, (found,) = tmp_path / "deep" / "t.json", decided([trial(attention(), 10.0, **{BLOCK: 5.0})], [], 0.03, ABOUT)
    write_table(path, [found])
    before = path.read_text()

    def full(source: str, target: str) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        write_table(path, [replace(found, sku=WARP)])
    assert path.read_text() == before and list(path.parent.iterdir()) == [path]


# ------------------------------------------------------------------------------------------------------------- command


def here(*_: object, **__: object) -> AbstractContextManager[Pool]:
    """A pool of this process."""
    return nullcontext(Pool(ThreadPoolExecutor(1), 1))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> HostMachine:
    """The command on the host device, with one small case of attention, where the block wins."""
    made = HostMachine({OURS: 300.0, BLOCK: 200.0})
    monkeypatch.setattr(worker, "pool", here)
    monkeypatch.setattr(worker, "machine", lambda: made)
    monkeypatch.setattr(commanded, "chosen_cases", lambda *_, **__: [attention()])
    return made


@pytest.fixture
def specs(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SPECS / "attention", tmp_path / "specs" / "attention")).parent


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(main, ["tune", *map(str, arguments)], catch_exceptions=False)


def test_the_command_measures_shows_and_keeps(machine: HostMachine, specs: Path) -> None:
    path = path_of(specs, "host", "sdpa")
    result = invoke("sdpa", "--specs", specs)
    assert result.exit_code == 0, result.output
    shown = [row.split() for row in result.stdout.splitlines()]
    assert shown[0] == ["sdpa"] and shown[1] == ["case", "kernel", "us", "spread", "gain", "verdict"]
    assert "by rule: sdpa_f32_t128_lanes32" in result.stdout and shown[3][-2:] == ["+50.0%", "wins"]
    said = "1 measurements, 1 new, 0 gone; run 'baracuda-gen generate' to put them into plans"
    assert result.stderr == f"{path}: {said}\n"
    (found,) = read_table(path)
    assert (found.sku, found.device, found.driver) == (BLOCK, "Host", "1")
    assert found.digest == commanded.digest_of("sdpa") and list(found.cases.values()) == [(200.0, 300.0)]
    assert load_folder(specs)["sdpa"].tuned == {"host": (found,)}
    again = invoke("sdpa", "--specs", specs)
    assert again.stderr == f"{path}: 1 measurements, 0 new, 0 gone; unchanged\n"
    machine.times = {OURS: 200.0, BLOCK: 300.0}
    gone = invoke("sdpa", "--specs", specs)
    assert "0 measurements, 0 new, 1 gone" in gone.stderr and "slower" in gone.stdout and not path.exists()


def test_a_dry_run_and_too_small_a_win_write_nothing(machine: HostMachine, specs: Path) -> None:
    path = path_of(specs, "host", "sdpa")
    result = invoke("--specs", specs, "--dry-run")
    assert (result.exit_code, result.stderr) == (0, f"{path}: 1 measurements, 1 new, 0 gone; not written\n")
    assert "wins by less than 60%" in invoke("--specs", specs, "--margin", "0.6").stdout
    assert not path.exists()


def test_measuring_continues_where_it_stopped(machine: HostMachine, specs: Path, tmp_path: Path) -> None:
    state = tmp_path / "s.jsonl"
    shown = invoke("--specs", specs, "--state", state, "--dry-run").stdout
    lines = [json.loads(one) for one in state.read_text().splitlines()]
    assert [one["peer"] for one in lines] == [BLOCK, OURS] and lines[0]["facts"]["arch"] == "host"
    machine.times = {OURS: 1.0, BLOCK: 9.0}
    assert invoke("--specs", specs, "--state", state, "--dry-run").stdout == shown
    listed = json.loads(invoke("--specs", specs, "--state", state, "--dry-run", "--json").stdout)
    assert {one["peer"]: one["us"] for one in listed} == {OURS: 300.0, BLOCK: 200.0}
    text = state.read_text().replace(commanded.digest_of("sdpa"), "other kernels")
    state.write_text(text)
    assert invoke("--specs", specs, "--state", state, "--dry-run").stdout != shown


def test_a_case_that_fails_is_a_line_and_keeps_its_measurement(
    machine: HostMachine, specs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert invoke("--specs", specs).exit_code == 0

    def dead(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(HostMachine, "random", dead)
    result = invoke("--specs", specs)
    assert result.exit_code == 1 and "unchanged" in result.stderr
    assert result.stderr.splitlines()[-1] == f"sdpa {attention().label}: RuntimeError: out of memory"
    assert path_of(specs, "host", "sdpa").exists()


def test_cases_of_other_types_and_sweeps() -> None:
    found = subject("softmax")
    assert {c.element for c in cases_of(found, ["f32", "f64"])} == {"f32", "f64"}
    pinned = [c.element for c in cases_of(subject("flash_sdpa"), ["f32"])]
    assert set(pinned) == {"f32"}
    assert {c.element for c in sweep_of(found, ["f16"])} == {"f16"}
    assert len(list(sweep_of(found, ["f16", "bf16"]))) == 2 * len(list(sweep_of(found)))


def test_what_cannot_be_tuned_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch, specs: Path) -> None:
    monkeypatch.setattr(worker, "pool", here)
    monkeypatch.setitem(sys.modules, "torch", None)
    for arguments, message in (
        (["sdpa"], "torch is not installed; get it with 'pip install torch'"),
        (["spda"], "no op 'spda'; did you mean 'sdpa'?"),
        (["sdpa", "--dtypes", "f33"], "unknown element 'f33'"),
    ):
        result = invoke(*arguments, "--specs", specs)
        assert result.exit_code == 1 and result.stderr.startswith(message) and result.stderr.count("\n") == 1


def test_a_measurement_holds_for_what_it_says(specs: Path, machine: HostMachine) -> None:
    """Its facts are those that a plan looks it up by."""
    invoke("--specs", specs)
    (found,) = read_table(path_of(specs, "host", "sdpa"))
    facts = attention(7).subject.plan.facts_of(attention(7).descriptor)
    assert found.distance("f32", facts) == 0.0 and isinstance(found, Measurement)
    assert found.distance("f32", facts._replace(near={**facts.near, "key_len": 12})) is None
    assert np.isclose(found.distance("f32", facts._replace(near={**facts.near, "key_len": 11})) or 0, np.log(11 / 8))
