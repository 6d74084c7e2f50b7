"""Invariant: a measurement near a problem chooses its kernel, and never one that breaks a promise or cannot serve."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from repository import LONG, SPECS

import baracuda.cli.kernels.check as check_module
import baracuda.generated as plans
import baracuda.runtime as rt
from baracuda.checking.problems.problem import Problem
from baracuda.checking.problems.subject import Subject
from baracuda.checking.trials.memory import HostMemory
from baracuda.checking.verify import checks
from baracuda.cli.kernels.explain import Architecture
from baracuda.codegen.emit.generate import generate
from baracuda.codegen.spec import tuned
from baracuda.codegen.spec.load import load_folder
from baracuda.runtime.plans.tuned import nearest

plans.import_all()
SdpaPlan, SdpaDescriptor = plans.SdpaPlan, plans.SdpaDescriptor
SoftmaxPlan, SoftmaxDescriptor = plans.SoftmaxPlan, plans.SoftmaxDescriptor
ROWS = {str(row.sku.schedule): str(row.sku) for row in rt.REGISTRY.candidates("softmax", "f32")}
HEADS = {str(row.sku.schedule): str(row.sku) for row in rt.REGISTRY.candidates("sdpa", "f32")}
NARROW, WIDER = "row64x1x4r16", "row128x1x4r8"  # the rule takes the first for rows of 1000
SAID = {"device": "NVIDIA H200", "driver": "550", "nvrtc": "12.9", "digest": "d"}
Measure = Callable[..., None]


def rows(cols: int = 1000, sku: str = ROWS[WIDER], **changes: Any) -> rt.Measurement:
    """That f32 rows of `cols` are best served by `sku`."""
    made = rt.Measurement("f32", {"packed": 1}, {"cols": cols}, sku, {f"f32 8x{cols}": (8.0, 10.0)}, **SAID)
    return replace(made, **changes)


def heads(**changes: Any) -> rt.Measurement:
    """That the block is to share a row of attention's softmax, where the rule has a warp."""
    near = {"query_len": 20, "key_len": 30}
    return replace(rt.Measurement("f32", {}, near, HEADS["t128.lanes128"], {"case": (1.0, 2.0)}, **SAID), **changes)


def softmax(cols: int = 1000, shape: tuple[int, ...] = (), axis: int = -1, **changes: Any) -> Any:
    return SoftmaxDescriptor(**{"input_shape": shape or (8, cols), "softmax_axis": axis, "element": "f32", **changes})


def sdpa(**changes: Any) -> Any:
    sizes = {"batch_size": 2, "num_heads": 2, "query_len": 20, "key_len": 30, "d_k": 8, "d_v": 8, "scale": 0.5}
    sizes |= {"is_causal": False}
    return SdpaDescriptor(**{**sizes, "element": "f32", **changes})


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Measure:
    """Gives a plan class measurements on an architecture, by default the host device."""

    def measure(plan: Any, *found: rt.Measurement, arch: str = "host") -> None:
        monkeypatch.setattr(plan, "TUNED", SimpleNamespace(by_arch={arch: found}))
        monkeypatch.setattr(plan, "_selected", {})

    return measure


def schedule(plan: Any, descriptor: Any, *given: Any, **named: Any) -> str:
    """What select chooses, which explain agrees with."""
    chosen = plan.select(descriptor, *given, **{"device": "host", **named}).sku
    if "layouts" not in named:
        assert plan.explain(descriptor, *given, **{"device": "host", **named}).chosen == chosen
    return str(chosen.schedule)


def why(plan: Any, descriptor: Any, *given: Any) -> str:
    return str(plan.explain(descriptor, *given, device="host").decided)


def test_a_measurement_changes_what_is_selected(measured: Measure) -> None:
    assert schedule(SoftmaxPlan, softmax()) == NARROW
    assert why(SoftmaxPlan, softmax()).startswith("by rule: tuning measured nothing")
    assert why(SdpaPlan, sdpa()) == "by rule: tuning measured nothing for this op"
    measured(SoftmaxPlan, rows())
    assert schedule(SoftmaxPlan, softmax()) == WIDER
    said = "  by measurement: f32 8x1000: 8.0 us, by rule 10.0 on NVIDIA H200"
    assert str(SoftmaxPlan.explain(softmax(), device="host")).splitlines()[-1] == said
    measured(SoftmaxPlan, rows(), arch="sm_90")
    assert schedule(SoftmaxPlan, softmax()) == NARROW
    assert why(SoftmaxPlan, softmax()) == "by rule: tuning measured nothing similar on host"
    assert schedule(SoftmaxPlan, softmax(), device=Architecture("sm_90", "sm_90")) == WIDER


@pytest.mark.parametrize(
    ("op", "case", "found"),
    [
        ("softmax", {"input_shape": [9, 1000], "softmax_axis": 1}, rows()),
        ("softmax", {"input_shape": [5, 1000], "softmax_axis": 1}, rows(sku=ROWS["wide128x1x8r8"])),
        ("sdpa", {"batch_size": 2, "num_heads": 2, "query_len": 20, "key_len": 30, "d_k": 8, "d_v": 8}, heads()),
    ],
    ids=["wider", "wide", "attention"],
)
def test_what_was_measured_computes_the_same_within_the_bound(
    measured: Measure, op: str, case: dict[str, Any], found: rt.Measurement
) -> None:
    specs = load_folder(SPECS)
    subject = Subject(specs[op], specs, "baracuda.generated")
    problem = Problem.of(subject, case, "f32")
    by_rule = problem.plan.sku
    measured(subject.plan, found)
    problem.plan = subject.plan.select(problem.descriptor, device="host")
    assert str(problem.plan.sku) == found.sku != str(by_rule)
    checks.check_accuracy([problem], HostMemory(), tight=False)


def test_arrays_go_to_what_was_measured_only_where_it_was(measured: Measure) -> None:
    """A plan of several kernels keeps their order elsewhere."""
    measured(SdpaPlan, heads())
    plan = SdpaPlan.select(sdpa(), device="host")
    assert str(plan.sku.schedule) == "t128.lanes128"
    orders = [[str(row.sku.schedule) for row in plan._in_order(Architecture(a, a))] for a in ("host", "sm_80")]
    assert orders == [["t128.lanes128", "t128.lanes32"], ["t128.lanes32", "t128.lanes128"]]


def test_the_nearest_measurement_decides(measured: Measure) -> None:
    """Within a factor of the square root of two; of two as near, the first."""
    wide = ROWS["row256x1x8r4"]
    measured(SoftmaxPlan, rows(1000), rows(1200, wide))
    assert [schedule(SoftmaxPlan, softmax(n)) for n in (712, 1000, 1092, 1100, 1696)] == [
        *(WIDER, WIDER, WIDER, "row256x1x8r4", "row256x1x8r4")
    ]
    assert schedule(SoftmaxPlan, softmax(704)) == schedule(SoftmaxPlan, softmax(700)) == NARROW
    assert schedule(SoftmaxPlan, softmax(1700)) == WIDER and "similar" in why(SoftmaxPlan, softmax(1700))
    measured(SoftmaxPlan, rows(1200, wide), rows(1200))
    assert schedule(SoftmaxPlan, softmax(1200)) == "row256x1x8r4"


def test_zero_is_near_itself_only() -> None:
    found = rows(0)
    assert nearest([found], "f32", rt.Facts({"packed": 1}, {"cols": 0})) is found
    assert nearest([found], "f32", rt.Facts({"packed": 1}, {"cols": 1})) is None
    assert nearest([rows(1)], "f32", rt.Facts({"packed": 1}, {"cols": 0})) is None
    assert nearest([found], "f32", rt.Facts({"packed": 1}, {})) is None


@pytest.mark.parametrize(
    "other",
    [
        softmax(element="f16"),
        softmax(1001),
        softmax(shape=(1000, 8), axis=0),
        softmax(shape=(8, 1000, 2), axis=1),
    ],
    ids=["element", "no whole packs", "columns apart", "interleaved"],
)
def test_a_measurement_of_something_else_decides_nothing(measured: Measure, other: Any) -> None:
    measured(SoftmaxPlan, rows())
    assert "by rule" in why(SoftmaxPlan, other)
    measured(SoftmaxPlan)
    by_rule = schedule(SoftmaxPlan, other)
    measured(SoftmaxPlan, rows())
    assert schedule(SoftmaxPlan, other) == by_rule


def test_flags_and_compiled_constants_must_be_the_same(measured: Measure) -> None:
    assert SdpaPlan.facts_of(sdpa(is_causal=True)).same["is_causal"] == 1
    measured(SdpaPlan, heads(same={"is_causal": 1}))
    assert schedule(SdpaPlan, sdpa()) == "t128.lanes32"
    assert schedule(SdpaPlan, sdpa(is_causal=True)) == "t128.lanes128"
    flash = plans.FlashSdpaDescriptor(
        batch_size=1, num_heads=1, query_len=8, key_len=8, d_k=40, d_v=40, scale=1, is_causal=False, element="f16"
    )
    assert plans.FlashSdpaPlan.facts_of(flash).same["DK"] == 64


ONLY_IF_ASKED = "runs on the host device only if archs allows sm_90: portable kernels are faster there"


@pytest.mark.parametrize(
    ("sku", "said"),
    [
        (ROWS[WIDER].replace("row128", "row129"), "is no kernel of this op; 'baracuda-gen tune' measures anew"),
        (ROWS["row16x8x4r8"], "a row has 1000 columns, the tile holds 256"),
        (ROWS["row512x1x16x2r2s8"], ONLY_IF_ASKED),
    ],
    ids=["gone", "too narrow", "not here"],
)
def test_a_measured_kernel_that_cannot_serve_is_passed_over(measured: Measure, sku: str, said: str) -> None:
    measured(SoftmaxPlan, rows(sku=sku))
    assert schedule(SoftmaxPlan, softmax()) == NARROW
    assert why(SoftmaxPlan, softmax()) == f"by rule: {sku} was measured, but {said}"


def test_a_kernel_that_promises_less_is_another_choice(measured: Measure) -> None:
    """A faster one with a weaker rung is never put in place of the rule's."""
    row = rt.REGISTRY.lookup(ROWS[WIDER])
    weaker = rt.Registered(
        replace(row.sku, precision_guarantee=replace(row.sku.precision_guarantee, batch_invariant=False)), row.source
    )
    before = rt.REGISTRY.candidates("softmax")
    with rt.REGISTRY.apart():
        rt.REGISTRY.register([*before, weaker])
        measured(SoftmaxPlan, rows(sku=str(weaker.sku)))
        assert schedule(SoftmaxPlan, softmax()) == NARROW
        assert "but promises f32.f32.ds--.3, not f32.f32.dsb-.3" in why(SoftmaxPlan, softmax())


@pytest.mark.parametrize(
    ("preference", "wanted"),
    [
        (rt.PlanPreference(archs=frozenset({"sm_80"})), NARROW),
        (rt.PlanPreference(tuned=False), NARROW),
        (rt.PlanPreference(schedules=frozenset({"row256x1x8r4"})), "row256x1x8r4"),
        (rt.PlanPreference(rungs=frozenset({"deterministic"})), WIDER),
    ],
    ids=["archs", "tuned", "schedules", "rungs"],
)
def test_what_the_caller_says_goes_before_a_table(
    measured: Measure, preference: rt.PlanPreference, wanted: str
) -> None:
    measured(SoftmaxPlan, rows())
    assert schedule(SoftmaxPlan, softmax(), preference) == wanted
    assert ("by measurement" in why(SoftmaxPlan, softmax(), preference)) is (wanted == WIDER)
    assert schedule(SoftmaxPlan, softmax(), layouts=["strided"]) == NARROW


def test_a_schedule_that_is_not_there_is_said() -> None:
    with pytest.raises(rt.Unsupported, match=r"has schedule row64x1x4r16, schedules allows row9x1x1r1"):
        SoftmaxPlan.select(softmax(), rt.PlanPreference(schedules=frozenset({"row9x1x1r1"})))
    with pytest.raises(rt.InvalidProblem, match="schedules must be a collection of names"):
        rt.PlanPreference(schedules="row9")  # type: ignore[arg-type]


def test_a_plan_of_one_architecture_has_no_table(measured: Measure) -> None:
    given = {"batch_size": 1, "num_heads": 1, "query_len": 8, "key_len": 8, "d_k": 64, "d_v": 64, "scale": 1.0}
    flash = plans.FlashSdpaDescriptor(**given, is_causal=False, element="f16")
    measured(plans.FlashSdpaSm90Plan, arch="sm_90")
    hopper = Architecture("sm_90", "sm_90")
    explained = plans.FlashSdpaSm90Plan.explain(flash, device=hopper)
    assert explained.decided == "by rule: FlashSdpaSm90Plan is held to sm_90a"


# ----------------------------------------------------------------------------------------------------- files, generated


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of specs with softmax alone, its package to be generated beside it."""
    (tmp_path / "specs").mkdir()
    for name in ("softmax", "softmax_backward"):
        shutil.copy(LONG / f"{name}.yaml", tmp_path / "specs")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "specs"


def test_what_was_measured_comes_with_the_plans(project: Path) -> None:
    """The table is generated beside the module, read when a plan first selects, and goes when nothing is measured."""
    out = project.parent / "tuned_plans"
    generate(project, out)
    before = {p.name: p.read_text() for p in out.rglob("*.py")}
    path = tuned.path_of(project, "host", "softmax")
    tuned.write_table(path, [rows()])
    assert tuned.read_table(path) == (rows(),)
    assert generate(project, out).written == ("_manifest.json", "softmax/softmax.json", "softmax/softmax.py")
    with rt.REGISTRY.apart():
        module: Any = importlib.import_module("tuned_plans.softmax.softmax")
        assert "by_arch" not in vars(module.SoftmaxPlan.TUNED)
        descriptor = module.SoftmaxDescriptor(input_shape=(8, 1000), softmax_axis=1, element="f32")
        assert schedule(module.SoftmaxPlan, descriptor) == WIDER
    for name in [n for n in sys.modules if n.startswith("tuned_plans")]:
        del sys.modules[name]
    tuned.write_table(path, [])
    assert not path.exists()
    assert generate(project, out).removed == ("softmax/softmax.json",)
    assert {p.name: p.read_text() for p in out.rglob("*.py")} == before


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("softmx", json.dumps([asdict(rows())]), "tuned/host/softmx.json: no op 'softmx'; did you mean 'softmax'?"),
        ("softmax", "[{}]", "softmax.json:1: holds no measurements (a measurement has element, same, near"),
        ("softmax", "{", "holds no measurements (Expecting property name"),
        ("softmax", json.dumps([asdict(rows(sku="a/b"))]), "'a/b' is not a KernelSku"),
        ("softmax", json.dumps([asdict(rows()) | {"near": {"cols": 1.5}}]), "needs whole numbers"),
        ("softmax", json.dumps([asdict(rows()), asdict(rows(sku=ROWS[NARROW]))]), "json:1: measures a problem twice"),
        ("softmax", '[\n{}, "\ud800"]', "softmax.json:2: holds no measurements"),
        (
            *("softmax", json.dumps([asdict(rows(near={"cols": 8, "rows": 8}))])),
            "tuned/host/softmax.json: depends on 'rows', of which softmax promises to be independent",
        ),
    ],
)
def test_a_file_that_may_not_decide_is_an_error_in_a_line(project: Path, name: str, text: str, said: str) -> None:
    path = tuned.path_of(project, "host", name)
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(rt.SpecError) as raised:
        load_folder(project)
    assert said in str(raised.value) and "\n" not in str(raised.value)


def test_measurements_of_other_kernels_are_warned_of() -> None:
    text = rt.REGISTRY.candidates("softmax")[0].source.raw
    fresh = rows(digest=tuned.digest_of_kernels(text))
    assert tuned.stale("softmax", {"sm_90": (fresh,)}, text) == []
    said = "tuned/sm_90/softmax.json: 1 of 2 measurements are of other kernels; run 'baracuda-gen tune softmax'"
    assert tuned.stale("softmax", {"sm_80": (fresh,), "sm_90": (fresh, rows(900))}, text) == [said]
    assert tuned.digest_of_kernels(text + "\n") != fresh.digest


def test_check_warns_and_goes_on(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was measured of other kernels is no reason to fail: it is measured anew, or a guess like the rule's."""
    tuned.write_table(tuned.path_of(project, "sm_90", "softmax"), [rows()])
    generate(project, project.parent / "plans")
    monkeypatch.setattr("baracuda.cli.kernels.check.list_kernels", lambda *_, **__: [])
    assert check_module.check(project, project.parent / "plans")
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if "warning: tuned/sm_90/softmax.json: 1 of 1 measurements" in line]
