"""Invariant: every plan is a torch op that traces, differentiates and compiles like torch's own."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from repository import SPECS, empty_problems, few, usual_element

import baracuda.generated
from baracuda.checking.compare.torch_values import FORWARD
from baracuda.checking.oracles.oracle import Problem
from baracuda.checking.problems.subject import Subject
from baracuda.codegen.spec.load import load_folder
from baracuda.runtime import Unsupported

torch = pytest.importorskip("torch")
ft = pytest.importorskip("baracuda.frontends.torch")
signatures = pytest.importorskip("baracuda.frontends.torch.signature")

forward_ad = torch.autograd.forward_ad
LOADED = load_folder(SPECS)
SUBJECTS = {op: Subject(one, LOADED, "baracuda.generated") for op, one in LOADED.items()}
FORWARDS = sorted(op for op, s in SUBJECTS.items() if s.spec.direction == "forward")
GRADIENTS = {s.spec.gradient.of: s.spec.gradient for s in SUBJECTS.values() if s.spec.gradient}
DIFFERENTIABLE = sorted(GRADIENTS)
DOUBLES = [op for op in FORWARDS if "f64" in SUBJECTS[op].spec.dtypes]
SMALL = 3000  # numbers that the host device computes in no time


def signature(op: str) -> Any:
    return signatures.Signature(SUBJECTS[op].plan)


def overload(op: str) -> Any:
    return getattr(torch.ops.baracuda, op).default


def wrt(op: str) -> set[str]:
    return {*GRADIENTS[op].wrt.values()} if op in GRADIENTS else set()


def usual(op: str, element: str) -> str:
    return usual_element(SUBJECTS[op].spec.dtypes, element)


@cache
def problems(op: str, element: str) -> tuple[Problem, ...]:
    """The smallest problem of an op that has several of everything, and a small one of the most arguments."""
    made = [Problem.of(SUBJECTS[op], case, usual(op, element)) for case in SUBJECTS[op].spec.tests.cases]
    several = sorted((p for p in made if p.several), key=lambda p: p.size)
    most = max((p for p in several if p.size <= SMALL), key=lambda p: len(p.arguments), default=several[0])
    return tuple({id(p): p for p in (several[0], most)}.values())


def numbers(problem: Problem, *, device: str = "cpu") -> dict[str, Any]:
    return {n: tensor_of(np.array(a)).to(device) for n, a in problem.draw().items()}


def tensor_of(array: np.ndarray[Any, Any]) -> Any:
    """The same numbers as a tensor, of types that NumPy lacks too."""
    if array.dtype.kind != "V":
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(f"u{array.itemsize}")).view(getattr(torch, array.dtype.name))


TYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}


def given(problem: Problem) -> dict[str, Any]:
    known = signature(problem.spec.op)
    element = {"element": TYPES[problem.element.value]} if known.takes_element else {}
    return {name: problem.values[name] for name in known.parameters} | element


def called(problem: Problem, tensors: Mapping[str, Any], compiled: Any = None) -> dict[str, Any]:
    """What the op gives, by output."""
    known = signature(problem.spec.op)
    found = (compiled or overload(known.name))(*(tensors.get(a.name) for a in known.inputs), **given(problem))
    return by_output(known, found)


def by_output(known: Any, found: Any) -> dict[str, Any]:
    listed = (found,) if isinstance(found, torch.Tensor) else found or ()
    return {a.name: tensor for a, tensor in zip(known.outputs, listed, strict=True)}


def needing(problem: Problem, tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {n: t.detach().requires_grad_(n in wrt(problem.spec.op)) for n, t in tensors.items()}


def slopes(problem: Problem, outputs: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Gradients of a weighted sum of all outputs that have some."""
    torch.manual_seed(0)
    differentiable = [o for o in outputs.values() if o.requires_grad]
    weighed = [(o * torch.randn(o.shape, dtype=torch.float64).to(o)).sum().real for o in differentiable]
    names = [n for n, t in tensors.items() if t.requires_grad]
    found = torch.autograd.grad(sum(weighed), [tensors[n] for n in names])
    return dict(zip(names, found, strict=True))


# ------------------------------------------------------------------------------------------------------ what shapes say


@pytest.mark.parametrize("op", few(SUBJECTS, 20))
def test_a_descriptor_follows_from_shapes_and_keywords(op: str) -> None:
    known = signature(op)
    for case in SUBJECTS[op].spec.tests.cases:
        problem = Problem.of(SUBJECTS[op], case, SUBJECTS[op].spec.dtypes[0])
        there = [a.name for a in known.inputs if problem.plan.present(a.name)]
        shown = {name: torch.empty(problem.shape_of(name), device="meta") for name in there}
        tensors = {a.name: shown.get(a.name) for a in known.inputs}
        fields = known.fields(tensors, {n: value for n, value in given(problem).items() if n != "element"})
        assert SUBJECTS[op].plan.DESCRIPTOR(element=problem.element, **fields) == problem.descriptor


@pytest.mark.parametrize("op", few(SUBJECTS, 20))
def test_the_fake_op_says_what_the_plan_does(op: str) -> None:
    from baracuda.frontends.torch.op import Op

    for case in SUBJECTS[op].spec.tests.cases:
        problem = Problem.of(SUBJECTS[op], case, usual(op, "f16"))
        held = {a.name: signatures.dtype_of(problem.plan.elements_of(a.name)[0]) for a in signature(op).inputs}
        tensors = [
            torch.empty(problem.shape_of(n), dtype=dtype, device="meta") if problem.plan.present(n) else None
            for n, dtype in held.items()
        ]
        found = Op(signature(op)).trace(*tensors, **given(problem))
        for name, tensor in by_output(signature(op), found).items():
            assert tensor.shape == (problem.shape_of(name) if problem.plan.present(name) else (0,))
            assert tensor.dtype == signatures.dtype_of(problem.plan.elements_of(name)[0])


# ------------------------------------------------------------------------------------------------- values and gradients


@pytest.mark.parametrize("op", DOUBLES)
def test_values_and_gradients_are_torchs(op: str) -> None:
    for problem in problems(op, "f64"):
        drawn = numbers(problem)
        ours, theirs = needing(problem, drawn), needing(problem, {n: t.clone() for n, t in drawn.items()})
        there = FORWARD[op](torch, problem.values, theirs)
        here = called(problem, ours)
        for name in here:
            if problem.plan.present(name):
                torch.testing.assert_close(here[name], there[name].reshape(here[name].shape), rtol=1e-9, atol=1e-9)
        if op in DIFFERENTIABLE:
            kept = {n: there[n] for n, t in here.items() if t.requires_grad and problem.plan.present(n)}
            torch.testing.assert_close(
                slopes(problem, {n: here[n] for n in kept}, ours), slopes(problem, kept, theirs), rtol=1e-8, atol=1e-8
            )


def test_rows_in_8_bit_floats_are_torchs() -> None:
    x = torch.randn(5, 64, dtype=torch.bfloat16)
    q, scale = torch.ops.baracuda.fp8_quantize(x)
    torch.testing.assert_close(scale, x.float().abs().amax(1, keepdim=True) / 448)
    assert torch.equal(q, (x.float() * (1 / scale)).to(torch.float8_e4m3fn))


@pytest.mark.parametrize("op", [op for op in DIFFERENTIABLE if op in DOUBLES])
def test_gradcheck(op: str) -> None:
    problem = problems(op, "f64")[0]
    tensors = needing(problem, numbers(problem))
    names = list(tensors)

    def outputs(*arrays: Any) -> Any:
        return tuple(o for o in called(problem, dict(zip(names, arrays, strict=True))).values() if o.requires_grad)

    assert torch.autograd.gradcheck(outputs, [tensors[n] for n in names], fast_mode=True)


@pytest.mark.parametrize("op", few(FORWARDS, 10))
def test_opcheck(op: str) -> None:
    for problem in problems(op, "f32"):
        tensors = needing(problem, numbers(problem))
        arguments = [tensors.get(a.name) for a in signature(op).inputs]
        torch.library.opcheck(overload(op), arguments, given(problem))


@pytest.mark.parametrize("op", few(sorted({*SUBJECTS} - {*FORWARDS}), 10))
def test_there_is_no_second_derivative(op: str) -> None:
    problem = problems(op, "f32")[0]
    present = [a.name for a in signature(op).inputs if problem.plan.present(a.name)]
    whole = {n: t for n, t in numbers(problem).items() if not t.is_floating_point()}
    whole |= {n: torch.zeros(problem.shape_of(n), dtype=torch.int32) for n in present if n in problem.saved}
    whole = {n: t for n, t in whole.items() if problem.plan.elements_of(n)[0] not in TYPES}
    types = {n: TYPES[problem.plan.elements_of(n)[0]] for n in present if n not in whole}
    like = {n: torch.rand(problem.shape_of(n), dtype=types[n]) if n in types else whole[n] for n in present}
    found = called(problem, {n: t.requires_grad_(t.is_floating_point()) for n, t in like.items()})
    with pytest.raises(NotImplementedError, match=f"{op} has no gradient"):
        next(o for o in found.values() if o.requires_grad).sum().real.backward()


def test_a_tensor_without_a_gradient_is_not_taken_for_a_constant() -> None:
    q, mask = torch.rand(1, 1, 2, 8), torch.zeros(1, 1, 2, 2, requires_grad=True)
    with pytest.raises(NotImplementedError, match="flash_sdpa has no gradient with respect to 'mask'; detach it"):
        torch.ops.baracuda.flash_sdpa(q, q, q, mask, scale=1.0, is_causal=False)


def test_a_gradient_of_a_gradient_is_refused() -> None:
    x = torch.rand(3, 5, requires_grad=True)
    (slope,) = torch.autograd.grad(torch.ops.baracuda.softmax(x, softmax_axis=1)[:, 0].sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="softmax_backward has no gradient"):
        slope.sum().backward()


def test_outputs_that_are_not_wanted_have_no_gradient() -> None:
    weight = torch.rand(4, 3, requires_grad=True)
    y, states = torch.ops.baracuda.causal_conv1d(torch.rand(2, 4, 5), weight, use_silu=False)
    (y.sum() + states.sum()).backward()
    assert weight.grad.shape == (4, 3)


@pytest.mark.parametrize("op", DIFFERENTIABLE)
def test_one_input_alone_may_need_a_gradient(op: str) -> None:
    problem = problems(op, "f64")[0]
    drawn = numbers(problem)
    wanted = slopes(problem, called(problem, every := needing(problem, drawn)), every)
    for name in wanted:
        alone = drawn | {name: drawn[name].detach().clone().requires_grad_()}
        torch.testing.assert_close(slopes(problem, called(problem, alone), alone), {name: wanted[name]})


def test_what_changes_its_inputs_is_no_part_of_a_graph() -> None:
    def update(weight: Any) -> None:
        torch.ops.baracuda.causal_conv1d_update(torch.rand(2, 4, 1), weight, None, states, use_silu=False)

    states, other = torch.rand(2, 4, 2), torch.rand(2, 4, 2, requires_grad=True)
    weight = torch.rand(4, 3, requires_grad=True)
    with pytest.raises(NotImplementedError, match=r"update has no gradient; call it under torch\.no_grad\(\)"):
        update(weight)
    product = states * other
    with torch.no_grad():
        update(weight)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


@pytest.mark.parametrize("op", DIFFERENTIABLE)
def test_nothing_gives_nothing(op: str) -> None:
    """Where inputs or outputs have no elements, gradients are 0 or have none."""
    for problem in empty_problems(SUBJECTS[op], GRADIENTS[op], "f32"):
        tensors = needing(problem, numbers(problem))
        found = slopes(problem, called(problem, tensors), tensors)
        assert all(g.shape == tensors[n].shape and not g.any() for n, g in found.items())


# ---------------------------------------------------------------------------------------------------------- compilation


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("op", DIFFERENTIABLE)
def test_compilation_breaks_no_graph(op: str, dynamic: bool) -> None:
    torch._dynamo.reset()
    problem = problems(op, "f32")[0]
    tensors, again = needing(problem, numbers(problem)), needing(problem, numbers(problem))
    call = overload(op)
    compiled = torch.compile(lambda *a, **k: call(*a, **k), backend="aot_eager", fullgraph=True, dynamic=dynamic)
    here, there = called(problem, tensors, compiled), called(problem, again)
    torch.testing.assert_close(here, there, rtol=0, atol=0)
    torch.testing.assert_close(slopes(problem, here, tensors), slopes(problem, there, again), rtol=0, atol=0)


def test_other_extents_compile_nothing_new() -> None:
    torch._dynamo.reset()
    counter = pytest.importorskip("torch._dynamo.testing").CompileCounterWithBackend("aot_eager")
    norm = torch.compile(
        lambda x, g: torch.ops.baracuda.rms_norm(x * 2, g, norm_axes_mask=2, eps=1e-6)[0].sum(),
        backend=counter,
        fullgraph=True,
        dynamic=True,
    )
    for rows, cols in ((3, 16), (5, 24), (7, 32)):
        x, g = torch.rand(rows, cols, requires_grad=True), torch.rand(cols, requires_grad=True)
        norm(x, g).backward()
    assert counter.frame_count == 1


def test_tracers_know_how_outputs_lie_in_memory() -> None:
    torch._dynamo.reset()
    call, weight = torch.ops.baracuda.causal_conv1d, torch.rand(4, 3)
    through = lambda x: call(x.transpose(1, 2), weight, use_silu=False)[0].transpose(1, 2) * 2  # noqa: E731
    compiled = torch.compile(through, backend="aot_eager", fullgraph=True, dynamic=True)
    for shape in ((2, 6, 4), (3, 7, 4)):
        here, there = compiled(x := torch.rand(shape)), through(x)
        assert torch.equal(here, there) and here.is_contiguous() and there.is_contiguous()


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # of inductor itself
def test_inductor_gives_ops_what_they_are_traced_with() -> None:
    torch._dynamo.reset()
    through = lambda x: torch.ops.baracuda.softmax((x + 1).mT[:, None].expand(8, 3, 4), softmax_axis=-1)  # noqa: E731
    here, there = torch.compile(through, fullgraph=True)(x := torch.rand(4, 8)), through(x)
    torch.testing.assert_close(here, there, rtol=0, atol=0)
    assert here.stride() == there.stride()


def test_extents_that_depend_on_values_compile() -> None:
    torch._dynamo.reset()
    through = lambda x: torch.ops.baracuda.softmax(x[x[:, 0] > 0.5], softmax_axis=1) * 2  # noqa: E731
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(through, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x := torch.rand(9, 4)), through(x), rtol=0, atol=0)


def test_autocast_compiles() -> None:
    torch._dynamo.reset()
    linear, gain = torch.nn.Linear(16, 16), torch.rand(16)

    def block(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            y = torch.ops.baracuda.rms_norm(linear(x), gain, norm_axes_mask=2, eps=1e-6)[0]
            q, k = x.view(1, 1, 4, 16), y.view(1, 1, 4, 16)
            return torch.ops.baracuda.flash_sdpa(q, k, k, scale=0.25, is_causal=True)[0]

    x = torch.rand(4, 16, requires_grad=True)
    here, there = torch.compile(block, backend="aot_eager", fullgraph=True)(x), block(x)
    assert here.dtype == torch.bfloat16
    torch.testing.assert_close(here, there, rtol=0, atol=0)
    torch.testing.assert_close(*(torch.autograd.grad(y.sum(), x) for y in (here, there)), rtol=0, atol=0)


# ------------------------------------------------------------------------------------------------------- torch's modes


def test_autocast_leaves_what_the_op_takes_and_makes_others_agree() -> None:
    x, gain = torch.rand(4, 16, dtype=torch.bfloat16), torch.rand(16)
    q, k = torch.rand(1, 1, 4, 16), torch.rand(1, 1, 4, 16, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        y, rms = torch.ops.baracuda.rms_norm(x, gain, norm_axes_mask=2, eps=1e-6)
        attended, _ = torch.ops.baracuda.flash_sdpa(q, k, k, k.new_zeros(1, 1, 4, 4), scale=0.25, is_causal=False)
    assert (y.dtype, rms.dtype, attended.dtype) == (torch.bfloat16, torch.float32, torch.bfloat16)
    with pytest.raises(Unsupported, match="'k' must hold f32, got bf16"):
        torch.ops.baracuda.flash_sdpa(q, k, k, scale=0.25, is_causal=False)


def test_gradients_have_the_type_of_what_they_are_of() -> None:
    x = torch.rand(4, 16, dtype=torch.bfloat16, requires_grad=True)
    gain = torch.rand(2, 8, requires_grad=True)
    torch.ops.baracuda.rms_norm(x.view(4, 2, 8), gain, norm_axes_mask=6, eps=1e-6)[0].sum().backward()
    assert (x.grad.dtype, gain.grad.dtype, gain.grad.shape) == (torch.bfloat16, torch.float32, (2, 8))


@pytest.fixture
def deterministic() -> Any:
    yield torch.use_deterministic_algorithms
    torch.use_deterministic_algorithms(False)


def test_deterministic_algorithms_are_asked_for(deterministic: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel of ours adds in an order that changes, so one is made to look as if it did."""
    plan = SUBJECTS["softmax"].plan
    known = plan.select

    def select(descriptor: Any, preference: Any = None, **rest: Any) -> Any:
        if preference is not None and "deterministic" in preference.rungs:
            raise Unsupported("does not promise deterministic")
        return known(descriptor, preference, **rest)

    x = torch.rand(3, 5)
    monkeypatch.setattr(plan, "select", select)
    wanted = torch.ops.baracuda.softmax(x, softmax_axis=-1)
    deterministic(True)
    with pytest.raises(Unsupported, match="does not promise deterministic"):
        torch.ops.baracuda.softmax(x, softmax_axis=-1)
    deterministic(True, warn_only=True)
    with pytest.warns(UserWarning, match="softmax is not deterministic"):
        assert torch.equal(torch.ops.baracuda.softmax(x, softmax_axis=-1), wanted)


def test_outputs_lie_in_memory_as_inputs_do() -> None:
    x = torch.rand(2, 6, 4).transpose(1, 2)
    y, none = torch.ops.baracuda.causal_conv1d(x, torch.rand(4, 3), use_silu=False)
    assert y.stride() == x.stride() and none.shape == (0,)
    assert torch.ops.baracuda.softmax(x[:, :1].expand(2, 4, 6), softmax_axis=-1).is_contiguous()


def test_wrong_shapes_are_told_as_plans_tell_them() -> None:
    with pytest.raises(Exception, match="CausalConv1dPlan: 'x' must have at least 3 axes, got shape"):
        torch.ops.baracuda.causal_conv1d(torch.rand(2, 3), torch.rand(2, 3), use_silu=False)
    with pytest.raises(Exception, match="RMSNormPlan: 'gamma' must have shape"):
        torch.ops.baracuda.rms_norm(torch.rand(2, 3), torch.rand(4), norm_axes_mask=2, eps=0.0)


def test_tracers_refuse_tensors_on_several_devices() -> None:
    with pytest.raises(Exception, match=r"rms_norm: tensors are on \['cpu', 'meta'\]; move them to one device"):
        torch.ops.baracuda.rms_norm(torch.rand(2, 3), torch.rand(3, device="meta"), norm_axes_mask=2, eps=0.0)


def test_tensors_of_inference_are_computed_with() -> None:
    with torch.inference_mode():
        states = torch.rand(2, 4, 2)
        y = torch.ops.baracuda.causal_conv1d_update(torch.rand(2, 4, 1), torch.rand(4, 3), None, states, use_silu=False)
    assert y.is_inference()
    assert torch.ops.baracuda.softmax(states, softmax_axis=1).sum(1).allclose(torch.ones(2, 2))


def test_vmap_maps_what_changes_nothing() -> None:
    x, softmax = torch.rand(3, 4, 5), torch.ops.baracuda.softmax
    assert torch.equal(torch.vmap(lambda one: softmax(one, softmax_axis=1))(x), softmax(x, softmax_axis=2))


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # of torch.func itself
def test_what_torch_func_cannot_differentiate_is_told() -> None:
    through = lambda x: torch.ops.baracuda.softmax(x, softmax_axis=0)[0]  # noqa: E731
    x = torch.rand(3)
    for transformed in (torch.func.grad(through), lambda x: torch.func.jvp(through, (x,), (x,))):
        with pytest.raises(NotImplementedError, match=r"softmax is differentiated by torch\.autograd alone"):
            transformed(x)
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="softmax has no derivative in forward mode"):
        through(forward_ad.make_dual(x, x))


def test_threads_call_together() -> None:
    def gradients(rows: int) -> Any:
        x = torch.ones(rows, 5, requires_grad=True)
        torch.ops.baracuda.softmax(x, softmax_axis=1)[:, 0].sum().backward()
        return x.grad[:, 0]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(gradients, [1, 2, 3] * 8))
    assert all(torch.allclose(g, torch.full_like(g, 0.16)) for g in found)


def test_halves_of_an_affine_pair_are_not_ignored() -> None:
    with pytest.raises(Exception, match="'beta' is required when has_affine=True"):
        torch.ops.baracuda.layer_norm(torch.rand(2, 3), torch.rand(3), norm_axes_mask=2, eps=0.0)


def test_a_package_of_ones_own_becomes_ops_of_a_namespace_of_ones_own() -> None:
    names = ("SoftmaxPlan", "SoftmaxBackwardPlan", "SoftmaxDescriptor")
    package = ModuleType("mine")
    vars(package).update({"MODULES": dict.fromkeys(names), **{n: getattr(baracuda.generated, n) for n in names}})
    assert ft.register(package, "baracuda_test") == ("softmax", "softmax_backward")
    x = torch.rand(3, 5, requires_grad=True)
    torch.ops.baracuda_test.softmax(x, softmax_axis=1)[:, 0].sum().backward()
    assert x.grad is not None
