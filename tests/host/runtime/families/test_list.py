"""The list family: optimizers on hundreds of arrays, on the host device, against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda.runtime as rt
from baracuda import ops
from baracuda.generated import AdamWDescriptor, AdamWPlan, EMADescriptor, EMAPlan

LISTS = ("p", "g", "m", "v")
STEP = {"lr": np.array(0.01, np.float32), "step": np.array(3)}
Lists = dict[str, list[Any]]


def _drawn(sizes: list[int], seed: int = 0) -> Lists:
    rng = np.random.default_rng(seed)
    lists = {n: [rng.standard_normal(size).astype(np.float32) for size in sizes] for n in LISTS}
    return lists | {"v": [abs(v) for v in lists["v"]]}


def _plan(sizes: list[int]) -> AdamWPlan:
    return AdamWPlan.select(AdamWDescriptor(numel=sum(sizes), element="f32"))


def _joined(lists: Lists) -> dict[str, Any]:
    return {n: np.concatenate([array.reshape(-1) for array in arrays]) for n, arrays in lists.items()}


def _sizes(count: int) -> list[int]:
    return [int(n) for n in np.random.default_rng(count).integers(0, 12, count)]


def test_one_launch_updates_300_arrays() -> None:
    sizes = [*_sizes(298), 5000, 2048]
    lists = _drawn(sizes)
    p, g, m, v = (of.astype(np.float64) for of in _joined(lists).values())
    plan = _plan(sizes)
    assert len(plan._launches(plan._checked((*lists.values(), *STEP.values())), 0)) == 1
    plan.run(**lists, **STEP)
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    p = p * (1 - 0.01 * 0.01) - 0.01 * m / (1 - 0.9**3) / (np.sqrt(v / (1 - 0.999**3)) + 1e-8)
    got = _joined(lists)
    for name, due in {"p": p, "m": m, "v": v}.items():
        np.testing.assert_allclose(got[name], due, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [1, 3, 90, 900])
def test_bits_do_not_depend_on_the_list(count: int) -> None:
    """Arrays apart, one array of all their elements, and arrays in another order, of other alignments."""
    sizes = [*_sizes(count - 1), 3000]
    lists, plan = _drawn(sizes), _plan(sizes)
    flat = _joined(lists)
    turned = {n: [_shifted(a, n) for a in arrays[::-1]] for n, arrays in lists.items()}
    for arrays in (lists, flat, turned):
        plan.run(**arrays, **STEP)
    assert len(plan._launches(plan._checked((*lists.values(), *STEP.values())), 0)) == 1 + (count == 900)
    for name, whole in flat.items():
        np.testing.assert_array_equal(_joined(lists)[name].view(np.uint32), whole.view(np.uint32))
        np.testing.assert_array_equal(_joined({name: turned[name][::-1]})[name].view(np.uint32), whole.view(np.uint32))


def _shifted(array: Any, name: str) -> Any:
    """The same numbers, elsewhere, and for each list at another distance from a multiple of 16 bytes."""
    shift = LISTS.index(name)
    memory = np.zeros(array.size + 4, np.float32)
    memory[shift : shift + array.size] = array
    return memory[shift : shift + array.size]


def test_arrays_of_any_shape_in_any_dense_order() -> None:
    sizes = [24, 6]
    lists, plan = _drawn(sizes), _plan(sizes)
    flat = _joined(lists)
    shaped = {n: [a.reshape(4, 3, 2).transpose(2, 0, 1), b.reshape(1, 6, 1)] for n, (a, b) in lists.items()}
    plan.run(**shaped, **STEP)
    plan.run(**flat, **STEP)
    np.testing.assert_array_equal(_joined({"p": lists["p"]})["p"], flat["p"])


def test_arrays_of_no_elements() -> None:
    lists = _drawn([0, 0])
    _plan([0]).run(**lists, **STEP)
    assert _plan([0])._launches(_plan([0])._checked((*lists.values(), *STEP.values())), 0) == []


def test_the_second_call_with_the_same_arrays_checks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [5, 7]
    lists, plan = _drawn(sizes), _plan(sizes)
    plan.run(**lists, **STEP)
    monkeypatch.setattr(type(plan), "_checked", None)
    before = _joined(lists)["p"]
    plan.run(**lists, **STEP)
    assert (_joined(lists)["p"] != before).all()


def test_bound_lists_stay_alive_and_are_updated() -> None:
    sizes = [5, 7]
    lists, plan = _drawn(sizes), _plan(sizes)
    bound = plan.bind(**lists, **STEP)
    before = _joined(lists)["p"]
    bound()
    assert (_joined(lists)["p"] != before).all()


def test_functions_take_lists() -> None:
    sizes = [5, 0, 300]
    lists, same = _drawn(sizes), _drawn(sizes)
    assert ops.adamw(*lists.values(), **STEP) is None
    _plan(sizes).run(**same, **STEP)
    np.testing.assert_array_equal(_joined(lists)["p"], _joined(same)["p"])
    of_halves = _drawn(sizes)
    gradients = [g.astype(np.float16) for g in of_halves["g"]]
    p = ops.adamw_master(of_halves["p"], gradients, of_halves["m"], of_halves["v"], **STEP)
    assert [(a.shape, a.dtype) for a in p] == [((n,), np.float16) for n in sizes]
    np.testing.assert_array_equal(np.concatenate(p), _joined(of_halves)["p"].astype(np.float16))


def _bad(name: str, at: int, array: Any) -> Any:
    def change(lists: Lists) -> None:
        lists[name][at] = array(lists) if callable(array) else array

    return change


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (lambda x: x["g"].pop(), rt.InvalidProblem, "the same number of arrays; 'g' has 2 arrays, 'p' has 3"),
        (lambda x: x.update({n: [] for n in LISTS}), rt.InvalidProblem, "'p' is empty; pass at least one array"),
        (lambda x: x.update(m=x["m"][0]), rt.InvalidProblem, "'m' must be a list of arrays, as 'p' is"),
        (lambda x: x.update(m=None), rt.InvalidProblem, "'m' is required, got None"),
        (_bad("v", 2, None), rt.InvalidProblem, "'v[2]' is None; every array of a list must be there"),
        (_bad("v", 1, "text"), rt.InvalidProblem, "'v[1]' is of type builtins.str"),
        (
            _bad("g", 1, np.zeros((3, 2), np.float32)),
            rt.InvalidProblem,
            "'g[1]' must have the shape (2, 3) of 'p[1]', got (3, 2)",
        ),
        (
            _bad("m", 1, np.zeros((3, 2), np.float32).T),
            rt.Unsupported,
            "'m[1]' must have the strides (3, 1) of 'p[1]', got (1, 2); copy it",
        ),
        (
            _bad("p", 0, np.zeros(8, np.float32)[::2]),
            rt.Unsupported,
            "'p[0]' must have no gaps, got shape (4,) and strides (2,); copy it",
        ),
        (_bad("g", 2, np.zeros(5, np.float16)), rt.Unsupported, "'g[2]' holds f16, 'g[0]' f32; a list holds one type"),
        (
            lambda x: x.update(g=[a.astype(np.float64) for a in x["g"]]),
            rt.Unsupported,
            "'g[0]' must hold f32, got f64",
        ),
        (_bad("m", 2, lambda x: x["v"][2]), rt.InvalidProblem, "'m[2]' overlaps 'v[2]'; give it memory of its own"),
        (_bad("p", 2, lambda x: x["p"][1].reshape(-1)[:5]), rt.InvalidProblem, "'p[1]' overlaps 'p[2]'"),
        (
            lambda x: [x[n].append(np.zeros(2, np.float32)) for n in LISTS],
            rt.InvalidProblem,
            "the arrays of 'p' have 17 elements, the plan was selected for 15",
        ),
    ],
)
def test_wrong_lists(change: Any, kind: type[Exception], message: str) -> None:
    lists = _drawn([4, 6, 5])
    lists = {n: [a, b.reshape(2, 3), c] for n, (a, b, c) in lists.items()}
    change(lists)
    with pytest.raises(kind) as caught:
        _plan([4, 6, 5]).run(**lists, **STEP)
    assert f"AdamWPlan: {message}" in str(caught.value) or message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_list_for_an_argument_that_is_none() -> None:
    lists = _drawn([4])
    with pytest.raises(rt.InvalidProblem, match=r"'lr' is of type builtins\.list"):
        _plan([4]).run(**lists, lr=[np.array(0.1, np.float32)], step=STEP["step"])


def test_averages_of_halves() -> None:
    x, average = [np.ones(n, np.float16) for n in (3, 40)], [np.zeros(n, np.float32) for n in (3, 40)]
    EMAPlan.select(EMADescriptor(numel=43, element="f16")).run(average=average, x=x, decay=np.array(0.75, np.float32))
    assert all((a == 0.25).all() for a in average)
