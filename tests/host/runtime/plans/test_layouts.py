"""Which kernel arrays get by their layout, that a plan says so, and that looser layouts take stricter ones."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import baracuda.generated as plans
import baracuda.runtime as rt
from baracuda.cli.kernels.explain import Architecture

RNG = np.random.default_rng(0)


def convolution(**changes: Any) -> Any:
    sizes = {"batch_size": 2, "channels": 8, "seq_len": 24, "width": 4, "use_silu": True, "has_bias": False}
    return plans.CausalConv1dBackwardDescriptor(**{**sizes, **changes}, element="f32")


def channels_last(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(array.swapaxes(1, 2)).swapaxes(1, 2)


def arrays_of(plan: Any) -> dict[str, Any]:
    """Inputs and outputs of those that take part, contiguous."""
    return {
        name: RNG.standard_normal(plan.shapes()[name][0]).astype(plan.elements_of(name)[0].row.numpy)
        for name in plan.ARGUMENTS
        if plan.present(name)
    }


def laid_out(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: channels_last(array) if array.ndim == 3 else array.copy() for name, array in arrays.items()}


def run(plan: Any, arrays: dict[str, Any]) -> dict[str, Any]:
    plan.run(**arrays, workspace=np.empty(plan.workspace_bytes, np.uint8))
    return {name: arrays[name].copy() for name in ("dx", "dw")}


def test_other_layouts_than_those_asked_for_are_taken_for_looser_ones() -> None:
    """Channels last without its kernel is strided; the kernel is then that of contiguous arrays, with its bits."""
    plan = plans.CausalConv1dBackwardPlan.select(convolution(), layouts=("packed", "strided"))
    contiguous = arrays_of(plan)
    assert {sku.layout for sku in plan.skus} == {None}
    there = laid_out(contiguous)
    assert plan.can_implement(**there, workspace=np.empty(plan.workspace_bytes, np.uint8)).sku == plan.sku
    one, other = run(plan, contiguous), run(plan, there)
    assert all(np.array_equal(one[name], other[name]) for name in one) and one["dw"].any()


def test_a_layout_that_is_ruled_out_is_refused_where_no_other_will_do() -> None:
    plan = plans.CausalConv1dBackwardPlan.select(convolution(), layouts=["packed"])
    with pytest.raises(rt.Unsupported, match="the arrays are channels_last, it works on packed"):
        run(plan, laid_out(arrays_of(plan)))


def test_a_plan_says_which_kernel_runs() -> None:
    plan = plans.CausalConv1dBackwardPlan.select(convolution())
    contiguous = arrays_of(plan)
    there = laid_out(contiguous)
    assert repr(plan).endswith(f"{plan.sku} or {len(plan.skus) - 1} others, by arrays and device>")
    chosen = {}
    for name, arrays in {"contiguous": contiguous, "channels_last": there}.items():
        scratch = np.empty(plan.workspace_bytes, np.uint8)
        own = plan.for_arrays(**arrays)
        chosen[name] = own.sku
        assert own.skus == (own.sku,) and repr(own) == f"<CausalConv1dBackwardPlan {own.sku}>"
        assert own.workspace_bytes <= plan.workspace_bytes
        assert plan.can_implement(**arrays, workspace=scratch).sku == plan.bind(**arrays, workspace=scratch).sku
        assert plan.bind(**arrays, workspace=scratch).sku == own.bind(**arrays, workspace=scratch).sku == own.sku
        assert pickle.loads(pickle.dumps(own)).skus == own.skus
        one, other = run(plan, arrays), run(own, arrays)
        assert all(np.array_equal(one[name], other[name]) for name in one)
    assert chosen["contiguous"] == plan.sku and chosen["channels_last"] in plan.skus
    assert [sku.layout for sku in chosen.values()] == [None, "channels_last"]
    own = plan.for_arrays(**there)  # its kernel has no other layout
    with pytest.raises(rt.Unsupported, match="the arrays are packed, it works on channels_last"):
        run(own, contiguous)


def test_arrays_of_no_kernel_are_refused_as_run_refuses_them() -> None:
    plan = plans.CausalConv1dBackwardPlan.select(convolution())
    arrays = arrays_of(plan)
    with pytest.raises(rt.InvalidProblem, match="no argument 'workspace'; arguments are "):
        plan.for_arrays(**arrays, workspace=None)
    with pytest.raises(rt.InvalidProblem, match="CausalConv1dBackwardPlan: 'x' is required, got None"):
        plan.for_arrays(**{**arrays, "x": None})
    norm = plans.SoftmaxPlan.select(plans.SoftmaxDescriptor(input_shape=(4, 64), softmax_axis=1, element="f32"))
    x = np.ones((4, 64), np.float32)
    assert norm.for_arrays(x=x, y=x.copy()) is norm and norm.skus == (norm.sku,)
    with pytest.raises(rt.InvalidProblem, match="'y' must have shape"):
        norm.for_arrays(x=x, y=x[1:])


@pytest.mark.parametrize(("step", "arch"), [(1, "sm_90a"), (2, "sm_80")], ids=["mapped", "not mapped"])
def test_tensor_maps_decide_on_hopper(monkeypatch: pytest.MonkeyPatch, step: int, arch: str) -> None:
    """Rows of keys that begin at odd multiples of 8 bytes cannot be mapped, so another kernel runs."""
    hopper: Any = Architecture("sm_90", "sm_90")
    sizes = dict.fromkeys(("batch_size", "num_heads"), 2) | dict.fromkeys(("query_len", "key_len"), 64)
    descriptor = plans.FlashSdpaDescriptor(**sizes, d_k=64, d_v=64, scale=0.125, is_causal=False, element="f16")
    plan = plans.FlashSdpaPlan.select(descriptor, device=hopper)
    monkeypatch.setattr(plans.FlashSdpaPlan, "_device_of", lambda self, views: hopper)
    monkeypatch.setattr(plans.FlashSdpaPlan, "_words", lambda self, sku: None)
    monkeypatch.setattr(plans.FlashSdpaPlan, "_launches", lambda *_: [])
    arrays = arrays_of(plan)
    arrays["k"] = np.zeros((2, 2, 64, 64 + 4 * (step - 1)), np.float16)[..., :64]
    own = plan.for_arrays(**arrays)
    assert plan.sku.arch == "sm_90a" and own.sku.arch == arch and own.skus == (own.sku,)
    assert plan.can_implement(**arrays, workspace=None).sku == own.sku


_FAMILIES: dict[str, Any] = {
    "row": (plans.SoftmaxPlan, {"input_shape": (6, 64), "softmax_axis": 1}),
    "row with sums of columns": (
        plans.RMSNormBackwardPlan,
        {"input_shape": (6, 64), "norm_axes_mask": 2, "has_gamma": True},
    ),
    "long row": (plans.SoftmaxPlan, {"input_shape": (2, 40000), "softmax_axis": 1}),
    "map": (plans.AlibiPlan, {"batch_size": 2, "num_heads": 3, "query_len": 5, "key_len": 16}),
    "map with sums": (plans.RepeatBackwardPlan, {"input_shape": (3, 16), "repeats": (4, 2)}),
    "map with copies": (plans.RepeatPlan, {"input_shape": (3, 16), "repeats": (4, 2)}),
    "body": (plans.CausalConv1dPlan, {"batch_size": 2, "channels": 8, "seq_len": 24, "width": 4, "use_silu": True}),
}


@pytest.mark.parametrize("family", _FAMILIES)
def test_looser_layouts_take_contiguous_arrays(family: str) -> None:
    """With the same bits, which no promise lets depend on the layout."""
    kind, fields = _FAMILIES[family]
    descriptor = kind.DESCRIPTOR(**fields, element="f32")
    arrays = arrays_of(kind.select(descriptor))
    outputs = [name for name in arrays if kind.ARGUMENTS[name].written]
    expected: dict[str, Any] = {}
    for layout in kind.LAYOUTS:
        if layout == "channels_last":  # which contiguous arrays do not keep to
            continue
        plan = kind.select(descriptor, layouts=[layout])
        for name in outputs:
            arrays[name][...] = np.nan
        if family == "map with sums" and layout == "flat":  # sums by columns have no such kernel
            with pytest.raises(rt.Unsupported, match="the arrays are strided, this plan was selected for flat"):
                plan.run(**arrays)
            continue
        plan.run(**arrays, workspace=np.empty(plan.workspace_bytes, np.uint8))
        expected = expected or {name: arrays[name].copy() for name in outputs}
        assert all(np.array_equal(arrays[name], expected[name]) for name in outputs), layout
        assert {f"BARACUDA_LAYOUT={layout.upper()}", f"BARACUDA_LAYOUT={kind.LAYOUTS.index(layout)}"} & {
            define for source in plan._sources.values() for define in source.defines
        }
