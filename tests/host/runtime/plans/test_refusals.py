"""What plans refuse before any kernel is compiled, in words that say whose array it is, what was seen and needed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from repository import LONG

import baracuda.runtime as rt
from baracuda.codegen.emit.generate import texts
from baracuda.codegen.lower.lower import lower
from baracuda.codegen.spec.load import load_spec
from baracuda.generated import (
    AlibiPlan,
    FlashSdpaDescriptor,
    FlashSdpaPlan,
    FlashSdpaSm89Plan,
    FlashSdpaSm90Plan,
    RMSNormBackwardDescriptor,
    RMSNormBackwardPlan,
    RMSNormDescriptor,
    RMSNormPlan,
    SdpaDescriptor,
    SdpaPlan,
)
from baracuda.runtime.families.body import plan as body


def _flash(element: str = "bf16", **changes: Any) -> FlashSdpaDescriptor:
    sizes = dict.fromkeys(("batch_size", "num_heads", "query_len", "key_len"), 2) | {"d_k": 64, "d_v": 64}
    return FlashSdpaDescriptor(**{**sizes, "scale": 1.0, "is_causal": False, **changes}, element=element)


def _sdpa(**changes: Any) -> SdpaDescriptor:
    sizes = dict.fromkeys(("batch_size", "num_heads", "query_len", "key_len", "d_k", "d_v"), 2)
    return SdpaDescriptor(**{**sizes, "scale": 1.0, "is_causal": False, **changes}, element="f32")


def _norm(**changes: Any) -> RMSNormDescriptor:
    given: dict[str, Any] = {"input_shape": (6, 64), "norm_axes_mask": 2, "eps": 0.5, "has_gamma": False, **changes}
    return RMSNormDescriptor(**given, element="f32")


# --- workspaces

_PLAN = RMSNormBackwardPlan.select(
    RMSNormBackwardDescriptor(input_shape=(6, 64), norm_axes_mask=2, has_gamma=True, element="f32")
)
_NEEDED = _PLAN.workspace_bytes
_MEMORY = np.zeros(4 * _NEEDED + 4096, np.uint8)
_BYTES = _MEMORY[-_MEMORY.ctypes.data % 16 :]


def _arrays() -> dict[str, Any]:
    x = np.ones((6, 64), np.float32)
    rms = np.ones((6, 1), np.float32)
    return {"dy": x, "x": x, "gamma": x[0].copy(), "rms": rms, "dx": x.copy(), "dgamma": x[0].copy()}


def _readonly() -> Any:
    there = _BYTES[:_NEEDED].view()
    there.flags.writeable = False
    return there


_WORKSPACES: dict[str, tuple[Callable[[], Any], type[rt.BaracudaError], str]] = {
    "none": (lambda: None, rt.WorkspaceTooSmall, f"workspace: needs {_NEEDED} bytes, got none"),
    "empty": (lambda: _BYTES[:0], rt.WorkspaceTooSmall, f"workspace: needs {_NEEDED} bytes, got none"),
    "short": (lambda: _BYTES[: _NEEDED - 1], rt.WorkspaceTooSmall, f"needs {_NEEDED} bytes, got {_NEEDED - 1}"),
    "backwards": (lambda: _BYTES[: _NEEDED + 1][::-1], rt.InvalidProblem, "workspace must be contiguous"),
    "gaps": (lambda: _BYTES[: 4 * _NEEDED].reshape(-1, 32)[:, :16], rt.InvalidProblem, "must be contiguous"),
    "every other": (lambda: _BYTES[: 2 * _NEEDED : 2], rt.InvalidProblem, "must be contiguous"),
    "one repeated": (lambda: np.broadcast_to(_BYTES[:1], _NEEDED), rt.InvalidProblem, "read-only"),
    "read-only": (_readonly, rt.InvalidProblem, "workspace is written to, got a read-only array"),
    "beyond": (lambda: rt.TensorRef(_BYTES[:16], (_NEEDED,)), rt.BufferTooSmall, "'workspace' of shape"),
    "before": (lambda: rt.TensorRef(_BYTES[:_NEEDED], (_NEEDED,), offset=-16), rt.BufferTooSmall, "'workspace' of"),
    "odd": (lambda: _BYTES[8 : _NEEDED + 8], rt.MisalignedOperand, "workspace must start at a multiple of 16"),
    "no array": (lambda: [0] * _NEEDED, rt.InvalidProblem, "'workspace' is of type builtins.list"),
    "of the arrays": (lambda: _BYTES, rt.InvalidProblem, "workspace overlaps 'dx'"),
}


@pytest.mark.parametrize("what", _WORKSPACES)
def test_kernels_write_a_workspace_as_one_run(what: str) -> None:
    make, kind, says = _WORKSPACES[what]
    arrays, workspace = _arrays(), make()
    if what == "of the arrays":
        arrays["dx"] = _BYTES[: 4 * 6 * 64].view(np.float32).reshape(6, 64)
    with pytest.raises(rt.BaracudaError) as caught:
        _PLAN.run(**arrays, workspace=workspace)
    said = str(caught.value)
    assert type(caught.value) is kind and said.startswith("RMSNormBackwardPlan: ") and says in said, said
    assert "\n" not in said
    verdict = _PLAN.can_implement(**arrays, workspace=workspace)
    assert type(verdict.error) is kind and str(verdict.error) == said


def test_sizes_travel_with_the_error() -> None:
    with pytest.raises(rt.WorkspaceTooSmall) as caught:
        _PLAN.run(**_arrays(), workspace=_BYTES[:5])
    assert (caught.value.needed, caught.value.got) == (_NEEDED, 5)


@pytest.mark.parametrize("shape", [(-1,), (1, -1), (-1, 16), (2, 1, -1)])
def test_a_workspace_of_any_shape_and_element_will_do(shape: tuple[int, ...]) -> None:
    there = _BYTES[: 2 * _NEEDED]
    assert _PLAN.can_implement(**_arrays(), workspace=there.reshape(shape))
    assert _PLAN.can_implement(**_arrays(), workspace=there.view(np.float32))
    assert not _PLAN.can_implement(**_arrays(), workspace=there.view(np.float32)[: _NEEDED // 4 - 1])


# --- names


def test_errors_of_arrays_begin_with_the_plan() -> None:
    plan, good = RMSNormPlan.select(_norm()), {n: np.ones((6, 64), np.float32) for n in ("x", "y")}
    good["rms"] = np.ones((6, 1), np.float32)
    assert plan.can_implement(**good)
    wrong: list[tuple[type[rt.BaracudaError], dict[str, Any]]] = [
        (rt.InvalidProblem, {"x": [1.0]}),
        (rt.Unsupported, {"x": good["x"].astype(">f4")}),
        (rt.BufferTooSmall, {"x": rt.TensorRef(np.ones(7, np.float32), (6, 64))}),
        (rt.InvalidProblem, {"x": None}),
        (rt.InvalidProblem, {"stream": "main"}),
    ]
    for kind, change in wrong:
        with pytest.raises(kind, match=r"^RMSNormPlan: (?!RMSNormPlan)") as caught:
            plan.run(**{**good, **change})
        assert str(plan.can_implement(**{**good, **change}).error) == str(caught.value)
    with pytest.raises(rt.InvalidProblem, match=r"^RMSNormPlan: 'x' is of type"):
        plan.run_unchecked(**{**good, "x": [1.0]})  # type: ignore[arg-type]


# --- descriptors


@pytest.mark.parametrize("n", [2**63, -(2**63) - 1, 10**5000], ids=["above", "below", "unprintable"])
def test_ints_fit_in_the_words_of_kernels(n: int) -> None:
    with pytest.raises(rt.InvalidProblem, match="'norm_axes_mask' must be an int of 64 bits"):
        _norm(norm_axes_mask=n)
    with pytest.raises(rt.InvalidProblem, match="'input_shape' must be a sequence of ints of 64 bits"):
        _norm(input_shape=(2, n))


def test_floats_are_finite_as_floats() -> None:
    for huge in (10**400, 10**5000):
        with pytest.raises(rt.InvalidProblem, match="'eps' must be a float"):
            _norm(eps=huge)


@pytest.mark.parametrize(
    ("shape", "mask"), [((2**40, 2**23), 2), ((0, 2**40, 2**23), 6), ((2**40, 2**23, 0), 4), ((2**62, 2), 3)]
)
def test_rows_are_counted_in_63_bits(shape: tuple[int, ...], mask: int) -> None:
    for method in (RMSNormPlan.select, RMSNormPlan.explain):
        with pytest.raises(rt.InvalidProblem, match=r"RMSNormPlan: shape .* has \d+ rows of \d+ elements, 2\^63"):
            method(_norm(input_shape=shape, norm_axes_mask=mask))
    RMSNormPlan.select(_norm(input_shape=(2**40, 2**22), norm_axes_mask=2))


def test_descriptors_of_other_plans_are_refused() -> None:
    for plan, wrong, names in (
        (SdpaPlan, _flash(), "FlashSdpaDescriptor of FlashSdpaPlan"),
        (AlibiPlan, _norm(), "RMSNormDescriptor of RMSNormPlan"),
        (RMSNormPlan, {"input_shape": (2, 3)}, "dict, no descriptor"),
        (RMSNormPlan, None, "NoneType, no descriptor"),
        (FlashSdpaSm90Plan, _sdpa(), "SdpaDescriptor of SdpaPlan"),
    ):
        for method in (plan.select, plan.explain):
            with pytest.raises(rt.InvalidProblem, match=f"{plan.__name__}: needs a descriptor of its own, got {names}"):
                method(wrong)  # type: ignore[arg-type]
    assert FlashSdpaSm90Plan.select(_flash()).sku.arch == "sm_90a"


@pytest.mark.parametrize("plan", [FlashSdpaPlan, FlashSdpaSm89Plan, FlashSdpaSm90Plan])
@pytest.mark.parametrize("method", ["select", "explain"])
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"d_k": 0}, "needs min(d_k, d_v) >= 1; got d_k=0, d_v=64"),
        ({"element": "i8"}, "needs element in (f32, f16, bf16, f64); got element='i8'"),
        ({"query_len": 2**60}, "'q' of shape (2, 2, 1152921504606846976, 64) has 295147905179352825856 elements, 2^63"),
    ],
)
def test_errors_of_descriptors_begin_with_the_plan(plan: Any, method: str, wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(rt.BaracudaError) as caught:
        getattr(plan, method)(_flash(**wrong))
    assert str(caught.value).startswith(f"{plan.__name__}: {says}")


def test_absent_arrays_have_no_size() -> None:
    """2^63 scores are too many for a mask, and none of flash attention's business without one."""
    lengths = {"query_len": 2**31, "key_len": 2**32, "batch_size": 1, "num_heads": 1}
    assert FlashSdpaPlan.select(_flash(**lengths)).shapes()["mask"] == ((1, 1, 2**31, 2**32),)
    with pytest.raises(rt.InvalidProblem, match=r"'mask' of shape .* has 9223372036854775808 elements, 2\^63 or more"):
        FlashSdpaPlan.select(_flash(**lengths, has_mask=True))


@pytest.mark.parametrize("method", ["run", "run_unchecked", "bind", "can_implement"])
@pytest.mark.parametrize(
    "gamma",
    [np.ones(64, np.float32), np.ones(64, np.int8), np.ones(3, np.float32), np.ones(64, "M8[s]"), "none of these", 5],
    ids=["fitting", "another type", "another shape", "a type of NumPy only", "a text", "an int"],
)
def test_an_array_that_must_be_absent_is_not_looked_at(method: str, gamma: Any) -> None:
    x, rms = np.ones((6, 64), np.float32), np.ones((6, 1), np.float32)
    plan = RMSNormPlan.select(_norm())
    with pytest.raises(rt.InvalidProblem) as caught:
        verdict = getattr(plan, method)(x=x, gamma=gamma, y=x.copy(), rms=rms)
        raise verdict.error  # which only `can_implement` returns
    assert str(caught.value) == "RMSNormPlan: 'gamma' must be absent when has_gamma=False, got an array"


def test_functions_that_only_specs_know_are_said_in_words() -> None:
    with pytest.raises(rt.InvalidProblem) as caught:
        RMSNormPlan.select(_norm(norm_axes_mask=1))
    wanted = "norm_axes_mask to select trailing axes only, one or more of len(input_shape)"
    assert str(caught.value) == f"RMSNormPlan: needs {wanted}; got norm_axes_mask=1, input_shape=(6, 64)"


# --- layouts and preferences


@pytest.mark.parametrize("plan", [RMSNormPlan, FlashSdpaPlan])
def test_layouts_are_several_names(plan: Any) -> None:
    descriptor = _norm() if plan is RMSNormPlan else _flash()
    for layouts in ("packed", 5, [1]):
        with pytest.raises(rt.InvalidProblem, match="layouts must be a collection of names"):
            plan.select(descriptor, layouts=layouts)
    with pytest.raises(rt.InvalidProblem, match=rf"{plan.__name__}: layouts names none; pass some of \('packed'"):
        plan.select(descriptor, layouts=[])
    assert plan.select(descriptor, layouts=["packed"]).layouts == {"packed"}


_BAD_PREFERENCES: list[tuple[str, Any, str]] = [
    ("max_workspace_bytes", -1, "'max_workspace_bytes' must be at least 0, got -1"),
    ("max_workspace_bytes", None, "'max_workspace_bytes' must be an int, got None"),
    ("allow_sm90a", "no", "'allow_sm90a' must be True or False, got 'no'"),
    ("allow_sm90a", None, "'allow_sm90a' must be True or False, got None"),
    ("prefer_backend", "besproke", "unknown prefer_backend 'besproke'; known are bespoke, or None for any"),
    ("prefer_backend", "", "unknown prefer_backend ''; known are bespoke, or None for any"),
    ("prefer_backend", -1, "unknown prefer_backend -1; known are bespoke, or None for any"),
    ("prefer_backend", {}, "unknown prefer_backend {}; known are bespoke, or None for any"),
    ("rungs", {"fast"}, "unknown rungs ['fast']; known are deterministic, bit_stable_on_same_hardware,"),
    ("rungs", "deterministic", "rungs must be a collection of names, got 'deterministic'"),
    ("rungs", None, "rungs must be a collection of names, got None"),
    ("waives", {"fast"}, "unknown waives ['fast']; known are deterministic, bit_stable_on_same_hardware,"),
    ("waives", None, "waives must be a collection of names, got None"),
    ("archs", {"besproke"}, "unknown archs ['besproke']; an arch is written as sm_80 or sm_90a"),
    ("archs", {"sm_90b"}, "unknown archs ['sm_90b']"),
    ("archs", "sm_80", "archs must be a collection of names, got 'sm_80'"),
    ("archs", [80], "archs must be a collection of names, got [80]"),
    ("archs", (), "archs names none, and so allows no kernel; pass None for any"),
    ("schedules", {"no"}, "unknown schedule 'no'; expected a schedule, as t128.block_q64, or a tile, as row128x1x4r8"),
    ("schedules", {"t" + "1" * 5000}, "unknown schedule 't111"),
    ("schedules", (), "schedules names none, and so allows no kernel; pass None for any"),
    ("numerics", 0, "'numerics' must be at least 1, got 0"),
    ("numerics", "2", "'numerics' must be an int, got '2'"),
    ("math_precision", "tf19", "unknown math_precision 'tf19'; known are f16, bf16, tf32x3, tf32, f32"),
    ("tuned", "no", "'tuned' must be True or False, got 'no'"),
]


@pytest.mark.parametrize(("name", "value", "message"), _BAD_PREFERENCES)
def test_a_preference_checks_its_fields(name: str, value: Any, message: str) -> None:
    with pytest.raises(rt.InvalidProblem) as caught:
        rt.PlanPreference(**{name: value})
    assert str(caught.value).startswith(message)


def test_collections_of_a_preference_become_sets() -> None:
    assert rt.PlanPreference(archs=["sm_90a", "sm_61"]).archs == {"sm_90a", "sm_61"}  # type: ignore[arg-type]


def test_every_field_of_a_preference_is_checked() -> None:
    assert {name for name, *_ in _BAD_PREFERENCES} == rt.PlanPreference.__dataclass_fields__.keys()


@pytest.mark.parametrize("method", ["select", "explain"])
@pytest.mark.parametrize("preference", [{}, {"max_workspace_bytes": 0}, 0, -1, False, "", "no"])
def test_what_is_no_preference_is_refused(method: str, preference: Any) -> None:
    problems: list[tuple[Any, Any]] = [(RMSNormPlan, _norm()), (SdpaPlan, _sdpa())]  # a row and a body plan
    for plan, descriptor in problems:
        with pytest.raises(rt.InvalidProblem, match="preference must be a PlanPreference or None, got"):
            getattr(plan, method)(descriptor, preference)


# --- the body family


def test_more_blocks_than_a_grid_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one = dict.fromkeys(("num_heads", "query_len", "key_len", "d_k", "d_v"), 1)
    FlashSdpaPlan.select(_flash("f32", batch_size=2**31 - 1, **one))
    with pytest.raises(rt.Unsupported, match=r"grid of \(2147483648, 1, 1\) blocks for main, the largest is \(2147"):
        FlashSdpaPlan.select(_flash("f32", batch_size=2**31, **one))
    grids = ((1, 65536, 1), False), ((1, 1, 65536), False), ((0, 65536, 1), True), ((1, 65535, 9), True)
    for batch_size, (grid, held) in enumerate(grids, 1):
        monkeypatch.setattr(SdpaPlan, "KERNELS", (rt.BodyKernel("main", tuple(map(str, grid))),))
        assert (SdpaPlan.explain(_sdpa(batch_size=batch_size)).chosen is not None) is held, grid


def test_workspaces_and_layouts_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = SdpaPlan.select(_sdpa(scale=0.25))
    known = plan.workspace_bytes
    monkeypatch.setattr(SdpaPlan, "workspace_of", classmethod(lambda *_: known + 1))
    assert plan.workspace_bytes == known
    calls: list[int] = []
    monkeypatch.setattr(body, "layouts_of", lambda *_: calls.append(1) or ["none"])
    flash = FlashSdpaPlan.select(_flash(scale=0.25))
    assert len(flash._rows) > 1
    with pytest.raises(rt.Unsupported, match="the arrays are none"):
        flash._geometry({}, rt.get_device("host"))
    assert len(calls) == 1


def test_refusals_speak_of_the_descriptor() -> None:
    """No name is left that only the spec knows, and each comes with its value."""
    with pytest.raises(rt.Unsupported) as caught:
        FlashSdpaSm90Plan.select(_flash(d_k=128, d_v=96, has_mask=True))
    first, *_ = (line for line in str(caught.value).splitlines() if "needs" in line)
    assert "mappable" not in first and "needs (not has_mask and not has_alibi_slopes and min(" in first
    values = first.partition("; here ")[2]
    for value in ("has_mask=True", "has_alibi_slopes=False", "batch_size=2", "d_k=128", "DK=128", "DV=96"):
        assert value in values.split(", "), values
    assert "max=" not in values and "not=" not in values and "ceil_div=" not in values


def test_an_element_without_kernels_is_named() -> None:
    wanted = r"^FlashSdpaSm90Plan: no kernel for element f32; its kernels are for f16, bf16$"
    for method in (FlashSdpaSm90Plan.select, FlashSdpaSm90Plan.explain):
        with pytest.raises(rt.Unsupported, match=wanted):
            method(_flash("f32"))


def test_a_reason_that_all_share_is_said_once() -> None:
    with pytest.raises(rt.Unsupported) as caught:
        SdpaPlan.select(_sdpa(query_len=3), rt.PlanPreference(rungs=frozenset({"bit_stable_across_arch"})))
    said, count = str(caught.value), len(SdpaPlan.explain(_sdpa(query_len=3)).verdicts)
    assert said.endswith(f"; each of its {count} kernels: does not promise bit_stable_across_arch")
    with pytest.raises(rt.Unsupported) as caught:  # reasons that differ are all told
        FlashSdpaSm90Plan.select(_flash(has_mask=True))
    assert str(caught.value).count("\n") == len(FlashSdpaSm90Plan.explain(_flash()).verdicts)


def test_advice_is_given_where_it_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device without what sm_90a kernels need."""
    host, fits = rt.get_device("host"), rt.KernelSku.fits
    lacking = {"sm_90a": "needs what the device lacks"}
    monkeypatch.setattr(rt.KernelSku, "fits", lambda sku, arch: lacking.get(sku.arch) or fits(sku, arch))
    pinned = FlashSdpaSm90Plan.select(_flash())
    with pytest.raises(rt.Unsupported, match="no kernel for 'host'") as caught:
        pinned.prepare(host)
    assert "select with" not in str(caught.value)
    plan = FlashSdpaPlan.select(_flash(scale=0.5))
    plan._rows = tuple(row for row in plan._rows if row.sku.arch == "sm_90a")  # as for a device that has no others
    with pytest.raises(rt.Unsupported, match="no kernel for 'host'; select with device='host'"):
        plan.prepare(host)
    held_to = FlashSdpaPlan.select(_flash(), rt.PlanPreference(archs=frozenset({"sm_90a"})))
    with pytest.raises(rt.Unsupported) as caught:
        held_to.prepare(host)
    assert "select with" not in str(caught.value)


def test_empty_arrays_may_step_anywhere() -> None:
    plan, nothing = SdpaPlan.select(_sdpa(key_len=0)), np.zeros(0, np.float32)
    empty = rt.TensorRef(nothing, (2, 2, 0, 2), (2**70, 2**70, 1, 1))
    q = np.ones((2, 2, 2, 2), np.float32)
    attn = rt.TensorRef(nothing, (2, 2, 2, 0))
    assert plan.can_implement(q=q, k=empty, v=empty, attn=attn, y=q.copy())


# --- the map family


def test_a_required_copy_is_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ALiBi's gradients with both outputs required: a kernel that sums cannot leave the copy out, and must keep it."""
    text = (LONG / "alibi_backward.yaml").read_text()
    for old, new in (
        ("op: alibi_backward", "op: alibi_both"),
        ("AlibiBackwardPlan", "AlibiBothPlan"),
        ("    optional: has_dscores\n", ""),
        ("  has_dscores: {type: bool, doc: whether dscores is requested, default: true}\n", ""),
        ("  - {that: has_dscores or has_dslopes, raises: InvalidProblem}\n", ""),
        ("    has_dscores: [true, true, false]\n", ""),
        (", has_dscores: false", ""),
    ):
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "alibi_both.yaml"
    path.write_text(text)
    files = texts([lower(load_spec(path).spec, "alibi_both.yaml")])
    module: Any = ModuleType("alibi_both")
    module.__package__ = "alibi_both"
    monkeypatch.setitem(sys.modules, "alibi_both", module)
    sizes = {"batch_size": 2, "num_heads": 3, "query_len": 5, "key_len": 16}
    with rt.REGISTRY.apart():  # other tests know no such op
        exec(compile(files["attention/alibi_both.py"], "alibi_both.py", "exec"), module.__dict__)
        plan = module.AlibiBothPlan.select(module.AlibiBothDescriptor(**sizes, element="f32"))
    source = replace(plan._row.source, inline=files["attention/alibi_both.cu"])
    plan._row = replace(plan._row, source=source)
    dy, dslopes = np.random.default_rng(0).standard_normal((2, 3, 5, 16), np.float32), np.zeros(3, np.float32)
    kept = dy.copy()
    plan.run(dy=dy, dscores=dy, dslopes=dslopes)
    distance = np.arange(16)[None, :] - np.arange(5)[:, None]
    assert np.array_equal(dy, kept)
    assert np.allclose(dslopes, (kept * distance).sum((0, 2, 3)), rtol=1e-4, atol=1e-4)
    views = {"dy": rt.view(dy, "dy"), "dscores": rt.view(dy, "dscores"), "dslopes": rt.view(dslopes, "dslopes")}
    assert {launch.source for launch in plan._launches(views, 0)} <= set(plan.sources())
