"""Selection, identity and launching behave as documented, whatever the op."""

from __future__ import annotations

import inspect
import os
import signal
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from repository import ROOT

import baracuda.generated
import baracuda.runtime as rt
from baracuda.generated import RMSNormBackwardDescriptor, RMSNormBackwardPlan, RMSNormDescriptor, RMSNormPlan
from baracuda.runtime.devices.architecture import Architecture
from baracuda.runtime.plans.registry import REGISTRY, KernelRegistry, KernelRows
from baracuda.runtime.plans.sku import VECTOR_BYTES

baracuda.generated.import_all()


def _forward(shape: tuple[int, ...] = (6, 64), element: str = "f32", **changes: Any) -> RMSNormDescriptor:
    given = {"input_shape": shape, "norm_axes_mask": 2, "eps": 1e-6, "has_gamma": True, "element": element}
    return RMSNormDescriptor(**{**given, **changes})


def _arrays(rows: int = 6, cols: int = 64) -> dict[str, Any]:
    x = np.random.default_rng(0).standard_normal((rows, cols), dtype=np.float32)
    return {"x": x, "gamma": np.ones(cols, np.float32), "y": np.zeros_like(x), "rms": np.zeros((rows, 1), np.float32)}


def test_every_sku_prints_and_parses() -> None:
    rows = list(REGISTRY)
    assert len(rows) >= 128
    for row in rows:
        assert rt.KernelSku.parse(str(row.sku)) == row.sku
        assert REGISTRY.lookup(str(row.sku)) is row
    assert len({row.sku.symbol for row in rows}) == len(rows)


def test_forward_and_backward_have_different_skus() -> None:
    forward = RMSNormPlan.select(_forward()).sku
    backward = RMSNormBackwardPlan.select(
        RMSNormBackwardDescriptor(input_shape=(6, 64), norm_axes_mask=2, has_gamma=True, element="f32")
    ).sku
    assert (forward.direction, backward.direction) == ("forward", "backward")
    assert len({forward, backward}) == 2


@pytest.mark.parametrize(("element", "acc"), [("f16", "f32"), ("bf16", "f32"), ("f32", "f32"), ("f64", "f64")])
def test_precision_is_what_the_kernel_computes_in(element: str, acc: str) -> None:
    guarantee = RMSNormPlan.select(_forward(element=element)).precision_guarantee
    assert (guarantee.math_precision, guarantee.accumulator) == (acc, acc)


@pytest.mark.parametrize(
    ("op", "tiled", "kept"),
    [
        ("flash_sdpa", {"f16": "f16", "bf16": "bf16", "f32": "tf32x3", "f64": "f64"}, {}),
        ("flash_sdpa_backward", {"f16": "f16", "bf16": "bf16", "f32": "tf32x3", "f64": "f64"}, {}),
        ("sdpa", {"f16": "f16", "bf16": "bf16"}, {"f16": "f32", "bf16": "f32", "f32": "f32", "f64": "f64"}),
        ("sdpa_backward", {"f16": "f16", "bf16": "bf16"}, {"f16": "f32", "bf16": "f32", "f32": "f32", "f64": "f64"}),
        ("causal_conv1d", {}, {"f16": "f32", "bf16": "f32", "f32": "f32", "f64": "f64"}),
    ],
)
def test_math_precision_is_what_factors_are_rounded_to(op: str, tiled: dict[str, str], kept: dict[str, str]) -> None:
    """Kernels that keep all scores in memory, by lanes, and convolutions multiply in the accumulator's type."""
    for sku in (row.sku for row in REGISTRY.candidates(op)):
        assert isinstance(sku.schedule, rt.Schedule)
        expected = kept if op == "causal_conv1d" or dict(sku.schedule.numbers).get("lanes") else tiled
        guarantee = sku.precision_guarantee
        assert guarantee.math_precision == expected[sku.element], sku
        assert guarantee.accumulator == sku.element.row.acc
        assert f"/{expected[sku.element]}.{sku.element.row.acc}." in str(sku)


@pytest.mark.parametrize("op", ["dense_gemm", "linear", "linear_backward", "nf4_linear"])
def test_factors_are_rounded_to_tf32_only_where_asked(op: str) -> None:
    skus = [row.sku for row in REGISTRY.candidates(op, "f32")]
    whole, rounded = (next(s for s in skus if s.precision_guarantee.math_precision == m) for m in ("tf32x3", "tf32"))
    asked = rt.PlanPreference(math_precision="tf32")
    assert asked.refuses(rounded, lambda: 0) is None
    assert asked.refuses(whole, lambda: 0) == "multiplies factors as tf32x3, math_precision allows tf32 only"
    assert rt.PlanPreference().refuses(whole, lambda: 0) is None
    pinned = {"archs": frozenset({rounded.arch}), "schedules": frozenset({str(rounded.schedule)})}
    for unasked in (rt.PlanPreference(), rt.PlanPreference(**pinned)):
        assert unasked.refuses(rounded, lambda: 0) == "rounds factors to tf32, which math_precision must ask for"


@pytest.mark.parametrize("op", ["dense_gemm", "linear", "baddbmm"])
def test_sums_are_in_parts_only_where_batch_invariance_is_waived(op: str) -> None:
    skus = [row.sku for row in REGISTRY.candidates(op)]
    split = [sku for sku in skus if "waives" in sku.asked]
    assert {(sku.element, sku.arch) for sku in split} == {(sku.element, sku.arch) for sku in skus}
    assert all(sku.precision_guarantee.batch_invariant == (sku not in split) for sku in skus)
    for sku in split:
        fields = {name: value for name, value in sku.asked.items() if name != "waives"}
        waived = rt.PlanPreference(waives=frozenset({"batch_invariant"}), **fields)
        assert waived.refuses(sku, lambda: 0) is None
        for kept in (frozenset[str](), frozenset({"deterministic"})):
            reason = "lacks batch_invariant for the sake of speed, which waives must allow"
            assert replace(waived, waives=kept).refuses(sku, lambda: 0) == reason


@pytest.mark.parametrize("op", ["linear_backward", "grouped_mm", "scaled_mm", "int_mm", "linear_swiglu", "linear_amax"])
def test_other_products_have_no_sums_in_parts(op: str) -> None:
    assert not any("waives" in row.sku.asked for row in REGISTRY.candidates(op))


_SIDEWAYS = "normalization/rms_norm/sideways/f32/sm_80/bespoke/f32.f32.----/row1x1x1b1/-/-/-"


_FORWARD = "normalization/rms_norm/forward/f32/sm_80/bespoke/f32.f32.----/row1x1x1r1/-/-/-"


def test_a_revision_is_a_part_of_a_name() -> None:
    first, second = (rt.KernelSku.parse(_FORWARD.replace("----", f"dsb-{text}")) for text in ("", ".2"))
    assert (first.precision_guarantee.numerics, second.precision_guarantee.numerics) == (1, 2)
    assert str(second).split("/")[6] == "f32.f32.dsb-.2" and first != second
    assert first.precision_guarantee.rungs == second.precision_guarantee.rungs
    assert rt.PlanPreference(numerics=2).refuses(second, lambda: 0) is None
    refused = rt.PlanPreference(numerics=2).refuses(first, lambda: 0)
    assert refused == "computes bits of revision 1, numerics allows 2 only"


_REVISED = [_FORWARD.replace("----", f"----{text}") for text in (".1", ".0", ".02", ".", ".x", ".2.3", ".99999")]


@pytest.mark.parametrize("text", ["", "a/b/c", _SIDEWAYS, *_REVISED])
def test_what_is_no_sku_is_refused(text: str) -> None:
    with pytest.raises(rt.InvalidProblem, match="is not a KernelSku"):
        rt.KernelSku.parse(text)


def test_lookup_names_the_closest() -> None:
    sku = str(RMSNormPlan.select(_forward()).sku).replace("sm_80", "sm_81")
    with pytest.raises(rt.Unsupported, match="closest is"):
        REGISTRY.lookup(sku)


@pytest.mark.parametrize(
    ("sku", "plan"),
    [
        ("normalization/layer_norm/forward/f32/sm_80/bespoke/f32.f32.dsba/row1x1x1r1/-/-/-", "LayerNormPlan"),
        ("attention/flash_sdpa/forward/f16/sm_89/bespoke/f32.f32.dsb-/t128/-/-/-", "FlashSdpaPlan"),
    ],
)
def test_lookup_names_the_plan_to_import(sku: str, plan: str) -> None:
    """Kernels of other ops may be imported already: they are not what is asked for."""
    registry, other = KernelRegistry(), REGISTRY.candidates("rms_norm", "f32")
    registry.register(other)
    with pytest.raises(rt.Unsupported, match=f"; import its plan first: from baracuda.generated import {plan}$"):
        registry.lookup(sku)
    with pytest.raises(rt.Unsupported, match=r"no imported plan is of op '\w+/strange', and baracuda"):
        registry.lookup(sku.replace(sku.split("/")[1], "strange"))


def _lazy_rows(made: list[str], contraction: bool = False) -> KernelRows:
    """Those of RMSNorm, which say in `made` of which element types they were asked for."""
    rows = list(rt.row_kernels(RMSNormPlan, contraction=contraction))

    def make(elements: Collection[str]) -> Iterator[rt.Registered]:
        made.extend(elements)
        return (row for row in rows if row.sku.element in elements)

    return KernelRows(RMSNormPlan, make)


def test_rows_are_made_when_they_are_asked_for() -> None:
    """Those of one element type for a selection, all for whoever reads the table, which has them in order."""
    registry, made = KernelRegistry(), list[str]()
    registry.register(_lazy_rows(made))
    assert registry.candidates("softmax", "f32") == () and made == ["f32", "f16", "bf16", "f64"]
    registry, made = KernelRegistry(), list[str]()
    registry.register(_lazy_rows(made))
    chosen = [registry.candidates("rms_norm", "f16") for _ in range(2)]
    assert chosen[0] == chosen[1] == REGISTRY.candidates("rms_norm", "f16") and made == ["f16"]
    assert registry.candidates("rms_norm", "f8") == () and made == ["f16"]
    assert list(registry) == [row for row in REGISTRY if row.sku.op == "rms_norm"]
    assert made == ["f16", "f32", "f16", "bf16", "f64"] and len(registry) == len(list(registry))


def test_another_package_with_the_same_op_is_refused_at_once() -> None:
    registry, made = KernelRegistry(), list[str]()
    registry.register(_lazy_rows(made))
    with pytest.raises(rt.InvalidProblem, match="registered twice"):
        registry.register(_lazy_rows(made, contraction=True))
    registry.register(_lazy_rows(made))


def test_a_registry_apart_leaves_the_table_alone() -> None:
    registry, made = KernelRegistry(), list[str]()
    registry.register(_lazy_rows(made))
    with registry.apart():
        assert len(registry) == 0
    assert made == [] and registry.candidates("rms_norm", "f64") and made == ["f64"]


def test_a_fork_waits_for_whoever_has_the_table() -> None:
    began = threading.Event()

    def look() -> None:
        with REGISTRY._lock:
            began.set()
            time.sleep(0.1)

    thread = threading.Thread(target=look)
    thread.start()
    began.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(5)
        os._exit(0 if REGISTRY.candidates("rms_norm", "f32") else 1)
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 and len(REGISTRY)


def test_a_descriptor_names_fields_that_are_missing_or_unknown() -> None:
    with pytest.raises(TypeError, match=r"RMSNormDescriptor\(\) missing required keyword arguments: 'eps', 'element'$"):
        RMSNormDescriptor(input_shape=(6, 64), norm_axes_mask=2, has_gamma=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"RMSNormDescriptor\(\) got unexpected keyword arguments: 'epsilon'$"):
        _forward(epsilon=1e-6)
    given = str(inspect.signature(RMSNormDescriptor))
    assert given.startswith("(*, input_shape: 'tuple[int, ...]', norm_axes_mask: 'int', eps: 'float'")


def test_another_kernel_of_the_same_sku_is_refused() -> None:
    registry, row = KernelRegistry(), next(iter(REGISTRY))
    registry.register([row, row])
    other = rt.Registered(row.sku, rt.SourceFile("elsewhere", "x.cu", contraction=True, flush_subnormals=False))
    with pytest.raises(rt.InvalidProblem, match="registered twice"):
        registry.register([other])
    assert registry.lookup(row.sku) is row


@pytest.mark.parametrize(
    ("arch", "device", "fits"),
    [
        ("sm_80", "sm_80", True),
        ("sm_80", "sm_120", True),
        ("sm_80", "host", True),
        ("sm_89", "sm_80", False),
        ("sm_90a", "sm_90", True),
        ("sm_90a", "sm_100", False),
        ("sm_90a", "host", True),
        ("sm_100a", "host", False),
    ],
)
def test_an_arch_is_a_minimum_unless_it_ends_in_a(arch: str, device: str, fits: bool) -> None:
    sku = rt.KernelSku.parse(str(RMSNormPlan.select(_forward()).sku).replace("/sm_80/", f"/{arch}/"))
    assert (sku.fits(device) is None) is fits


def test_selection_is_remembered_and_explained() -> None:
    plan = RMSNormPlan.select(_forward())
    assert RMSNormPlan.select(_forward()) is plan
    explanation = RMSNormPlan.explain(_forward((2, 5000)))
    assert explanation.chosen == RMSNormPlan.select(_forward((2, 5000))).sku
    assert "a row has 5000 columns, the tile holds" in str(explanation)
    assert all(verdict.accepted or verdict.reason for verdict in explanation.verdicts)


def test_when_none_is_left_every_candidate_says_why() -> None:
    preference = rt.PlanPreference(archs=frozenset({"sm_90a"}))
    with pytest.raises(rt.Unsupported) as error:
        RMSNormPlan.select(_forward(), preference)
    reasons = str(error.value).splitlines()[1:]
    assert len(reasons) == len(REGISTRY.candidates("rms_norm", "f32"))
    said = (", archs allows sm_90a", "only if archs allows", "the tile holds")
    assert all(any(what in line for what in said) for line in reasons)


def test_who_asks_for_bits_of_every_gpu_gets_one_kernel_everywhere() -> None:
    """Long rows have their own kernel where shared memory allows; with the rung, all architectures take the same."""
    asked = rt.PlanPreference(rungs=frozenset({"bit_stable_across_arch"}))
    candidates = [k.sku for k in REGISTRY.candidates("rms_norm", "bf16")]
    for cols in (1000, 16384, 65536, 300000):
        problem = RMSNormDescriptor(input_shape=(4, cols), norm_axes_mask=2, eps=0.0, has_gamma=False, element="bf16")
        chosen = {
            arch: [
                next(sku for sku in candidates if not refused(sku, problem, arch, preference))
                for preference in (rt.PlanPreference(), asked)
            ]
            for arch in ("sm_80", "sm_90")
        }
        assert chosen["sm_80"][0] == chosen["sm_80"][1] == chosen["sm_90"][1]
        assert (chosen["sm_90"][0].arch == "sm_90") == (cols == 65536)


@pytest.mark.parametrize("cols", [65536, 131072])
def test_a_row_is_read_ahead_where_there_is_shared_memory_for_it(cols: int) -> None:
    problem = RMSNormDescriptor(input_shape=(4, cols), norm_axes_mask=2, eps=0.0, has_gamma=False, element="bf16")
    large, small = (RMSNormPlan.select(problem, device=Architecture(a, a)).sku.tile for a in ("sm_90", "sm_120"))
    ahead = large.threads * large.chunks * VECTOR_BYTES
    assert large.blocks and (small == large) == (ahead <= 99 * 1024)


def refused(sku: rt.KernelSku, problem: Any, arch: str, preference: rt.PlanPreference) -> str | None:
    """Why a device of `arch` is not given the kernel."""
    return sku.fits(arch) or RMSNormPlan.cannot_hold(problem, sku) or preference.refuses(sku, lambda: 0)


def test_unknown_layouts_are_refused() -> None:
    with pytest.raises(rt.InvalidProblem, match="unknown layouts"):
        RMSNormPlan.select(_forward(), layouts=["diagonal"])


def test_a_plan_for_some_layouts_refuses_the_others() -> None:
    plan, arrays = RMSNormPlan.select(_forward(), layouts=["packed"]), _arrays()
    arrays["x"] = np.zeros((6, 128), np.float32)[:, ::2]
    with pytest.raises(rt.Unsupported, match="the arrays are strided, this plan was selected for packed"):
        plan.run(**arrays)
    assert not plan.can_implement(**arrays)


def test_a_thousand_shapes_need_few_kernels() -> None:
    """Two a tile, for rows of whole packs and others, per op and element: the distinct sources that launches name."""
    rng = np.random.default_rng(0)
    widths = [*range(1, 130), *rng.integers(130, 131072, 871).tolist()]
    for element in ("bf16", "f32"):
        sources = set()
        for cols in widths:
            descriptor = RMSNormBackwardDescriptor(
                input_shape=(5, cols), norm_axes_mask=2, has_gamma=True, element=element
            )
            plan = RMSNormBackwardPlan.select(descriptor)
            shapes = {n: s[0] for n, s in plan.shapes().items()}
            views = {
                n: rt.TensorView(4096, s, _row_major(s), plan.elements_of(n)[0], "host", False, None, None)
                for n, s in shapes.items()
            }
            sources |= {launch.source for launch in plan._launches(views, 0)}
            assert len(plan._launches(views, 0)) <= 2
        assert len(sources) <= 2 * len(REGISTRY.candidates("rms_norm_backward", element)) <= 28


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))


def test_the_three_ways_to_launch_agree() -> None:
    plan, results = RMSNormPlan.select(_forward()), []
    for way in ("run", "run_unchecked", "bind"):
        arrays = _arrays()
        called = getattr(plan, way)(**arrays)
        if way == "bind":
            assert not arrays["y"].any()
            called()
        results.append(arrays["y"].copy())
    assert np.array_equal(results[0], results[1]) and np.array_equal(results[0], results[2])
    assert results[0].any()


def test_one_plan_serves_many_threads() -> None:
    plan, sets = RMSNormPlan.select(_forward((40, 64))), [_arrays(40) for _ in range(8)]
    for scale, arrays in enumerate(sets):
        arrays["x"] *= scale + 1
    threads = [threading.Thread(target=lambda a=a: [plan.run(**a) for _ in range(20)]) for a in sets]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for arrays in sets:
        exact = arrays["x"] / np.sqrt((arrays["x"].astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-6)
        assert np.abs(arrays["y"] - exact).max() < 1e-6


def test_the_descriptor_takes_what_stands_for_its_types() -> None:
    given = RMSNormDescriptor(
        input_shape=[np.int64(6), 64], norm_axes_mask=np.int32(2), eps=np.float32(0.5), has_gamma=True, element="f32"
    )
    assert given == _forward(eps=0.5) and hash(given) == hash(_forward(eps=0.5))
    for wrong in ({"input_shape": "ab"}, {"norm_axes_mask": 1.5}, {"eps": "x"}, {"has_gamma": 1}):
        with pytest.raises(rt.InvalidProblem, match=next(iter(wrong))):
            _forward(**wrong)
    with pytest.raises(rt.Unsupported, match="unknown element"):
        _forward(element="f33")


def test_rank_eight_works_and_nine_does_not() -> None:
    shape = (1, 2, 1, 3, 1, 2, 2, 4)
    RMSNormPlan.select(_forward(shape, norm_axes_mask=128))
    with pytest.raises(rt.Unsupported, match=r"1 <= len\(input_shape\) <= 8"):
        RMSNormPlan.select(_forward((1, *shape), norm_axes_mask=256))


def test_a_row_of_zeros_without_eps_is_not_a_number() -> None:
    plan, arrays = RMSNormPlan.select(_forward(eps=0.0)), _arrays()
    arrays["x"][3] = 0
    plan.run(**arrays)
    assert np.isnan(arrays["y"][3]).all() and np.isfinite(arrays["y"][[0, 1, 2, 4, 5]]).all()
    assert arrays["rms"][3, 0] == 0


def test_no_rows_still_define_the_column_sums() -> None:
    for cols in (64, 70000):
        plan = RMSNormBackwardPlan.select(
            RMSNormBackwardDescriptor(input_shape=(0, cols), norm_axes_mask=2, has_gamma=True, element="f32")
        )
        empty, dgamma = np.zeros((0, cols), np.float32), np.full(cols, np.nan, np.float32)
        workspace = np.empty(plan.workspace_bytes // 16 + 1, "V16").view(np.uint8)
        plan.run(
            dy=empty,
            x=empty.copy(),
            gamma=np.ones(cols, np.float32),
            rms=np.zeros((0, 1), np.float32),
            dx=empty.copy(),
            dgamma=dgamma,
            workspace=workspace,
        )
        assert not dgamma.any()


@pytest.mark.parametrize("cols", [64, 70000])
def test_what_is_not_wanted_needs_no_workspace(cols: int) -> None:
    def plan(has_gamma: bool) -> RMSNormBackwardPlan:
        return RMSNormBackwardPlan.select(
            RMSNormBackwardDescriptor(input_shape=(9, cols), norm_axes_mask=2, has_gamma=has_gamma, element="f32")
        )

    wide = 48 + 192  # 9 row reductions and the tickets of 46 strips, each part a multiple of 16 bytes
    assert plan(True).workspace_bytes > plan(False).workspace_bytes == (0 if cols == 64 else wide)


def test_rows_along_several_axes_have_a_kernel_of_their_own() -> None:
    """One axis of rows needs no divisions; more need a kernel that has them, and give the same."""
    plan, arrays = RMSNormPlan.select(_forward((2, 3, 64), norm_axes_mask=4)), _arrays()
    whole = {"x": arrays["x"].reshape(2, 3, 64), "y": np.zeros((2, 3, 64), np.float32), "gamma": arrays["gamma"]}
    whole["rms"] = np.zeros((2, 3, 1), np.float32)
    apart = whole | {"x": np.zeros((2, 4, 64), np.float32)[:, :3], "y": np.zeros((2, 3, 64), np.float32)}
    apart["x"][:] = whole["x"]
    used = []
    for given in (whole, apart):
        plan.run(**given)
        (launch,) = plan._launches({name: rt.view(array, name) for name, array in given.items()}, 0)
        used.append([d for d in launch.source.defines if "ROW_AXES" in d or "LAYOUT" in d])
        assert launch.source in set(plan.sources())
    assert used == [["BARACUDA_LAYOUT=PACKED", f"BARACUDA_ROW_AXES={n}"] for n in (1, 8)]
    assert whole["y"].any() and np.array_equal(whole["y"], apart["y"])


def test_more_blocks_than_lie_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that a grid has no room for along x go on along y, and those behind the last row do nothing."""
    arrays = _arrays(rows=200)
    RMSNormPlan.select(_forward((200, 64))).run(**arrays)
    monkeypatch.setattr("baracuda.runtime.families.row.plan.MAX_GRID", 4)
    plan, again = RMSNormPlan.select(_forward((200, 64))), _arrays(rows=200)
    plan._geometries.clear()
    plan.run(**again)
    (launch,) = plan._launches({name: rt.view(array, name) for name, array in again.items()}, 0)
    assert launch.grid[0] == 4 and launch.grid[1] > 1
    plan._geometries.clear()
    assert again["y"].any() and all(np.array_equal(arrays[name], again[name]) for name in ("y", "rms"))


def test_halves_of_one_buffer_do_not_overlap() -> None:
    """Interleaved views share a range of addresses and no element; that must be accepted."""
    plan, buffer = RMSNormPlan.select(_forward()), np.zeros((6, 128), np.float32)
    arrays = _arrays()
    buffer[:, :64] = arrays["x"]
    plan.run(x=buffer[:, :64], gamma=arrays["gamma"], y=buffer[:, 64:], rms=arrays["rms"])
    assert buffer[:, 64:].all()
    with pytest.raises(rt.InvalidProblem, match="overlaps"):
        plan.run(x=buffer[:, :64], gamma=arrays["gamma"], y=buffer[:, 1:65], rms=arrays["rms"])


def test_importing_plans_is_quick_and_creates_nothing() -> None:
    """No CUDA library, template engine or validator is loaded by importing and selecting."""
    import subprocess
    import sys

    code = (
        "import sys; from baracuda.generated import RMSNormPlan, RMSNormDescriptor;"
        "d = RMSNormDescriptor(input_shape=(4, 64), norm_axes_mask=2, eps=0, has_gamma=True, element='f32');"
        "RMSNormPlan.select(d);"
        "heavy = {'cuda.core', 'cuda.bindings', 'cupy', 'jinja2', 'pydantic', 'click', 'torch'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    path = str(ROOT / ".imports")
    result = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr


def test_headers_of_the_machine_are_not_seen() -> None:
    """A toolkit that happens to be installed is never mixed in: its headers cannot be found."""
    from baracuda.runtime.compile.cubin import compile_cubin
    from baracuda.runtime.device import KernelSource

    text = '#include <cuda_fp16.h>\nextern "C" __global__ void k(int x) {}\n'
    with pytest.raises(rt.CompileError, match=r"cuda_fp16\.h"):
        compile_cubin(KernelSource("k.cu", text, "k"), "sm_90")
