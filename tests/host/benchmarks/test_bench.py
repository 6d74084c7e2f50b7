"""Invariant: benchmarks time what specs say, count bytes and flops as by hand, and let nobody wrong compete."""

from __future__ import annotations

import csv as csv_
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from host.host_machine import HostMachine
from repository import few

import baracuda.cli.measure.bench as commanded
from baracuda.benchmarks import contest as contests
from baracuda.benchmarks import peers as peer_modules
from baracuda.benchmarks import plot, report, worker
from baracuda.benchmarks.case import Case, Tensor, Traffic, cases_of, columns, sweep_of
from baracuda.benchmarks.contest import OURS, VIEW, Measured, contest
from baracuda.benchmarks.machine import TorchMachine
from baracuda.benchmarks.peers import Body, Call, Maker, Tensors
from baracuda.benchmarks.state import State, latest
from baracuda.benchmarks.timing import Clock, spread
from baracuda.checking import gpus
from baracuda.checking.apart import Lost
from baracuda.checking.executors import Pool
from baracuda.checking.problems.problem import Problem
from baracuda.checking.problems.subject import Subject
from baracuda.cli.kernels.explain import Architecture
from baracuda.cli.main import main
from baracuda.codegen.project import installed, plans_of
from baracuda.codegen.spec.load import Loaded, load_folder
from baracuda.runtime import ElementKind, InvalidProblem, SpecError, Unsupported
from baracuda.runtime.devices.cuda import CudaDevice

SPECS, PACKAGE = installed("baracuda.specs"), "baracuda.generated"
HOPPER = Architecture("sm_90", "sm_90")


@cache
def loaded() -> dict[str, Loaded]:
    return load_folder(SPECS)


@cache
def subject(op: str) -> Subject:
    plans_of(PACKAGE)
    return Subject(loaded()[op], loaded(), PACKAGE)


@cache
def labels(op: str) -> dict[str, Case]:
    return {case.label: case for case in cases_of(subject(op))}


def small(op: str, element: str = "f32", **fields: Any) -> Case:
    return Case(subject(op), fields, ElementKind(element))


ROWS = small("rms_norm_backward", input_shape=[6, 40], norm_axes_mask=2)


# -------------------------------------------------------------------------------------------------------------- cases

WANTED = {
    "rms_norm": ["bf16 32768x4096", "bf16 8192x16384", "bf16 4096x65536"],
    "rms_norm_backward": [
        *("bf16 32768x1024", "bf16 32768x4096", "bf16 16384x8192", "bf16 8192x16384", "bf16 4096x65536"),
        *("f32 32768x4096", "f32 16384x8192", "f32 4096x65536", "bf16 1024x4096"),
    ],
    "alibi": ["bf16 B4 H32 S2048"],
    "alibi_backward": ["bf16 B4 H32 S2048", "bf16 B1 H32 Q8192 K4096"],
    "repeat": ["bf16 4096x4096 by 4x4", "bf16 64x1024x512 by 8x1x2", "bf16 1024x17x33 by 3x5x7"],
    "repeat_backward": [
        *("bf16 4096x4096 by 4x4", "bf16 64x1024x512 by 8x1x2", "bf16 1024x17x33 by 3x5x7"),
        "f32 64x1024x512 by 8x1x2",
    ],
    "causal_conv1d": ["bf16 B8 C4096 L4096 W4", "bf16 B32 C2048 L2048 W3"],
    "causal_conv1d_backward": ["bf16 B8 C4096 L4096 W4", "bf16 B32 C2048 L2048 W3"],
    "flash_sdpa": [
        *(f"bf16 B{max(1, 16384 // s)} H{h} S{s} D{d} {c}"
          for d, h in ((64, 32), (128, 16), (256, 8)) for s in (512, 1024, 4096, 16384, 32768)
          for c in ("full", "causal")),
        *("bf16 B4 H16 KV2 S4096 D128 full", "bf16 B4 H16 KV2 S4096 D128 causal", "f16 B4 H16 S4096 D128 full"),
        *("bf16 B16 H16 Q1 K32768 D128 full", "f32 B4 H16 S2048 D64 full", "f64 B4 H16 S2048 D64 full"),
        *("bf16 B4 H16 S4096 D128 full sm_80", "bf16 B4 H16 S4096 D128 full sm_89"),
    ],
    "flash_sdpa_backward": [f"bf16 B1 H16 S16384 D128 {c}" for c in ("full", "causal")],
}  # fmt: skip


@pytest.mark.parametrize("op", WANTED)
def test_every_comparison_with_peers_is_a_case(op: str) -> None:
    assert set(WANTED[op]) <= set(labels(op))


@pytest.mark.parametrize("op", few(sorted(load_folder(SPECS)), 20))
def test_every_op_has_cases_that_select_and_no_two_share_a_name(op: str) -> None:
    cases = list(cases_of(subject(op)))
    assert len({case.label for case in cases}) == len(cases) > 0
    for case in cases:
        plan = case.plan(HOPPER)
        assert case.arch in (None, plan.sku.arch)
        assert case.tensors(plan)


@pytest.mark.parametrize(
    ("op", "label", "read", "written", "kind"),
    [
        ("rms_norm", "bf16 32768x4096", 2 * 32768 * 4096 + 2 * 4096, 2 * 32768 * 4096 + 4 * 32768, "copy"),
        (
            *("rms_norm_backward", "f32 32768x4096"),
            *(4 * (2 * 32768 * 4096 + 4096 + 32768), 4 * (32768 * 4096 + 4096), "copy"),
        ),
        ("repeat", "bf16 4096x4096 by 4x4", 2 * 4096**2, 2 * 16 * 4096**2, "write"),
        ("repeat_backward", "bf16 4096x4096 by 4x4", 2 * 16 * 4096**2, 2 * 4096**2, "read"),
        ("alibi_backward", "bf16 B1 H1 S32768 no-dscores", 2 * 32768**2, 2, "read"),
        (
            *("causal_conv1d_update", "bf16 B256 C4096 L1 W4 state4"),
            *(2 * 256 * 4096 * 5 + 2 * 4096 * 5, 2 * 256 * 4096 * 5, "copy"),
        ),
        ("flash_sdpa", "bf16 B16 H16 Q1 K32768 D128 full", 2 * 256 * 128 * (2 * 32768 + 1), 256 * (256 + 4), "read"),
    ],
)
def test_bytes_by_hand(op: str, label: str, read: int, written: int, kind: str) -> None:
    """What is optional and absent costs nothing, what is saved counts in its own type, what is updated counts twice."""
    case = labels(op)[label]
    traffic = Traffic.of(case.tensors(case.plan(HOPPER)))
    assert (traffic.read, traffic.written, traffic.kind) == (read, written, kind)


@pytest.mark.parametrize(
    ("op", "label", "flops"),
    [
        ("flash_sdpa", "bf16 B4 H16 S4096 D128 full", 4 * 4 * 16 * 4096**2 * 128),
        ("flash_sdpa", "bf16 B4 H16 S4096 D128 causal", 2 * 4 * 16 * 4096**2 * 128),
        ("flash_sdpa_backward", "bf16 B1 H16 S16384 D128 full", 10 * 16 * 16384**2 * 128),
        ("flash_sdpa_backward", "bf16 B1 H16 S16384 D128 causal", 5 * 16 * 16384**2 * 128),
        ("sdpa", "bf16 B4 H16 S1024 D64 full", 4 * 4 * 16 * 1024**2 * 64),
        ("rms_norm", "bf16 32768x4096", None),
    ],
)
def test_flops_by_hand(op: str, label: str, flops: int | None) -> None:
    assert labels(op)[label].flops() == flops


def test_a_sweep_has_rows_of_every_length_in_problems_of_one_size() -> None:
    cases = list(sweep_of(subject("rms_norm_backward")))
    lengths = [columns(case.label) or 0 for case in cases]
    assert (min(lengths), max(lengths)) == (64, 131072) and sum(n % 2 for n in lengths) >= 10
    sizes = [np.prod(case.values["input_shape"]) for case in cases]
    assert min(sizes) > 0.99 * max(sizes)
    assert not list(sweep_of(subject("repeat")))
    assert columns("bf16 B4 H32 S2048") is columns("bf16 1024x17x33 by 3x5x7") is None


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("cases: [{dtype: i8}]", "'i8' is none of this op's; known are f32, f16, bf16, f64"),
        ("cases: [{arch: sm_100}]", "'sm_100' is none of this op's; did you mean 'sm_80'?"),
        ("dtypes: [i8]\n  cases: []", "'i8' is none of this op's; known are f32, f16, bf16, f64"),
        ("flops: axis * 2\n  cases: []", "unknown field 'axis'; known are input_shape, softmax_axis"),
        ("cases: [{axis: 1}]", "unknown field 'axis'; known are input_shape, softmax_axis"),
    ],
)
def test_a_spec_that_cannot_be_measured_is_refused(said: str, message: str, tmp_path: Path) -> None:
    text = (SPECS / "softmax" / "softmax.yaml").read_text()
    (tmp_path / "softmax.yaml").write_text(text[: text.index("bench:")] + f"bench:\n  {said}\n")
    with pytest.raises(SpecError) as raised:
        load_folder(tmp_path)
    assert message in str(raised.value)


def test_dtypes_are_the_cases_own_or_the_specs_or_bf16(tmp_path: Path) -> None:
    text = (SPECS / "softmax" / "softmax.yaml").read_text()
    case = "{input_shape: [4, 8], softmax_axis: 1"
    said = f"bench:\n  dtypes: [f16, f64]\n  cases:\n    - {case}}}\n    - {case}, dtype: f32}}\n"
    (tmp_path / "softmax.yaml").write_text(text[: text.index("bench:")] + said)
    found = load_folder(tmp_path)
    elements = [case.element for case in cases_of(Subject(found["softmax"], found, PACKAGE))]
    assert elements == ["f16", "f64", "f32"]


# ------------------------------------------------------------------------------------------------------------ contests


def numpy_peer(factor: float = 1.0, names: tuple[str, ...] = ("dx", "dgamma")) -> Maker:
    """RMSNorm's gradient in NumPy, wrong by a factor if asked to be."""

    def body(tensors: Tensors) -> Call:
        def call() -> dict[str, Any]:
            dy, x, gamma = (np.asarray(tensors[n], np.float64) for n in ("dy", "x", "gamma"))
            r = 1 / np.asarray(tensors["rms"], np.float64).reshape(-1, 1)
            wdy, xhat = dy * gamma, x * r
            dx = r * (wdy - xhat * (xhat * wdy).mean(1, keepdims=True))
            found = {"dx": factor * dx, "dgamma": (dy * xhat).sum(0)}
            return {name: found[name] for name in names}

        return call

    def maker(case: Case) -> Body | None:
        return body if case.op == "rms_norm_backward" else None

    return maker


def broken(error: Exception) -> Maker:
    def maker(case: Case) -> Body | None:
        raise error

    return maker


def by_peer(found: list[Measured]) -> dict[str, Measured]:
    return {one.peer: one for one in found}


def test_a_contest_times_who_agrees_and_says_why_not_of_the_others() -> None:
    """The inputs that a forward saves are its own: NumPy's gradient, from them, is ours."""
    makers = {
        "numpy": numpy_peer(),
        "wrong": numpy_peer(1.01),
        "nan": numpy_peer(float("nan")),
        "silent": numpy_peer(names=()),
        "broken": broken(RuntimeError("no kernel image\nand more")),
        "other": lambda case: None,
    }
    machine = HostMachine({OURS: 200.0, "numpy": 300.0})
    found = by_peer(contest(ROWS, makers, machine))
    assert list(found) == [OURS, "numpy", "wrong", "nan", "silent", "broken"]
    assert (found[OURS].us, found["numpy"].us) == (200.0, 300.0)
    assert found[OURS].how == "events" and found[OURS].kernel.startswith("rms_norm_backward_f32")
    assert (found["numpy"].error or 1) < 1e-6 and not found["numpy"].problem
    assert found["wrong"].us is None
    assert found["wrong"].problem.startswith("disagrees: relative error 0.01")
    assert all(found[name].us is None and "disagrees" in found[name].problem for name in ("nan", "silent"))
    assert found["broken"].problem == "RuntimeError: no kernel image"


def test_short_calls_are_replayed_over_buffers_larger_than_the_cache() -> None:
    machine = HostMachine({OURS: 20.0, "numpy": 300.0}, uncaptured=("numpy",))
    found = by_peer(contest(ROWS, {"numpy": numpy_peer()}, machine))
    nbytes = found[OURS].read + found[OURS].written
    assert machine.sets[OURS] == machine.sets["numpy"] and (machine.sets[OURS] - 1) * nbytes >= 2 * machine.l2_bytes
    assert (found[OURS].how, found["numpy"].how) == ("graph", "events")
    assert found["numpy"].us == 300.0 and found["numpy"].problem == "not captured, timed by events: no graph"


@pytest.mark.parametrize(
    "case",
    [
        small("flash_sdpa_backward", batch_size=1, num_heads=2, query_len=8, key_len=8, d_k=8, d_v=8, scale=0.3),
        small("sdpa_backward", batch_size=1, num_heads=2, query_len=8, key_len=8, d_k=8, d_v=8, scale=0.3),
        small("layer_norm_backward", input_shape=[4, 40], norm_axes_mask=2),
        small("softmax_backward", input_shape=[4, 40], softmax_axis=1),
        small("causal_conv1d_update", batch_size=2, channels=3, seq_len=1, width=4, state_len=4),
    ],
    ids=lambda case: case.op,
)
def test_plans_of_every_kind_are_timed(case: Case) -> None:
    """Gradients get what their forward saves; nothing that a plan writes is left poisoned."""
    plan = case.plan("host")
    first = contests.Buffers.allocate(case, plan, case.tensors(plan), HostMachine())
    first.bound()
    assert all(np.isfinite(np.asarray(array, np.float64)).all() for array in first.results().values())
    (ours,) = contest(case, {}, HostMachine({OURS: 200.0}))
    assert ours.us == 200.0 and not ours.problem


def stepping(case: Case) -> Body:
    """A decoding step of the convolution that changes its state, as any would."""

    def body(tensors: Tensors) -> Call:
        def call() -> dict[str, Any]:
            state = tensors["conv_state"]
            state[:] = np.concatenate([state, tensors["x"]], 2)[..., tensors["x"].shape[2] :]
            return {"conv_state": state}

        return call

    return body


def test_what_is_updated_in_place_is_each_contestants_own() -> None:
    case = small("causal_conv1d_update", batch_size=2, channels=3, seq_len=1, width=4, state_len=4)
    found = by_peer(contest(case, {"first": stepping, "second": stepping}, HostMachine({OURS: 20.0})))
    assert not any(one.problem for one in found.values()) and all(one.us for one in found.values())


def test_a_plan_that_cannot_run_is_a_line() -> None:
    case = small("flash_sdpa", "bf16", batch_size=1, num_heads=1, query_len=8, key_len=8, d_k=9, d_v=8)
    (ours,) = contest(replace(case, arch="sm_90a"), {}, HostMachine())
    assert ours.us is None and "Unsupported" in ours.problem


def test_peers_are_found_when_they_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every module says what it lacks, and none keeps the others from being asked."""
    ours = "baracuda.benchmarks.peers._torch_ops"  # what it has imported it keeps
    for name in (ours, "torch", "torch.nn.attention", "quack", "liger_kernel", "causal_conv1d_cuda", "flash_attn"):
        monkeypatch.setitem(sys.modules, name, None)
    makers, missing = peer_modules.available()
    assert not makers and set(missing) == set(peer_modules.modules())
    assert all(reason.startswith(("ModuleNotFoundError", "ImportError")) for reason in missing.values())
    fake = ModuleType("causal_conv1d_cuda")
    monkeypatch.setitem(sys.modules, "causal_conv1d_cuda", fake)
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    assert list(peer_modules.available(("causal-conv1d",))[0]) == ["causal-conv1d"]


ATTENTION = {"batch_size": 2, "num_heads": 4, "query_len": 32, "key_len": 32, "d_k": 16, "d_v": 16, "scale": 0.25}
GROUPED = {**ATTENTION, "is_causal": True, "num_kv_heads": 2}
CONV = {"batch_size": 2, "channels": 4, "seq_len": 20, "width": 4}
ALIBI = {"batch_size": 2, "num_heads": 3, "query_len": 9, "key_len": 12}
COMBINED = {"tokens": 9, "top_k": 2, "permuted": 262144, "width": 2}
# Where the spec's own cases say too little: grouped heads that see a part of the keys, two copies along an axis.
SEGMENTS = ("sum", "sum_backward", "mean", "mean_backward")
PROBLEMS = {
    **dict.fromkeys(("alibi", "alibi_backward"), ALIBI),
    **dict.fromkeys(("sdpa", "sdpa_backward"), ATTENTION),
    **dict.fromkeys(("causal_conv1d", "causal_conv1d_backward"), CONV),
    "causal_conv1d_update": {**CONV, "seq_len": 1, "state_len": 4},
    **dict.fromkeys(("flash_sdpa", "flash_sdpa_backward"), GROUPED),
    # Of as many rows as benchmarks draw numbers of.
    **{op: {"ids_shape": [30], "vocab_size": 32000, "width": 2} for op in ("embedding", "embedding_backward")},
    **{f"segment_{what}": {"ids_shape": [5000], "segments": 1024, "width": 2} for what in SEGMENTS},
    **dict.fromkeys(("moe_combine", "moe_combine_backward"), COMBINED),
    "moe_permute": {"tokens": 20, "width": 4, "experts": 128, "top_k": 3},
    "segment_fold": {"ids_shape": [9000], "segments": 1024, "width": 2, "kind": "prod"},
}


# Programs of complex numbers are written out by parts, which torch has functions for only as a whole.
COMPLEX = frozenset(op for op, item in load_folder(SPECS).items() if item.spec.dtypes[0] == "c64")


def held(op: str, element: str) -> str:
    """The element type, or the first that the op has."""
    dtypes = subject(op).spec.dtypes
    return element if element in dtypes else dtypes[0]


def problem_of(op: str) -> dict[str, Any]:
    """A small problem of any op: the first of its test cases that computes several numbers."""
    if op in PROBLEMS:
        return PROBLEMS[op]
    tests = subject(op).spec.tests
    for case in tests.cases:
        fields = {name: value for name, value in {**tests.defaults, **case}.items() if name != "dtype"}
        if 1 < Problem.of(subject(op), fields, held(op, "f32")).size < 5000:
            return fields
    raise AssertionError(f"{op} has no small test case")


class TorchHostMachine(HostMachine):
    """The host device with torch's tensors; methods are those of the real machine where no GPU is needed."""

    def __init__(self) -> None:
        super().__init__({OURS: 20.0})
        self.torch, self.place = pytest.importorskip("torch"), "cpu"
        self.torch.manual_seed(0)  # as on a GPU: by chance, equal logits are in another order

    def random(self, tensor: Tensor) -> Any:
        return TorchMachine.random(self, tensor)  # type: ignore[arg-type]

    def poisoned(self, tensor: Tensor) -> Any:
        return TorchMachine.poisoned(self, tensor)  # type: ignore[arg-type]

    def copy(self, array: Any) -> Any:
        return array.clone()

    def error(self, got: Any, reference: Any) -> float:
        return TorchMachine.error(self, got, reference)  # type: ignore[arg-type]

    def _dtype(self, kind: ElementKind) -> Any:
        return TorchMachine._dtype(self, kind)  # type: ignore[arg-type]


@pytest.mark.frontends
@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize("op", load_folder(SPECS))
def test_torch_computes_what_plans_do(op: str, element: str) -> None:
    """Every op has a peer in torch that agrees, gradients included."""
    machine = TorchHostMachine()
    makers, _ = peer_modules.available(("torch", "math"))
    ours, theirs = contest(small(op, held(op, element), **problem_of(op)), makers, machine)
    assert (ours.problem, theirs.problem) in (("", ""), ("", VIEW))
    assert (theirs.us is None) == (theirs.problem == VIEW)
    assert theirs.problem == VIEW or op != "binary_backward"  # of a sum, whose gradient is the one that comes in


@pytest.mark.frontends
def test_torchs_packed_weights_of_four_bits_agree() -> None:
    fields = {"tokens": 3, "in_features": 256, "out_features": 32, "group_size": 64}
    makers, _ = peer_modules.available(("torch", "torch-int4"))
    results = contest(small("int4_linear", "bf16", **fields), makers, TorchHostMachine())
    assert [result.problem for result in results] == [""] * 3
    assert makers["torch-int4"](small("int4_linear", "f16", **fields)) is None


@pytest.mark.frontends
@pytest.mark.parametrize("op", [op for op, item in load_folder(SPECS).items() if hasattr(item.spec, "program")])
def test_torch_computes_what_programs_say(op: str) -> None:
    """A program is a peer of its own, of random numbers excepted."""
    from baracuda.benchmarks.peers._program import Program

    case = small(op, held(op, "f32"), **problem_of(op))
    program = Program.of(case)
    assert (program is None) == (case.spec.category == "random" or op in COMPLEX)
    if program is not None:
        makers = {"program": lambda case: lambda tensors: lambda: program(tensors)}
        ours, theirs = contest(case, makers, TorchHostMachine())
        assert (ours.problem, theirs.problem) in (("", ""), ("", VIEW))


# -------------------------------------------------------------------------------------------------------------- clocks


class FakeTorch:
    """Events that read a clock which calls move on; a graph that replays what was called in it."""

    uint8 = "uint8"

    def __init__(self) -> None:
        self.now, self.log = 0.0, list[str]()
        self.cuda = self
        self.captured: list[Call] | None = None

    def empty(self, *_: Any, **__: Any) -> FakeTorch:
        return self

    def zero_(self) -> None:
        self.log.append("flush")

    def _sleep(self, cycles: int) -> None:
        self.log.append("pause")

    def synchronize(self) -> None:
        self.log.append("wait")

    def Event(self, enable_timing: bool) -> Any:
        class Event:
            def record(event, stream: object) -> None:
                event.at = self.now  # type: ignore[attr-defined]

            def elapsed_time(event, end: Any) -> float:
                return float(end.at - event.at)  # type: ignore[attr-defined]

        return Event()

    def CUDAGraph(self) -> Any:
        graph = ModuleType("graph")
        graph.__dict__["replay"] = lambda: self.work(graph.__dict__["took"])
        return graph

    def graph(self, graph: Any, stream: object) -> AbstractContextManager[None]:
        before = self

        class Capture(nullcontext[None]):
            def __enter__(self) -> None:
                self.start = before.now

            def __exit__(self, *_: Any) -> None:
                graph.took = before.now - self.start

        return Capture()

    def work(self, milliseconds: float, name: str = "") -> None:
        self.now += milliseconds
        self.log.append(name)


def test_the_clock_flushes_and_takes_turns() -> None:
    torch = FakeTorch()
    clock = Clock(torch, "stream", 1 << 20)
    found = clock.cold({"a": lambda: torch.work(0.25, "a"), "b": lambda: torch.work(0.5, "b")}, 2)  # type: ignore[dict-item, return-value, func-returns-value]
    assert found == {"a": [250.0, 250.0], "b": [500.0, 500.0]}
    assert torch.log == ["flush", "pause", "a", "flush", "pause", "b", "wait"] * 2


def test_graphs_go_through_all_sets_and_count_each_call() -> None:
    torch = FakeTorch()

    def refused() -> dict[str, Any]:
        raise RuntimeError("not while capturing\n")

    sets: list[Call] = [lambda: torch.work(0.01, "one") or {}, lambda: torch.work(0.03, "two") or {}]  # type: ignore[func-returns-value]
    found, failed = Clock(torch, "stream", 1 << 20).replayed({"a": sets, "b": [refused]}, 3, about=20.0)
    assert found == {"a": [pytest.approx(20.0)] * 3} and failed == {"b": "not while capturing"}
    assert torch.log.count("one") == torch.log.count("two") == 1 + 25  # a millisecond's worth, and once before


def test_spread_is_median_and_quartiles() -> None:
    assert spread([5.0]) == (5.0, 5.0, 5.0)
    assert spread([1.0, 2.0, 3.0, 4.0, 100.0]) == (3.0, 2.0, 4.0)


# -------------------------------------------------------------------------------------------- state, tables, pictures

TOPS = {"copy": 4000.0, "write": 4500.0, "read": 4400.0, "matmul": 800.0}
FACTS = {"device": "NVIDIA H200", "driver": "550", "torch": "2.11"}
RAN: dict[str, Any] = {"facts": FACTS, "ceilings": TOPS, "asked": ("quack", "torch")}
NORM: dict[str, Any] = {"op": "rms_norm", "case": "bf16 8x4", "element": "bf16", "read": 10**6, "written": 10**6, **RAN}
FLASH: dict[str, Any] = {
    **{"op": "flash_sdpa", "case": "bf16 B1 full", "element": "bf16", "read": 10**6, "written": 10**6},
    **{"flops": 10**9, **RAN},
}
MEASURED = [
    Measured(**NORM, peer=OURS, kernel="k", us=1.0, low=0.99, high=1.01, samples=9, how="graph"),
    Measured(**NORM, peer="quack", us=1.25, low=1.25, high=1.25, samples=9, how="graph", error=1e-4),
    Measured(**NORM, peer="torch", us=2.0, low=2.0, high=2.0, samples=9, how="graph", error=1e-4),
    Measured(**NORM, peer="liger", problem="disagrees: relative error 0.5"),
    Measured(**FLASH, peer=OURS, kernel="k", us=2.0, low=2.0, high=2.0, samples=9, how="events"),
]


def test_rows_hold_ours_against_the_ceiling_and_the_best_peer() -> None:
    rows = report.rows_of(MEASURED)
    assert rows["rms_norm"] == [
        {
            "case": "bf16 8x4",
            "us": 1.0,
            "spread": "2.0%",
            "rate": "2000 GB/s",
            "ceiling": "50% of copy",
            "best peer": "quack",
            "peer us": 1.25,
            "peer rate": "1600 GB/s",
            "ratio": "1.25x",
        }
    ]
    (flash,) = rows["flash_sdpa"]
    assert (flash["rate"], flash["ceiling"], flash["best peer"]) == ("500 TFLOP/s", "62% of matmul", None)
    assert report.problems_of(MEASURED) == ["rms_norm bf16 8x4: liger disagrees: relative error 0.5"]


def test_shares_are_of_the_ceiling_that_binds() -> None:
    reading = replace(MEASURED[0], read=4_400_000, written=10)
    assert report.share(reading) == "100% of read"
    assert report.share(replace(reading, read=10, written=2_250_000)) == "50% of write"
    assert report.share(replace(MEASURED[4], element="f64")) is None
    assert report.share(replace(MEASURED[0], ceilings={})) is None


def test_measuring_continues_where_it_stopped(tmp_path: Path) -> None:
    """A case counts with ours timed on the same device, against the same texts, beside the same peers."""
    path = tmp_path / "state.jsonl"
    State(path, "texts").add(MEASURED[:4])
    with path.open("a") as file:
        file.write('{"op": "torn')
    again = State(path, "texts")
    found = again.results_of("rms_norm", "bf16 8x4", "NVIDIA H200", ["quack"]) or []
    assert sorted(found, key=MEASURED.index) == MEASURED[:4]
    assert again.results_of("rms_norm", "bf16 8x4", "NVIDIA H200", ["quack", "new"]) is None
    assert again.results_of("rms_norm", "bf16 8x4", "other", ["quack"]) is None
    assert again.results_of("rms_norm", "bf16 9x4", "NVIDIA H200", []) is None
    assert State(path, "other texts").results_of("rms_norm", "bf16 8x4", "NVIDIA H200", []) is None
    again.add([replace(MEASURED[0], us=3.0)])
    assert {m.peer: m.us for m in latest([path])} == {OURS: 3.0, "quack": 1.25, "torch": 2.0, "liger": None}
    assert latest([path])[0].asked == ("quack", "torch")


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(main, ["bench", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> HostMachine:
    """The command on the host device, with the one small case of one op and NumPy as its peer."""
    machine = HostMachine({OURS: 200.0, "numpy": 300.0})
    monkeypatch.setattr(worker, "pool", lambda *_, **__: nullcontext(Pool(ThreadPoolExecutor(1), 1)))
    monkeypatch.setattr(worker, "machine", lambda: machine)
    monkeypatch.setattr(worker, "limits", lambda: TOPS)
    peers = {"numpy": numpy_peer()}, {"quack": "gone"}
    monkeypatch.setattr(worker, "available", lambda names: peers)
    monkeypatch.setattr(commanded, "chosen_cases", lambda *_, **__: [ROWS])
    return machine


def test_the_command_measures_shows_and_remembers(host: HostMachine, tmp_path: Path) -> None:
    state, table = tmp_path / "s.jsonl", tmp_path / "t.csv"
    first = invoke("--state", state, "--csv", table)
    assert first.exit_code == 0, first.output
    assert "numpy" in first.stdout and "1.50x" in first.stdout and "copy 4000 GB/s" in first.stdout
    assert "no peers of quack: gone" in first.stderr and "[1/1] rms_norm_backward f32 6x40" in first.stderr
    written = list(csv_.DictReader(table.read_text().splitlines()))
    assert {(row["peer"], row["us"]) for row in written} == {(OURS, "200.0"), ("numpy", "300.0")}
    lines = [json.loads(line) for line in state.read_text().splitlines()]
    assert [line["peer"] for line in lines] == ["numpy", OURS] and lines[1]["facts"]["device"] == "Host"
    assert lines[1]["ceilings"] == TOPS and lines[1]["samples"] >= 15
    host.times = {OURS: 100.0}
    second = invoke("--state", state, "--json")
    assert [one["us"] for one in json.loads(second.stdout) if one["peer"] == OURS] == [200.0]
    assert "[1/1]" not in second.stderr


def test_a_device_that_failed_ends_its_process(host: HostMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(machine: HostMachine) -> None:
        if host.times:  # not while it is being measured
            raise RuntimeError("an illegal memory access\nwas encountered")

    ended: list[bool] = []
    monkeypatch.setattr(worker, "retire", lambda: ended.append(True))
    measured = worker.contest

    def contest(*arguments: Any) -> list[Measured]:
        lines = measured(*arguments)
        monkeypatch.setattr(HostMachine, "finish", dead)
        return lines

    monkeypatch.setattr(worker, "contest", contest)
    result = invoke()
    assert result.exit_code == 0 and ended == [True] and "1.50x" in result.stdout
    assert result.stderr.splitlines()[-1] == (
        "rms_norm_backward f32 6x40: the device failed in one of the peers (an illegal memory access);"
        " exclude it with --peers"
    )


def test_a_process_that_dies_costs_its_case(host: HostMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: object) -> list[Measured]:
        raise Lost("the process that had this task died with -11")

    monkeypatch.setattr(worker, "contest", dies)
    result = invoke("--json")
    assert result.exit_code == 1
    (line,) = json.loads(result.stdout)
    assert (line["us"], line["problem"]) == (None, "the process that had this task died with -11")


def test_each_gpu_gets_a_process_and_otherwise_one_does_all(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def pool(executor: str, jobs: int, **how: Any) -> AbstractContextManager[None]:
        asked.append((executor, jobs, [place[gpus.VISIBLE] for place in how["places"]], how["alone"]))
        return nullcontext()

    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    monkeypatch.setattr(CudaDevice, "count", lambda: 2)
    monkeypatch.setattr(worker, "pool", pool)
    for which in ("all", "1", None):
        with worker.gpus("processes", which, installed("baracuda.specs"), "baracuda.generated"):
            pass
    assert asked == [("processes", 1, seen, True) for seen in (["0", "1"], ["1"], [])]


def test_times_are_of_one_kind_of_gpu(host: HostMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = iter([{"device": "Host"}, {"device": "Other"}])
    monkeypatch.setattr(HostMachine, "facts", lambda _: next(facts))
    assert "a worker has Other, another Host; take one kind of GPU, by --gpus" in invoke().stderr


def test_a_page_of_state_files(tmp_path: Path) -> None:
    """The page has the device, the ceilings, the command and every table, and no dates."""
    path, out = tmp_path / "s.jsonl", tmp_path / "page.md"
    State(path, "texts").add(MEASURED[:4])
    State(path, "texts").add(MEASURED[4:])
    assert invoke(path, "--report", "--out", out).exit_code == 0
    text = out.read_text()
    assert "Device time on NVIDIA H200 (driver 550, torch 2.11)" in text and "matmul 800 TFLOP/s" in text
    assert "| bf16 8x4 | 1.0 | 2.0% | 2000 GB/s | 50% of copy | quack | 1.2 | 1600 GB/s | 1.25x |" in text
    assert "## flash_sdpa" in text and "baracuda-gen bench --state s.jsonl" in text
    assert "- rms_norm bf16 8x4: liger disagrees" in text
    assert invoke(path, "--report").stdout == text


@pytest.mark.frontends
def test_a_page_shows_the_picture_that_is_drawn_with_it(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path, out, plot = tmp_path / "s.jsonl", tmp_path / "page.md", tmp_path / "pictures" / "rows.svg"
    plot.parent.mkdir()
    State(path, "texts").add(MEASURED)
    assert invoke(path, "--report", "--sweep", "--out", out, "--plot", plot).exit_code == 0
    assert out.read_text().startswith("# Benchmarks by the length of rows\n")
    assert "](pictures/rows.svg)" in out.read_text() and plot.is_file()


@pytest.mark.frontends
@pytest.mark.parametrize("sweep", [False, True])
@pytest.mark.parametrize("kind", ["svg", "png"])
def test_pictures(tmp_path: Path, sweep: bool, kind: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"picture.{kind}"
    plot.draw(MEASURED, path, sweep=sweep)
    assert path.stat().st_size > 5000
    if kind == "svg":
        first = path.read_text()
        assert "<svg" in first and "<dc:date>" not in first


def test_a_picture_needs_matplotlib_and_something_to_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidProblem, match=r"\.svg or \.png"):
        plot.draw(MEASURED, tmp_path / "a.pdf", sweep=False)
    with pytest.raises(InvalidProblem, match="nothing was timed"):
        plot.draw([MEASURED[3]], tmp_path / "a.svg", sweep=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(Unsupported, match=r"baracuda-gen\[bench\]"):
        plot.draw(MEASURED, tmp_path / "a.svg", sweep=False)


def test_what_cannot_be_measured_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "pool", lambda *_, **__: nullcontext(Pool(ThreadPoolExecutor(1), 1)))
    monkeypatch.setitem(sys.modules, "torch", None)
    for arguments, message in (
        (["softmax"], "torch is not installed; get it with 'pip install torch'"),
        (["sofmax"], "no op 'sofmax'; did you mean 'softmax'?"),
        (["softmax", "--case", "f64"], "no case to measure: none of 1 case names contains 'f64'"),
    ):
        result = invoke(*arguments)
        assert (result.exit_code, result.stderr) == (1, f"{message}\n")


def test_the_other_modes_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("host", "compile_time"):
        module = ModuleType(f"baracuda.benchmarks.{name}")
        module.__dict__["rows"] = lambda name=name: [{"what": name, "us": 1.5}]
        monkeypatch.setitem(sys.modules, f"baracuda.benchmarks.{name}", module)
    assert invoke("--host").stdout.split() == ["host", "what", "us", "host", "1.5"]
    shown = json.loads(invoke("--host", "--compile", "--json").stdout)
    assert shown == {"host": [{"what": "host", "us": 1.5}], "compile": [{"what": "compile_time", "us": 1.5}]}
