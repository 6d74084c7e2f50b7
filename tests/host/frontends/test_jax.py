"""Invariant: every plan is a function of jax arrays, the same compiled, mapped and differentiated."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from repository import SAMPLES, empty_problems, few

import baracuda.generated
import baracuda.ops
import baracuda.runtime as rt
from baracuda.checking.oracles.oracle import Problem
from baracuda.codegen.emit.generate import generate
from baracuda.frontends.wiring import Wiring
from baracuda.runtime.arrays.element import ELEMENTS

jax = pytest.importorskip("jax")
bj = pytest.importorskip("baracuda.frontends.jax")
check_grads = pytest.importorskip("jax.test_util").check_grads
jnp, lax = jax.numpy, jax.lax

from host.ops.test_functions import SUBJECTS, drawn, problem_of  # noqa: E402

FORWARDS = sorted(op for op, s in SUBJECTS.items() if s.spec.direction == "forward")
GRADIENTS = {s.spec.gradient.of: s.spec.gradient for s in SUBJECTS.values() if s.spec.gradient}
SOFTMAX = ("SoftmaxPlan", "SoftmaxBackwardPlan", "SoftmaxDescriptor")


os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # where there is a GPU, other tests want some of it


@pytest.fixture(autouse=True)
def on_the_processor() -> Iterator[None]:
    """In every thread, and with doubles."""
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_default_device", jax.devices("cpu")[0])
    yield
    jax.config.update("jax_enable_x64", False)
    jax.config.update("jax_default_device", None)


def function(op: str) -> Any:
    return getattr(bj, op)


def keywords(problem: Problem) -> dict[str, Any]:
    known = function(problem.spec.op).signature
    element = {"element": problem.element} if known.takes_element else {}
    return {name: problem.values[name] for name in known.parameters} | element


def caller(problem: Problem) -> Callable[..., dict[str, Any]]:
    """The op as a function of its inputs by name, without keywords."""
    return lambda inputs: function(problem.spec.op).named(**inputs, **keywords(problem))


def bits(found: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """What must be equal for two results to be the same."""
    arrays = {name: np.asarray(a) for name, a in found.items()}
    return {name: (a.shape, a.dtype, a.tobytes()) for name, a in arrays.items()}


def of_ops(problem: Problem, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What `baracuda.ops` gives, and what inputs become that it changes."""
    op, given = getattr(baracuda.ops, problem.spec.op), {name: a.copy() for name, a in inputs.items()}
    found = op(**given, **keywords(problem))
    names = [a.name for a in op.signature.outputs if problem.plan.present(a.name)]
    outputs = found._asdict() if hasattr(found, "_asdict") else dict(zip(names, [found], strict=False))
    return outputs | {a.name: given[a.name] for a in op.signature.inputs if a.written}


def constant(op: str) -> set[str]:
    return set(problem_of(op).spec.outputs) - set(GRADIENTS[op].cotangents.values())


def slopes(problem: Problem, inputs: Mapping[str, Any]) -> Callable[..., dict[str, Any]]:
    """Gradients of a weighted sum of all outputs that have some, as a function of the inputs that have some."""
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal(problem.shape_of(name)) for name in problem.spec.outputs}

    def loss(moved: Mapping[str, Any]) -> Any:
        found = caller(problem)({**inputs, **moved})
        return sum(jnp.real(found[n] * weights[n]).sum() for n in found if n not in constant(problem.spec.op))

    return jax.grad(loss)


def moved(problem: Problem, inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: inputs[name] for name in GRADIENTS[problem.spec.op].wrt.values() if name in inputs}


# --------------------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("op", few(SUBJECTS, 20))
def test_values_are_those_of_functions_bit_for_bit(op: str, compiled: bool) -> None:
    problem = problem_of(op)
    inputs = drawn(problem)
    before = bits(inputs)
    call = jax.jit(caller(problem)) if compiled else caller(problem)
    assert bits(call(inputs)) == bits(of_ops(problem, inputs))
    assert bits(inputs) == before


@pytest.mark.parametrize("element", ELEMENTS)
def test_every_element_type_goes_through_xla(element: rt.ElementKind) -> None:
    x = np.arange(6).reshape(2, 3).astype(ELEMENTS[element].numpy)
    assert bits({"y": bj.repeat(x, repeats=(2, 1))}) == bits({"y": np.tile(x, (2, 1))})


def test_types_of_outputs_are_chosen() -> None:
    x = np.ones((2, 4), np.float32)
    assert bj.rms_norm(x, rms_dtype=jnp.float32).rms.dtype == np.float32
    half = bj.rms_norm(x.astype(jnp.bfloat16), rms_dtype="bf16")
    assert (half.y.dtype, half.rms.dtype) == (jnp.bfloat16, jnp.bfloat16)


@pytest.mark.parametrize("op", few(GRADIENTS, 10))
def test_nothing_gives_nothing(op: str) -> None:
    """Where inputs or outputs have no elements, gradients are 0 or have none."""
    for problem in empty_problems(SUBJECTS[op], GRADIENTS[op], "f32"):
        inputs = drawn(problem)
        found = slopes(problem, inputs)(moved(problem, inputs))
        assert all(g.shape == inputs[n].shape and not np.asarray(g).any() for n, g in found.items())


def test_a_changed_input_is_an_output() -> None:
    state, x, weight = np.ones((2, 4, 2), np.float32), np.ones((2, 4, 1), np.float32), np.ones((4, 3), np.float32)
    step = jax.jit(bj.causal_conv1d_update, donate_argnums=3)
    kept = jnp.asarray(state)
    y, after = bj.causal_conv1d_update(x, weight, None, kept)
    assert np.array_equal(kept, state) and np.array_equal(after, step(x, weight, None, jnp.asarray(2 - state))[1])
    assert np.array_equal(y, np.full((2, 4, 1), 3))


def test_plans_work_on_the_memory_of_xlas_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, seen = SUBJECTS["softmax"].plan, {}
    run = plan.run
    monkeypatch.setattr(plan, "run", lambda self, **given: (seen.update(given), run(self, **given)))
    x = jnp.ones((40, 50))
    y = bj.softmax(x)
    y.block_until_ready()
    assert (seen["x"].pointer, seen["y"].pointer) == (x.unsafe_buffer_pointer(), y.unsafe_buffer_pointer())


def test_programs_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = pytest.importorskip("baracuda.frontends.jax.launch")
    loaded: list[str] = []
    load = launch.Launch.load
    monkeypatch.setattr(launch.Launch, "load", lambda self, device: (loaded.append(device), load(self, device)))
    x = np.ones((3, 11), np.float32)
    for _ in range(3):
        bj.softmax(x)
    assert loaded == ["host"]
    assert not np.array_equal(bj.softmax(x), bj.softmax(x, softmax_axis=0)) and loaded == ["host", "host"]


# ------------------------------------------------------------------------------------------------------------ gradients


@pytest.mark.parametrize("op", few([op for op in GRADIENTS if "f64" in SUBJECTS[op].spec.dtypes], 10))
def test_gradients_are_the_slopes_of_the_values(op: str) -> None:
    problem = problem_of(op, "f64")
    inputs = drawn(problem)

    def outputs(moved: Mapping[str, Any]) -> dict[str, Any]:
        return {n: a for n, a in caller(problem)({**inputs, **moved}).items() if n not in constant(op)}

    check_grads(outputs, (moved(problem, inputs),), order=1, modes=["rev"])


@pytest.mark.parametrize("op", few(GRADIENTS, 10))
def test_gradients_are_the_same_compiled_and_one_alone(op: str) -> None:
    problem = problem_of(op)
    inputs = drawn(problem)
    every = moved(problem, inputs)
    found = slopes(problem, inputs)(every)
    assert bits(found) == bits(jax.jit(slopes(problem, inputs))(every))
    for name in found:
        alone = slopes(problem, inputs)({name: every[name]})
        np.testing.assert_allclose(alone[name], found[name], rtol=1e-5, atol=1e-6)
        assert alone[name].dtype == inputs[name].dtype


@pytest.mark.parametrize("served", [True, False])
def test_gradients_have_the_type_and_shape_of_what_they_are_of(served: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the backward gives that type, or does not."""
    if not served:
        known = Wiring.keywords
        monkeypatch.setattr(Wiring, "keywords", lambda self, f, wanted, _, allowed: known(self, f, wanted, {}, allowed))
    x, gain = jnp.ones((4, 2, 8), jnp.bfloat16), jnp.ones((2, 8), jnp.float32)
    loss = lambda x, gain: bj.rms_norm(x, gain, norm_axes_mask=6).y.astype(jnp.float32).sum()  # noqa: E731
    found = jax.grad(loss, (0, 1))(x, gain)
    assert [(g.shape, g.dtype) for g in found] == [((4, 2, 8), jnp.bfloat16), ((2, 8), jnp.float32)]


def test_what_is_saved_carries_no_gradient() -> None:
    assert not jax.grad(lambda x: bj.rms_norm(x).rms.sum())(jnp.ones((2, 3))).any()


def test_gradients_through_checkpoint_and_scan() -> None:
    x = jnp.asarray(np.random.default_rng(0).standard_normal((3, 5)))
    plain = lambda x: bj.softmax(bj.softmax(x))[:, 0].sum()  # noqa: E731
    layers = lambda x: lax.scan(lambda x, _: (jax.checkpoint(bj.softmax)(x), None), x, length=2)[0][:, 0].sum()  # noqa: E731
    assert np.array_equal(jax.grad(plain)(x), jax.jit(jax.grad(layers))(x))


# -------------------------------------------------------------------------------------------------------------- mapping


def stacked(inputs: Mapping[str, Any], names: Any) -> dict[str, Any]:
    """Three of each: as they are, halved and doubled, which integers stay."""
    made = {n: [a, a, a] if a.dtype.kind in "iub" else [a, a / 2, 2 * a] for n, a in inputs.items()}
    return {n: np.stack(made[n], axis=-1) if n in names else a for n, a in inputs.items()}


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("op", few(SUBJECTS, 20))
def test_a_map_is_a_loop(op: str, first: bool) -> None:
    """Of all inputs, along their last axis, and of the first alone."""
    problem = problem_of(op)
    inputs = drawn(problem)
    names = list(inputs)[:1] if first else list(inputs)
    many = stacked(inputs, names)
    found = jax.vmap(caller(problem), ({n: -1 if n in names else None for n in many},))(many)
    for i in range(3):
        one = {n: np.array(a[..., i], order="C") if n in names else a for n, a in many.items()}
        assert bits({n: a[i] for n, a in found.items()}) == bits(of_ops(problem, one))


@pytest.mark.parametrize("op", few(GRADIENTS, 10))
def test_gradients_of_a_map_are_a_loops(op: str) -> None:
    problem = problem_of(op)
    inputs = drawn(problem)
    every = moved(problem, inputs)
    many = {n: np.stack([a, -a, 2 * a]) for n, a in every.items()}
    found = jax.jit(jax.vmap(slopes(problem, inputs)))(many)
    for i in range(3):
        wanted = slopes(problem, inputs)({n: a[i] for n, a in many.items()})
        assert bits({n: a[i] for n, a in found.items()}) == bits(wanted)


@pytest.mark.parametrize(
    ("op", "shapes", "mapped", "calls"),
    [
        ("rms_norm", [(6,), (6,)], (0, None), 1),
        ("rms_norm", [(6,), (6,)], (0, 0), 3),
        ("softmax", [(4, 6)], (1,), 1),
        ("alibi", [(1, 2, 3, 3), (2,)], (0, None), 1),
        ("alibi", [(1, 2, 3, 3), (2,)], (None, 0), 3),
        ("flash_sdpa", [(2, 2, 3, 8)] * 3, (0, None, None), 1),
        ("causal_conv1d", [(2, 4, 5), (4, 3), (4,), (2, 4, 2)], (0, None, None, 0), 1),
        ("causal_conv1d_update", [(2, 4, 1), (4, 3), (4,), (2, 4, 2)], (0, None, None, 0), 1),
        ("repeat", [(2, 3)], (0,), 3),
    ],
)
def test_a_batch_is_one_call_where_it_may_be(op: str, shapes: Any, mapped: Any, calls: int) -> None:
    given = {"repeats": (1, 2)} if op == "repeat" else {}
    larger = [s if at is None else (*s[:at], 3, *s[at:]) for s, at in zip(shapes, mapped, strict=True)]
    arrays = [jnp.ones(s) for s in larger]
    text = str(jax.make_jaxpr(jax.vmap(lambda *a: function(op)(*a, **given), mapped))(*arrays))
    assert ("scan[" in text) == (calls > 1)


def test_a_batch_is_one_call_of_an_op_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose field for the axis has another name than ours have."""
    generate(SAMPLES, tmp_path / "mine_of_jax")
    monkeypatch.syspath_prepend(tmp_path)
    x = np.random.default_rng(0).standard_normal((3, 4, 6), np.float32)
    with rt.REGISTRY.apart():
        scale = bj.functions(import_module("mine_of_jax"))["scale"]
        mapped = jax.vmap(lambda x: scale(x, axis=0).y)
        assert "scan[" not in str(jax.make_jaxpr(mapped)(x))
        assert np.array_equal(mapped(x), np.stack([scale(one, axis=0).y for one in x]))


def test_packed_sequences_are_no_batch() -> None:
    x, ends = np.random.default_rng(0).standard_normal((3, 1, 4, 8)), np.array([0, 3, 8], np.int32)
    filtered = lambda x: bj.causal_conv1d(x, np.ones((4, 3)), cu_seqlens=ends)  # noqa: E731
    assert np.array_equal(jax.vmap(filtered)(x), np.stack([filtered(one) for one in x]))


def test_more_axes_than_there_may_be_are_mapped_one_by_one() -> None:
    x = np.random.default_rng(0).standard_normal((3, 1, 2, 1, 2, 1, 2, 1, 4))
    assert np.array_equal(jax.vmap(bj.softmax)(x), np.stack([bj.softmax(one) for one in x]))


# ----------------------------------------------------------------------------------------------------- threads, devices


def test_threads_call_together() -> None:
    def gradient(rows: int) -> Any:
        return jax.jit(jax.grad(lambda x: bj.softmax(x)[:, 0].sum()))(jnp.ones((rows, 5)))[:, 0]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(gradient, [1, 2, 3] * 8))
    assert all(np.allclose(g, 0.16) for g in found)


SHARDED = """
import jax, numpy as np
import baracuda.frontends.jax as bj
from jax.sharding import NamedSharding, PartitionSpec
mesh, whole = jax.make_mesh((2,), ("rows",)), PartitionSpec("rows")
x = jax.device_put(np.arange(24, dtype=np.float32).reshape(4, 6), NamedSharding(mesh, whole))
found = jax.jit(jax.shard_map(bj.softmax, mesh=mesh, in_specs=whole, out_specs=whole))(x)
assert len(found.sharding.device_set) == 2 and np.array_equal(found, bj.softmax(x))
gain = np.arange(6, dtype=np.float32)
loss = lambda x, gain: bj.rms_norm(x, gain).y.sum()
parts = lambda x, gain: jax.lax.psum(loss(x, gain), "rows")
parts = jax.shard_map(parts, mesh=mesh, in_specs=(whole, PartitionSpec()), out_specs=PartitionSpec())
for found, wanted in zip(jax.jit(jax.grad(parts, (0, 1)))(x, gain), jax.grad(loss, (0, 1))(np.asarray(x), gain)):
    assert np.allclose(found, wanted, rtol=1e-5)
"""


def script(code: str, *arguments: str, **environment: str) -> str:
    """What `code` prints, run as a program on the processor."""
    known = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu", **environment}
    done = subprocess.run([sys.executable, "-c", code, *arguments], env=known, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_device_computes_its_shard() -> None:
    script(SHARDED, XLA_FLAGS="--xla_force_host_platform_device_count=2")


KEPT = """
import sys, jax, numpy as np
import baracuda.frontends.jax as bj
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
eps = float(sys.argv[2])
print(float(jax.jit(lambda x: bj.rms_norm(x, eps=eps).y)(np.full((2, 3), 2, np.float32))[0, 0]))
"""


def test_programs_that_are_kept_call_the_plans_of_who_reads_them(tmp_path: Path) -> None:
    """To XLA they are the same, whatever eps is."""
    for eps, y in (("5", 2 / 3), ("12", 2 / 4)):
        assert np.isclose(float(script(KEPT, str(tmp_path), eps)), y)
    assert len(list(tmp_path.glob("jit_*lambda*-cache"))) <= 1  # jax 0.10 keeps none for the processor


# ---------------------------------------------------------------------------------------------------- what is refused

X = np.ones((2, 3), np.float32)
Q = np.ones((1, 1, 2, 8), np.float32)


def attended(mask: Any) -> Any:
    return bj.flash_sdpa(Q, Q, Q, mask).y.sum()


def updated(x: Any) -> Any:
    return bj.causal_conv1d_update(x, np.ones((4, 3)), None, np.ones((2, 4, 2))).y.sum()


def total(x: Any) -> Any:
    return bj.softmax(x)[:, 0].sum()


REFUSED: dict[str, tuple[type[Exception], Callable[[], Any]]] = {
    "RMSNormPlan: 'gamma' must have shape (3,)": (rt.InvalidProblem, lambda: bj.rms_norm(X, X)),
    "'beta' is required when has_affine=True": (rt.InvalidProblem, lambda: bj.layer_norm(X, X[0])),
    "FlashSdpaPlan: 'k' must hold f32": (rt.Unsupported, lambda: bj.flash_sdpa(Q, Q.astype(np.float16), Q)),
    "'x' must have at least 3 axes": (rt.InvalidProblem, lambda: bj.causal_conv1d(X, X)),
    "takes no 'y'; it takes eps, gamma, norm_axes_mask, rms_dtype, x": (
        rt.InvalidProblem,
        lambda: bj.rms_norm(X, y=X),
    ),
    "rms_norm takes x, gamma; got no 'x'": (rt.InvalidProblem, lambda: bj.rms_norm(gamma=X)),
    "needs element in (f32, f16, bf16, f64); got element='i32'": (rt.Unsupported, lambda: bj.softmax(X.astype("i4"))),
    "'eps' must be a float, got <jax.": (rt.InvalidProblem, lambda: jax.jit(bj.rms_norm)(X, eps=1.0)),
    "has no attribute 'gelu'; ops are ": (AttributeError, lambda: bj.gelu),
    "flash_sdpa has no gradient with respect to 'mask'; pass it what jax.lax.stop_gradient gives": (
        NotImplementedError,
        lambda: jax.grad(attended)(np.zeros((1, 1, 2, 2), np.float32)),
    ),
    "causal_conv1d_update has no gradient": (NotImplementedError, lambda: jax.grad(updated)(np.ones((2, 4, 1)))),
    "softmax_backward has no gradient": (
        NotImplementedError,
        lambda: jax.grad(lambda x: jax.grad(total)(x).sum())(X),
    ),
    "custom_vjp": (TypeError, lambda: jax.jvp(total, (X,), (X,))),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_is_refused_in_a_line(said: str) -> None:
    kind, call = REFUSED[said]
    with pytest.raises(kind) as caught:
        call()
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_mask_is_a_constant_where_it_is_said_to_be() -> None:
    mask = np.zeros((1, 1, 2, 2), np.float32)
    assert not jax.grad(lambda mask: attended(lax.stop_gradient(mask)))(mask).any()


def test_what_fails_in_a_program_is_said_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_self: Any, **_arguments: Any) -> None:
        raise rt.DriverError("no memory is left; free some")

    monkeypatch.setattr(SUBJECTS["softmax"].plan, "run", fail)
    with pytest.raises(Exception, match="\nDriverError: no memory is left; free some\n"):
        bj.softmax(np.ones((2, 7), np.float32)).block_until_ready()


def test_a_package_of_ones_own_becomes_functions() -> None:
    package = ModuleType("mine")
    made = {n: getattr(baracuda.generated, n) for n in SOFTMAX}
    vars(package).update({"MODULES": dict.fromkeys(SOFTMAX), **made})
    mine = bj.functions(package)
    assert list(mine) == ["softmax", "softmax_backward"]
    assert np.array_equal(jax.grad(lambda x: mine["softmax"](x)[0, 0])(X), jax.grad(lambda x: bj.softmax(x)[0, 0])(X))
