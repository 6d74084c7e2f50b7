"""What a launch and a compilation cost the host: the measurements themselves, and imports and calls that stay cheap."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import baracuda.runtime as rt
from baracuda.benchmarks import compile_time, first_times, host
from baracuda.cli.main import main
from baracuda.generated import RMSNormDescriptor, RMSNormPlan
from baracuda.runtime.arrays.signature import likeness_of
from baracuda.runtime.devices.cuda import CudaDevice
from baracuda.runtime.plans import prepared

HEAVY = ("pydantic", "jinja2", "rich", "ruamel", "click", "cuda.core", "cupy", "torch", "baracuda.runtime.host")


def test_importing_plans_loads_what_calls_need_and_no_more() -> None:
    """The index imports no plan, a plan no generator, compiler or GPU library."""
    program = (
        "import sys, json, baracuda.generated; lazy = 'baracuda.runtime' not in sys.modules; "
        "from baracuda.generated import RMSNormPlan; "
        f"print(json.dumps([lazy, [m for m in {HEAVY!r} if m in sys.modules]]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [True, []]


def test_importing_the_index_is_quick() -> None:
    """150 ms, of which the interpreter itself takes most: the best of some, since the machine may be busy."""

    def took() -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import baracuda.generated"], check=True)
        return time.perf_counter() - start

    assert min(took() for _ in range(5)) < 0.15


def _call(rows: int = 4) -> tuple[RMSNormPlan, dict[str, np.ndarray]]:
    problem = RMSNormDescriptor(input_shape=(rows, 64), norm_axes_mask=2, eps=0.0, has_gamma=True, element="f32")
    x = np.random.default_rng(0).standard_normal((rows, 64), np.float32)
    arrays = {"x": x, "gamma": np.ones(64, np.float32), "y": np.empty_like(x), "rms": np.empty((rows, 1), np.float32)}
    return RMSNormPlan._select(problem, rt.PlanPreference(), None, None), arrays


def test_a_call_of_a_known_place_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was accepted starts at once, and computes from what the arrays hold then."""
    plan, arrays = _call()
    plan.run(**arrays)
    plan.run(**arrays)
    monkeypatch.setattr(type(plan), "_checked", lambda *_: pytest.fail("checked again"))
    arrays["x"] *= 3
    plan.run(**arrays)
    np.testing.assert_allclose(np.square(arrays["y"]).mean(axis=1), 1, rtol=1e-5)


def test_known_arrays_excuse_no_others() -> None:
    """Other memory, layouts, types, aliases and workspaces are checked however often a plan has run."""
    plan, arrays = _call()
    for _ in range(3):
        plan.run(**arrays)
    frozen, wide = arrays["y"].copy(), np.zeros((4, 128), np.float32)
    frozen.flags.writeable = False
    for name, wrong, error in [
        ("y", frozen, "read-only"),
        ("y", arrays["y"].astype(np.float64), "must hold f32"),
        ("y", arrays["y"][:3], "must have shape"),
        ("y", wide.ravel()[1:257].reshape(4, 64)[:, ::-1][:3], "must have shape"),
        ("rms", arrays["y"][:, :1], "overlaps"),
        ("gamma", None, "is required"),
    ]:
        with pytest.raises(rt.BaracudaError, match=f"RMSNormPlan: .*{error}"):
            plan.run(**arrays | {name: wrong})
    with pytest.raises(rt.InvalidProblem, match=r"RMSNormPlan: .*stream is of type"):
        plan.run(**arrays, stream="main")


def test_unchecked_calls_are_not_taken_for_checked_ones() -> None:
    """What `run_unchecked` was given stays unknown to `run`."""
    plan, arrays = _call()
    shared = arrays | {"rms": arrays["y"].reshape(-1)[:4].reshape(4, 1)}
    for _ in range(2):
        plan.run_unchecked(**shared)
        with pytest.raises(rt.InvalidProblem, match="overlaps"):
            plan.run(**shared)


def test_places_tell_apart_whatever_views_do() -> None:
    """Every field of a view but its owner, and the owner's type."""
    x = np.zeros((4, 4), np.float32)
    readonly = x.view()
    readonly.flags.writeable = False
    different = [x, x[1:], x[:2], x.T[:3], x.view(np.int32), readonly, None]
    places = [prepared.place_of([array]) for array in different]
    assert len(set(places)) == len(different) and None not in places
    assert prepared.place_of([x]) == prepared.place_of([x.view()])
    assert prepared.place_of([object()]) is None
    calls, arrays = prepared.Calls(), np.zeros((1000, 2), np.float32)
    for array in arrays:
        calls.remember((array,), prepared.Prepared(rt.get_device("host"), int, int))
    assert len(calls) <= 256 and calls.find((object(),)) is None and calls.find((arrays[0],)) is None


@pytest.mark.frontends
def test_a_tensor_whose_storage_shrank_is_looked_at_again() -> None:
    """It has moved, so that its place is another one."""
    torch = pytest.importorskip("torch")
    plan, arrays = _call()
    tensors = {name: torch.from_numpy(array).clone() for name, array in arrays.items()}
    for _ in range(2):
        plan.run(**tensors)
    tensors["y"].untyped_storage().resize_(16)
    with pytest.raises(rt.BufferTooSmall, match="'y'"):
        plan.run(**tensors)


def _calls_of(lists: list[tuple[object, ...]]) -> None:
    calls, device = prepared.Calls(), rt.get_device("host")
    rt.view(lists[0][0], "x")  # as the checks do, before anything is remembered
    assert calls.find((object(),)) is None and calls.find(lists[0]) is None
    known = [prepared.Prepared(device, int, int) for _ in lists]
    for arrays, what in zip(lists, known, strict=True):
        calls.remember(arrays, what)
    for at in (2, 0, 0, 1, 2):
        assert calls.find(lists[at]) is known[at]
    assert calls.find((*lists[0][:-1], object())) is None and calls.find(lists[2]) is known[2]


def test_calls_are_found_by_their_place() -> None:
    """The latest and those before, each with what was prepared for it."""
    _calls_of([(x, None, x[1:]) for x in np.zeros((3, 4, 4), np.float32)])


@pytest.mark.frontends
def test_calls_of_tensors_are_found() -> None:
    """Whether they are like the last ones that were prepared, or differ in more than their addresses."""
    torch = pytest.importorskip("torch")
    x = torch.zeros(3, 4, 4)
    _calls_of([(a, None, a[1:]) for a in x])
    _calls_of([(x[0], None, x[0]), (x[0], x[0].mT, None), (x[0], None, x[0].mT)])


@pytest.mark.frontends
def test_tensors_are_alike_only_where_their_places_are() -> None:
    """What a view, an owner's type or a lazy tensor's bits tell apart is not alike; other such memory is."""
    torch = pytest.importorskip("torch")
    x = torch.zeros(4, 6, dtype=torch.complex64)
    like = likeness_of((None, x))
    assert like is not None and like.addresses((None, x)) == (x.data_ptr(),)
    assert like.addresses((None, y := torch.ones_like(x))) == (y.data_ptr(),) != (x.data_ptr(),)
    views = [x[:, :5], x[1:], torch.zeros(6, 4).mT, x[None], x[0], torch._neg_view(x), x.conj(), x.real, x.abs()]
    kinds = [torch.nn.Parameter(x), torch.zeros(4, 6, device="meta"), x.to_sparse(), None, x.numpy(), object()]
    for other in [*views, *kinds]:
        assert like.addresses((None, other)) is None
    assert like.addresses((x, x)) is None
    assert likeness_of((x, x)) is None and likeness_of((None,)) is None and likeness_of((x, x.numpy())) is None


@pytest.mark.frontends
def test_likeness_keeps_no_tensor() -> None:
    """A plan must not keep memory that its caller gave up."""
    torch = pytest.importorskip("torch")
    x = torch.zeros(4)
    gone, likeness = weakref.ref(x), likeness_of((x,))
    del x
    assert likeness is not None and gone() is None


def test_rows_of_launches() -> None:
    """Times are the least of a batch's mean, and compared with the fastest raw launch; what is missing says why."""
    calls: list[int] = []

    def broken() -> dict[str, host.Call]:
        raise ModuleNotFoundError("No module named 'jax'\nmore")

    quick, slow = {"raw: quick": lambda: calls.append(1)}, {"slow": lambda: time.sleep(1e-5)}
    routes, absent = host.started({"one": lambda: quick, "jax": broken, "other": lambda: slow})
    assert absent == [host.missing("jax", "ModuleNotFoundError: No module named 'jax'")]
    first, second = host.timed(routes, int)
    assert len(calls) == 1 + host.CALLS * host.BATCHES and first["us"] < second["us"] and second["us"] > 10
    rows = host.compared([first, second, *absent])
    assert [r["over_raw"] for r in rows] == [0.0, round(second["us"] - first["us"], 2), None]


@pytest.mark.parametrize("options", [[], ["--json"], ["--compile"]], ids=" ".join)
def test_without_a_gpu_launches_are_one_line(monkeypatch: pytest.MonkeyPatch, options: list[str]) -> None:
    """Nothing is measured, and no table shown."""
    monkeypatch.setattr(CudaDevice, "available", lambda: False)
    result = CliRunner().invoke(main, ["bench", "--host", *options], catch_exceptions=False)
    said = "no CUDA device to launch on; 'baracuda-gen bench --compile' needs none\n"
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", said)


def test_compile_times_of_one_kernel(tmp_path: Path) -> None:
    """Cold, from the disk, and first and next in a fresh process; each a positive time under its name."""
    light, heavy = compile_time.samples()
    ops = {v.row.sku.op for v in light}
    assert {v.row.sku.op for v in heavy} == {"flash_sdpa", "flash_sdpa_backward"} and {"rms_norm", "repeat"} <= ops
    assert {v.arch for v in light} == {"sm_80", "sm_90", "sm_90a"} and len(ops) < len(light) <= 3 * len(ops)
    one = [v for v in light if v.row.sku.op == "alibi"]
    cold = compile_time.compiled("light SKU", one, repeats=1)
    (warm,) = compile_time.warm(one[0])
    first = compile_time.child("nvrtc")
    assert [len(cold), len(first)] == [2, 2] and cold[1]["note"].startswith("attention/alibi/")
    assert all(row["ms"] > 0 for row in [*cold, *first, warm]) and warm["ms"] < cold[0]["ms"] / 5
    imported, called, other, again = compile_time.first_calls()
    assert 0 < again["ms"] < min(called["ms"], other["ms"]) and imported["ms"] > 0 and again["note"] == "host device"
    (broken,) = compile_time.child("no such")
    assert broken == first_times.row("no such", None, "KeyError: 'no such'")
