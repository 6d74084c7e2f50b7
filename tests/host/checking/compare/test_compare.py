"""Invariant: problems to compare with torch are drawn alike each time; whatever is wrong is found, kept and shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from baracuda.checking import gpus
from baracuda.checking.apart import Lost
from baracuda.checking.compare import judge as judging
from baracuda.checking.compare import report, state, torch_values, worker
from baracuda.checking.compare.draw import cost, draw
from baracuda.checking.compare.expected import values_of
from baracuda.checking.compare.judge import Measured, Outcome, Settings, judge
from baracuda.checking.compare.search import hardest
from baracuda.checking.compare.worker import Setup
from baracuda.checking.executors import Pool
from baracuda.checking.oracles.accuracy import Accuracy, compare
from baracuda.checking.oracles.oracle import explicit, reference, widen
from baracuda.checking.oracles.references import definition
from baracuda.checking.problems.problem import Arrays
from baracuda.checking.problems.subject import Subject
from baracuda.checking.result_file import digest_of
from baracuda.checking.trials.arrange import Arranged
from baracuda.checking.trials.memory import Memory, memory_of
from baracuda.cli.main import main
from baracuda.cli.prove import compare as commanded
from baracuda.codegen.project import installed, plans_of
from baracuda.codegen.spec.load import Loaded, load_folder
from baracuda.runtime import ElementKind, InvalidProblem, Unsupported
from baracuda.runtime.devices.cuda import CudaDevice

SPECS, PACKAGE = installed("baracuda.specs"), "baracuda.generated"
_AGREED = 4  # problems of each op of which torch's values are compared with the oracle's
SETTINGS = Settings(0, "host", 1 << 10, 3)
SHOWN = {"arch": "sm_80", "kernel": "k", "descriptor": "D()", "style": "normal", "layouts": "contiguous"}
FINE = Outcome("softmax", 1, "f32", **SHOWN, outputs={"y": Measured(0.5, 1e-7, 2e-8)})
BAD = Outcome("softmax", 2, "f32", **SHOWN, outputs={"y": Measured(float("inf"), 1.0, 1.0)}, failure="'y' | wrong")


@cache
def loaded() -> dict[str, Loaded]:
    return load_folder(SPECS)


@cache
def subject(op: str) -> Subject:
    plans_of(PACKAGE)
    return Subject(loaded()[op], loaded(), PACKAGE)


# ------------------------------------------------------------------------------------------------------------ drawing


def described(op: str, index: int, seed: int = 0) -> tuple[str, ...]:
    drawn = draw(subject(op), seed, index, "host", 1 << 12)
    return str(drawn.problem.descriptor), drawn.style, drawn.layouts, str(drawn.seed), drawn.problem.plan.sku.symbol


@pytest.mark.parametrize("op", ["rms_norm", "log_softmax_backward"])
def test_a_problem_follows_from_seed_op_and_number(op: str) -> None:
    assert described(op, 17) == described(op, 17)
    assert described(op, 17) != described(op, 17, seed=1)
    assert len({described(op, index) for index in range(12)}) == 12


def test_problems_cover_elements_tiles_ranks_flags_and_layouts() -> None:
    one = subject("rms_norm")
    drawn = [draw(one, 0, index, "host", 1 << 12) for index in range(200)]
    problems = [d.problem for d in drawn]
    assert {p.element for p in problems} == set(map(ElementKind, one.spec.dtypes))
    assert len({p.plan.sku.symbol for p in problems}) > len(one.spec.dtypes)
    assert {len(p.values["input_shape"]) for p in problems} >= {1, 2, 4}
    assert {p.values["has_gamma"] for p in problems} == {False, True}
    assert any(p.size == 0 for p in problems) and all(cost(p) <= 1 << 12 for p in problems)
    assert any(d.broadcast for d in drawn) and any(d.choice for d in drawn)
    assert {d.layouts for d in drawn} > {"contiguous"}
    assert {d.style for d in drawn} == set(problems[0].STYLES)


def test_what_is_not_there_to_run_is_refused() -> None:
    with pytest.raises(Unsupported, match="no problem of f32"):
        draw(subject("softmax"), 0, 0, "host", limit=-1)


def test_every_forward_op_has_torchs_version() -> None:
    missing = {op for op, one in loaded().items() if values_of(one.spec) is None}
    assert not missing


# ------------------------------------------------------------------------------------------------------- state, report


def test_state_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    first = state.State(path, SETTINGS, "texts")
    first.add(FINE)
    path.write_text(path.read_text() + '{"torn')
    state.State(path, SETTINGS, "texts").add(BAD)
    again = state.State(path, SETTINGS, "texts")
    assert again.outcomes == {("softmax", 1): FINE, ("softmax", 2): BAD}
    assert not state.State(path, SETTINGS, "other texts").outcomes
    assert not state.State(path, replace(SETTINGS, seed=1), "texts").outcomes
    assert [json.loads(line)["index"] for line in path.read_text().splitlines() if line.endswith("}")] == [1, 2]


def test_the_digest_changes_with_texts_alone(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text("one")
    before = digest_of([tmp_path])
    (tmp_path / "notes.md").write_text("two")
    assert digest_of([tmp_path]) == before
    (tmp_path / "a.cu").write_text("three")
    assert digest_of([tmp_path]) != before


def test_the_report_has_the_worst_and_every_failure(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    state.State(path, SETTINGS, "old").add(replace(FINE, index=0, outputs={"y": Measured(0.9, 1.0, 1.0)}))
    kept = state.State(path, SETTINGS, "new")
    for outcome in (FINE, replace(FINE, index=3, outputs={"y": Measured(0.7, 1e-9, 3e-8)}), BAD):
        kept.add(outcome)
    (row,) = report.rows_of([FINE, kept.outcomes["softmax", 3]])
    assert (row["problems"], row["worst / bound"], row["problem"]) == (2, 0.7, 3)
    assert (row["worst error"], row["relative"]) == (1e-7, 2.5e-8)
    page = report.markdown([path])
    assert "| softmax | f32 | sm_80 | y | 3 | 1 u \\|y\\| + 1 E | inf |" in page
    assert "softmax 2: 'y' \\| wrong" in page and "baracuda-gen compare softmax --only 2 --seed 0" in page
    assert "3 problems, 1 failures; seed 0 on host; texts new. 1 lines of other texts do not count." in page
    assert "Nothing was judged" in report.markdown([])


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["compare", *map(str, arguments)], catch_exceptions=False)


def test_a_page_of_a_search_lists_loose_bounds(tmp_path: Path) -> None:
    path, tight = tmp_path / "state.jsonl", replace(FINE, op="sdpa")
    loose = replace(FINE, outputs={"y": Measured(0.049, 1e-9, 1e-9), "z": Measured(0.0, 0.0, 0.0)})
    for settings in (SETTINGS, replace(SETTINGS, search=5)):
        for outcome in (loose, tight):
            state.State(path, settings, "texts").add(outcome)
        listed = "less than 0.05 in use: `softmax` y in f32 for sm_80.\n" in report.markdown([path])
        assert listed == (settings.search > 0)
    assert report.replay(loose, settings).endswith(" --repeats 3 --search 5")


class Sloped:
    """A trial that errs by its sum, in units of a bound of 4, and cannot run where a number is beyond 3."""

    def __init__(self, inputs: Arrays) -> None:
        self.inputs = inputs

    def measure(self, memory: Memory) -> dict[str, Accuracy]:
        if (self.inputs["x"] > 3).any():
            raise RuntimeError("no launch")
        return {"y": Accuracy(0.0, float(np.float64(self.inputs["x"]).sum()) / 4, 0.0)}


def test_a_search_climbs_within_what_was_drawn() -> None:
    memory, inputs = memory_of("host"), {"x": np.array([0.1, 0.5, 0.2, 0.4], np.float16), "n": np.arange(4)}
    made: Any = Sloped
    found: Any = hardest(made, inputs, 200, 0, memory)
    assert 1.9 < found.inputs["x"].sum() <= 2.0 and found.inputs["x"].dtype == np.float16
    assert (inputs["x"].sum() < 1.3) and found.inputs["n"] is inputs["n"]
    again: Any = hardest(made, inputs, 200, 0, memory)
    assert (again.inputs["x"] == found.inputs["x"]).all()
    beyond: Any = hardest(made, {"x": np.array([0.1, 2.0, 1.0])}, 200, 0, memory)
    assert 4 < beyond.inputs["x"].sum() < 6  # it ends at the first
    raising: Any = hardest(made, {"x": np.array([9.0, 1.0])}, 200, 0, memory)
    assert (raising.inputs["x"] == [9.0, 1.0]).all()


def test_the_report_command(tmp_path: Path) -> None:
    path, page = tmp_path / "state.jsonl", tmp_path / "page.md"
    state.State(path, SETTINGS, "texts").add(FINE)
    assert invoke("--report", path, "--out", page).exit_code == 0
    assert page.read_text() == invoke("--report", path).stdout


def test_torch_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name, name=name)

    monkeypatch.setattr(torch_values, "import_module", missing)
    with pytest.raises(Unsupported, match="pip install torch"):
        torch_values.torch_module()


def judge_of(setup: Setup) -> Callable[[str, int], Outcome]:
    """A judge that dies of problem 1 and whose device fails in problem 2."""

    def judge(op: str, index: int) -> Outcome:
        if index == 1:
            raise Lost("the process that had this task died with 7; it said 'out of order'")
        return Outcome(op, index, "f32", **SHOWN, failure="no more" * (index == 2), fatal=index == 2)

    return judge


def test_a_process_that_dies_fails_its_problem_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[bool] = []
    monkeypatch.setattr(worker, "judge_of", judge_of)
    monkeypatch.setattr(worker, "retire", lambda: ended.append(True))
    monkeypatch.setattr(commanded, "torch_module", lambda: None)
    monkeypatch.setattr(commanded, "pool", lambda *_, **__: nullcontext(Pool(ThreadPoolExecutor(1), 1)))
    shown = invoke("softmax", "--count", 5, "--device", "host", "--state", tmp_path / "s.jsonl", "--json")
    assert shown.exit_code == 1 and ended == [True]
    found = [outcome for *_, outcome in state.lines([tmp_path / "s.jsonl"])]
    assert [outcome.index for outcome in found] == [0, 1, 2, 3, 4]
    assert [outcome.failure[-14:] for outcome in found] == ["", "'out of order'", "no more", "", ""]


def test_each_gpu_gets_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def pool(executor: str, jobs: int | None, **how: Any) -> AbstractContextManager[Pool]:
        asked.append(how)
        return nullcontext(Pool(ThreadPoolExecutor(1), 1))

    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    monkeypatch.setattr(CudaDevice, "count", lambda: 3)
    monkeypatch.setattr(commanded, "torch_module", lambda: None)
    monkeypatch.setattr(commanded, "pool", pool)
    monkeypatch.setattr(commanded, "judged", lambda setup, key: Outcome(*key, element="f32", **SHOWN))
    for options, seen in ((("--gpus", "all"), ["0", "1", "2"]), (("--gpus", "2,0"), ["2", "0"]), ((), [])):
        assert invoke("softmax", "--count", 1, "--device", "cuda", *options).exit_code == 0
        assert [place[gpus.VISIBLE] for place in asked[-1]["places"]] == seen
    assert "--gpus all is for --device cuda, not host" in invoke("softmax", "--device", "host", "--gpus", "all").stderr


def test_shards_are_parts_of_one_whole() -> None:
    work = [(op, index) for index in range(7) for op in "ab"]
    parts = [commanded.shard(work, f"{part}/3") for part in (1, 2, 3)]
    assert sorted(key for part in parts for key in part) == sorted(work)
    assert all({op for op, _ in part} == {"a", "b"} for part in parts)
    with pytest.raises(InvalidProblem, match="1 <= I <= N"):
        commanded.shard(work, "0/3")


# ---------------------------------------------------------------------------------------------------------- with torch


def judged(op: str, index: int, settings: Settings = SETTINGS) -> Outcome:
    pytest.importorskip("torch")
    return judge(subject(op), index, settings, memory_of("host"), "cpu")


@pytest.mark.frontends
def test_a_search_finds_larger_errors_of_the_same_problem() -> None:
    before, after = (judged("rms_norm", 0, replace(SETTINGS, search=steps)) for steps in (0, 30))
    assert not after.failure and before.descriptor == after.descriptor
    assert before.outputs["y"].ratio < after.outputs["y"].ratio <= 1


@pytest.mark.frontends
@pytest.mark.parametrize(("op", "index"), [("softmax", 0), ("softmax", 1), ("layer_norm_backward", 3)])
def test_what_is_right_is_within_the_bound(op: str, index: int) -> None:
    outcome = judged(op, index)
    assert not outcome.failure and outcome.outputs and all(0 <= m.ratio <= 1 for m in outcome.outputs.values())
    assert outcome == state.outcome_of(json.loads(json.dumps(asdict(outcome))))


@pytest.mark.frontends
@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, of variances of one number
@pytest.mark.parametrize("op", loaded())
def test_torch_agrees_with_the_oracle(op: str) -> None:
    """Of problems as they are drawn, empty ones among them: what torch refuses, or computes in another way, shows."""
    for index in range(_AGREED):
        drawn = draw(subject(op), 1, index, "host", 1 << 12)
        problem, settings = drawn.problem, replace(SETTINGS, seed=1)
        trial = judging.trial_of(drawn, "cpu", settings, memory_of("host"))
        with np.errstate(all="ignore"):
            wide = widen(problem, trial.inputs)
            exact = explicit(problem, wide)
            if exact is None and problem.forward is None:
                exact = reference(problem, wide)
        for argument, name in problem.results.items() if exact else ():  # hand-written gradients need their forward
            kind = ElementKind.C128 if problem.element.row.numpy.kind == "c" else ElementKind.F64
            found = compare(np.asarray(trial.exact[argument]), exact[name], trial.allowed[argument], kind)
            assert found.worst_ratio <= 1, f"{problem.descriptor}, {drawn.style}: {argument!r} is wrong, {found}"


@pytest.mark.frontends
def test_a_wrong_result_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Arranged.run

    def wrong(arranged: Arranged, plan: Any = None) -> Any:
        outputs = right(arranged, plan)
        outputs["y"].flat[0] += 1
        return outputs

    monkeypatch.setattr(Arranged, "run", wrong)
    outcome = judged("softmax", 0)
    assert "'y' is wrong" in outcome.failure and outcome.outputs["y"].ratio > 1 and not outcome.fatal
    (row,) = report.failures_of([outcome], SETTINGS)
    assert row["again"] == "baracuda-gen compare softmax --only 0 --seed 0 --device host --limit 1024 --repeats 3"
    shown = invoke("softmax", "--only", 0, "--device", "host", "--limit", 1 << 10, "--repeats", 3)
    assert shown.exit_code == 1 and outcome.descriptor in shown.stdout and "1 failures" in shown.stdout


@pytest.mark.frontends
def test_bits_that_change_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    one = subject("softmax")
    bind = one.plan.bind

    def unsteady(plan: Any, **arrays: Any) -> Any:
        start, turns = bind(plan, **arrays), iter(range(9))

        def launch() -> None:
            start()
            if next(turns) == 1:
                arrays["y"].owner.array[:] ^= 1

        return launch

    monkeypatch.setattr(one.plan, "bind", unsteady)
    assert judged("softmax", 0).failure == "run 3 gives 'y' other bits than the first"
    assert not judged("softmax", 0, replace(SETTINGS, repeats=2)).failure
    monkeypatch.setattr(one.plan, "PROMISES", {"y": ()})
    assert not judged("softmax", 0).failure


@pytest.mark.frontends
def test_an_exception_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise InvalidProblem("never")

    monkeypatch.setattr(judging, "expect", refuse)
    assert judged("softmax", 0).failure.startswith("InvalidProblem: never (test_compare.py:")


@pytest.mark.frontends
def test_the_command_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(commanded, "against", lambda *_: "texts")  # which may be edited meanwhile
    kept = tmp_path / "state.jsonl"
    command = ["softmax", "--device", "host", "--limit", 1 << 10, "--jobs", 1, "--state", kept, "--json"]
    first = invoke(*command, "--count", 2)
    assert first.exit_code == 0 and len(kept.read_text().splitlines()) == 2
    assert invoke(*command, "--count", 2).stdout == first.stdout and len(kept.read_text().splitlines()) == 2


FIELDS = {"batch_size": 2, "num_heads": 4, "num_kv_heads": 2, "query_len": 5, "key_len": 7, "d_k": 3, "d_v": 2}
BAND = {"is_causal": False, "bottom_right": False, "window_left": -1, "window_right": -1, "softcap": 0.0}


@pytest.mark.frontends
@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"is_causal": True},
        {"is_causal": True, "bottom_right": True, "query_len": 9},
        {"window_left": 1, "window_right": 0, "softcap": 2.0},
        {"window_left": 0, "window_right": 2, "bottom_right": True, "scale": -0.5},
        {"num_heads": 2, "key_len": 0},
    ],
)
def test_attention_in_torch_is_what_its_definition_says(changed: Mapping[str, Any]) -> None:
    fields = {**FIELDS, **BAND, "scale": 0.3, **changed}
    rng = np.random.default_rng(0)
    batch, heads, queries, keys = (fields[n] for n in ("batch_size", "num_heads", "query_len", "key_len"))
    arrays = {
        "q": rng.standard_normal((batch, heads, queries, fields["d_k"])),
        "k": rng.standard_normal((batch, fields["num_kv_heads"], keys, fields["d_k"])),
        "v": rng.standard_normal((batch, fields["num_kv_heads"], keys, fields["d_v"])),
    }
    mask = np.where(rng.random((batch, heads, queries, keys)) < 0.4, -np.inf, 1.0)
    slopes = rng.random((batch, heads))
    for more in ({}, {"mask": mask}, {"mask": mask, "alibi_slopes": slopes}):
        same("flash_sdpa", "attention.flash_sdpa", fields, {**arrays, **more})
    if not (fields["softcap"] or fields["window_left"] >= 0):
        same("sdpa", "attention.sdpa", fields, {**arrays, "mask": mask})


def same(op: str, oracle: str, fields: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """torch's version of an op gives what the definition does, and its slopes are numbers."""
    torch = pytest.importorskip("torch")
    tensors = {n: torch.from_numpy(a) for n, a in arrays.items()}
    real = [t.requires_grad_() for t in tensors.values() if t.is_floating_point()]
    found, values = torch_values.FORWARD[op](torch, fields, tensors), definition(oracle).values
    assert values is not None
    with np.errstate(all="ignore"):
        expected = values(np, fields, arrays)
    for name, tensor in found.items():
        np.testing.assert_allclose(tensor.detach().numpy(), expected[name], rtol=1e-12, atol=1e-13, err_msg=name)
    slopes = torch.autograd.grad(found["y"].sum(), real, allow_unused=True, materialize_grads=True)
    assert all(torch.isfinite(slope).all() for slope in slopes)


@pytest.mark.frontends
@pytest.mark.parametrize("silu", [False, True])
def test_convolution_in_torch_is_what_its_definition_says(silu: bool) -> None:
    rng = np.random.default_rng(0)
    fields = {"batch_size": 2, "channels": 3, "seq_len": 6, "width": 4, "num_sequences": 2, "use_silu": silu}
    weight, bias = rng.standard_normal((3, 4)), rng.standard_normal(3)
    arrays = {"x": rng.standard_normal((2, 3, 6)), "weight": weight, "bias": bias}
    states = {"initial_states": rng.standard_normal((2, 3, 3))}
    same("causal_conv1d", "convolution.causal_conv1d", fields, arrays)
    same("causal_conv1d", "convolution.causal_conv1d", fields, {**arrays, **states})
    packed = {**arrays, "x": rng.standard_normal((1, 3, 9)), "initial_states": rng.standard_normal((4, 3, 3))}
    packed["cu_seqlens"] = np.array([0, 2, 2, 8, 9])
    fields |= {"batch_size": 1, "seq_len": 9, "num_sequences": 4}
    same("causal_conv1d", "convolution.causal_conv1d", fields, packed)
    update = {"x": rng.standard_normal((2, 3, 2)), "weight": weight, "conv_state": rng.standard_normal((2, 3, 5))}
    same("causal_conv1d_update", "convolution.causal_conv1d_update", fields, update)
