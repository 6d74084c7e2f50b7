"""Invariant: a function of arrays gives what its plan does, in arrays of the caller's library that it made itself."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from repository import SPECS, few, usual_element

import baracuda.generated
import baracuda.ops
import baracuda.runtime as rt
from baracuda.checking.oracles.oracle import Problem
from baracuda.checking.problems.subject import Subject
from baracuda.codegen.spec.load import load_folder
from baracuda.ops.usual import USUAL

LOADED = load_folder(SPECS)
SUBJECTS = {op: Subject(one, LOADED, "baracuda.generated") for op, one in LOADED.items()}
OF_CUPY = [  # which has no 8-bit floats
    op
    for op, s in SUBJECTS.items()
    if not any("f8e4m3" in (*t.dtype, *(s.spec.dtypes[:1] if "T" in t.dtype else ())) for t in s.spec.tensors.values())
]
SMALL = 3000  # numbers that the host device computes in no time
X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


def problem_of(op: str, element: str = "") -> Problem:
    """A small problem of the most arguments, by default in the first element that the op has."""
    subject = SUBJECTS[op]
    element = usual_element(subject.spec.dtypes, element)
    made = [Problem.of(subject, case, element) for case in subject.spec.tests.cases]
    return max((p for p in made if p.size <= SMALL), key=lambda p: len(p.arguments), default=made[0])


def drawn(problem: Problem) -> dict[str, Any]:
    """Its inputs; those that a forward would have saved are random as well."""
    inputs, rng = {n: np.array(a) for n, a in problem.draw().items()}, np.random.default_rng(1)
    for name, argument in problem.plan.ARGUMENTS.items():
        if argument.role != "out" and name not in inputs and problem.plan.present(name):
            held = problem.plan.elements_of(name)[0].row.numpy
            inputs[name] = rng.uniform(0.5, 1.5, problem.shape_of(name)).astype(held)
    return inputs


def named(found: Any, op: str) -> dict[str, Any]:
    """A call's outputs by name; those of arguments that it updates have none."""
    if found is None:
        return {}
    if hasattr(found, "_asdict"):
        return dict(found._asdict())
    plan = problem_of(op).plan
    (name,) = (a.name for a in plan.ARGUMENTS.values() if a.role == "out" and plan.present(a.name))
    return {name: found}


def keywords_of(problem: Problem, function: Any) -> dict[str, Any]:
    element = {"element": problem.element} if function.signature.takes_element else {}
    return {name: problem.values[name] for name in function.signature.parameters} | element


@pytest.mark.parametrize("op", few(SUBJECTS, 12))
def test_a_call_gives_what_the_plan_does(op: str) -> None:
    problem, function = problem_of(op), getattr(baracuda.ops, op)
    inputs = drawn(problem)
    changed = {n: a.copy() for n, a in inputs.items()}
    keywords = keywords_of(problem, function)
    plan = SUBJECTS[op].plan.select(problem.descriptor, device="host")
    wanted = {
        name: np.empty(plan.shapes()[name][0], plan.elements_of(name)[0].row.numpy)
        for name, a in plan.ARGUMENTS.items()
        if a.role == "out" and plan.present(name)
    }
    plan.run(**inputs, **wanted, workspace=np.empty(plan.workspace_bytes, np.uint8) if plan.workspace_bytes else None)

    found = named(function(*(changed.get(a.name) for a in function.signature.inputs), **keywords), op)
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert found[name].dtype == wanted[name].dtype and found[name].tobytes() == wanted[name].tobytes(), name
    assert all(changed[name].tobytes() == inputs[name].tobytes() for name in inputs)  # where a plan changes them, too


def test_what_is_left_out_is_what_it_usually_is() -> None:
    """The last axis is normalised, attention is scaled by the root of a head's size, and so on."""
    y, rms = baracuda.ops.rms_norm(X)
    assert rms.shape == (4, 1) and np.allclose(y, X / np.sqrt((X**2).mean(1, keepdims=True) + 1e-6), rtol=1e-6)
    assert np.allclose(baracuda.ops.softmax(X).sum(1), 1)
    q = X.reshape(1, 2, 2, 6)
    given = baracuda.ops.flash_sdpa(q, q, q, scale=6**-0.5, is_causal=False)
    assert baracuda.ops.flash_sdpa(q, q, q).y.tobytes() == given.y.tobytes()
    needed = {name for op in SUBJECTS for name in getattr(baracuda.ops, op).signature.needed}
    assert set(USUAL) <= needed  # a name that no spec has any more is left out here, too


def test_outputs_may_be_given_and_their_types_chosen() -> None:
    x = X.astype(ml_dtypes.bfloat16)
    y, rms = np.empty_like(x), np.empty((4, 1), ml_dtypes.bfloat16)
    found = baracuda.ops.rms_norm(x, y=y, rms=rms)
    assert found.y is y and found.rms is rms and found._fields == ("y", "rms")
    for dtype in ("bf16", rt.ElementKind.BF16, ml_dtypes.bfloat16):
        chosen = baracuda.ops.rms_norm(x, rms_dtype=dtype)
        assert chosen.rms.dtype == rms.dtype and chosen.rms.tobytes() == rms.tobytes()
    assert baracuda.ops.rms_norm(x).rms.dtype == np.float32


def test_plans_are_kept() -> None:
    function = baracuda.ops.Function(SUBJECTS["softmax"].plan)
    for _ in range(2):
        function(X)
    function(X[:2])
    function(X, softmax_axis=0)
    assert len(function._prepared) == 3


@pytest.mark.parametrize(
    ("said", "inputs", "keywords"),
    [
        ("rms_norm takes x, gamma; got no array", (), {}),
        ("rms_norm takes x, gamma; got no 'x'", (None, X[0]), {}),
        ("rms_norm takes x, gamma; got 3 arrays", (X, X[0], X[0]), {}),
        ("rms_norm takes no 'beta'; it takes eps, gamma, norm_axes_mask, rms, rms_dtype, x, y", (X,), {"beta": X}),
        ("rms_norm takes no 'norm_axis_mask'; did you mean 'norm_axes_mask'?", (X,), {"norm_axis_mask": 2}),
        ("rms_norm got 'x' by position and by name", (X,), {"x": X}),
        ("no element type 'float3'; pass one of f16", (X,), {"rms_dtype": "float3"}),
        ("'gamma' must have shape (6,)", (X, X), {}),
        ("'y' must have shape (4, 6)", (X,), {"y": X[0]}),
        ("'x' is of type builtins.str", ("x",), {}),
        ("'eps' must be a float, got '1e-6'", [X], {"eps": "1e-6"}),
    ],
)
def test_calls_that_cannot_be_meant_are_refused_in_a_line(said: str, inputs: Any, keywords: dict[str, Any]) -> None:
    with pytest.raises(rt.BaracudaError) as error:
        baracuda.ops.rms_norm(*inputs, **keywords)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_field_that_nothing_shows_is_asked_for() -> None:
    with pytest.raises(rt.InvalidProblem, match="repeat takes repeats as well; pass repeats="):
        baracuda.ops.repeat(X)
    assert baracuda.ops.repeat(X, repeats=[2, 1]).shape == (8, 6)


def test_functions_are_of_a_generated_package() -> None:
    for wrong in ("mine", rt):
        with pytest.raises(rt.InvalidProblem, match="no package that 'baracuda-gen generate' has written"):
            baracuda.ops.functions(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("op", few(SUBJECTS, 12))
def test_plans_functions_and_results_are_copied_and_pickled(op: str) -> None:
    """After they have run, too, when they know of this process's memory."""
    problem, function = problem_of(op), baracuda.ops.Function(SUBJECTS[op].plan)
    result = function(**drawn(problem), **keywords_of(problem, function))
    (plan,) = (prepared.plan for prepared in function._prepared.values())
    for copied in (copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))):
        again = copied(plan)
        assert (again.descriptor, again.sku, again.layouts) == (plan.descriptor, plan.sku, plan.layouts)
        assert copied(function).signature == function.signature
        found, wanted = named(copied(result), op), named(result, op)
        assert type(copied(result)) is type(result)
        assert {name: a.tobytes() for name, a in found.items()} == {name: a.tobytes() for name, a in wanted.items()}


def test_a_bound_plan_is_not_copied() -> None:
    plan = problem_of("softmax").plan
    bound = plan.bind(x=(x := np.ones(plan.descriptor.input_shape, np.float32)), y=x)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"holds addresses of this process and is not copied; pickle the plan"):
            copied(bound)


def test_the_module_lists_its_ops() -> None:
    assert set(SUBJECTS) <= set(dir(baracuda.ops)) and "functions" in dir(baracuda.ops)
    assert set(baracuda.ops.functions(baracuda.generated)) == set(SUBJECTS)
    assert repr(baracuda.ops.rms_norm) == "<op rms_norm(x, gamma) -> y, rms>"
    assert str(baracuda.ops.rms_norm.__doc__).startswith("Root-mean-square normalisation")
    with pytest.raises(AttributeError, match="no attribute 'rmsnorm'; ops are"):
        _ = baracuda.ops.rmsnorm


@pytest.mark.frontends
def test_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(X).bfloat16()
    y, rms = baracuda.ops.rms_norm(x)
    assert y.dtype == torch.bfloat16 and rms.dtype == torch.float32 and y.device == x.device
    torch.testing.assert_close(y, torch.nn.functional.rms_norm(x, (6,), eps=1e-6))


@pytest.mark.gpu
@pytest.mark.parametrize("ordinal", [0, pytest.param(1, marks=pytest.mark.gpu(2))])
@pytest.mark.parametrize("op", OF_CUPY)
def test_arrays_on_a_gpu_are_computed_there(op: str, ordinal: int) -> None:
    """Whichever device is current, which it still is afterwards."""
    cupy = pytest.importorskip("cupy")
    problem, function = problem_of(op), getattr(baracuda.ops, op)
    keywords = keywords_of(problem, function)
    inputs = drawn(problem)
    with cupy.cuda.Device(ordinal):
        there = {n: cupy.asarray(a) for n, a in inputs.items()}
    found = named(function(*(there.get(a.name) for a in function.signature.inputs), **keywords), op)
    here = named(function(*(inputs.get(a.name) for a in function.signature.inputs), **keywords), op)
    assert cupy.cuda.runtime.getDevice() == 0
    for name, array in found.items():
        assert isinstance(array, cupy.ndarray) and array.dtype == here[name].dtype and array.device.id == ordinal
        wide = [np.asarray(a, np.float64) for a in (cupy.asnumpy(array), here[name])]
        np.testing.assert_allclose(*wide, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
def test_what_cupy_cannot_hold() -> None:
    cupy = pytest.importorskip("cupy")
    with pytest.raises(rt.Unsupported, match="CuPy has no arrays of float8_e4m3fn; pass tensors of torch"):
        baracuda.ops.fp8_quantize(cupy.ones((2, 8), cupy.float32))


@pytest.mark.frontends
def test_gradients_are_not_lost_in_silence() -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(2, 8, requires_grad=True)
    with pytest.raises(rt.Unsupported, match=r"'x' requires a gradient, .* or torch.no_grad"):
        baracuda.ops.rms_norm(x)
    with torch.no_grad():
        assert not baracuda.ops.rms_norm(x)[0].requires_grad


def test_a_function_imports_no_op_but_its_own() -> None:
    code = """
import sys, numpy as np, baracuda.ops
baracuda.ops.rms_norm
print(*(name for name in sys.modules if name.startswith("baracuda.generated.") and name.count(".") == 3))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["baracuda.generated.normalization.rms_norm"]


def test_functions_are_named_as_their_ops() -> None:
    assert [name for name, f in baracuda.ops.functions(baracuda.generated).items() if f.signature.name != name] == []
