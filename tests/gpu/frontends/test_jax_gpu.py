"""Invariant: on a GPU, functions of jax arrays give what they give elsewhere, on XLA's stream and in its graphs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import baracuda.runtime as rt
from baracuda.runtime.arrays.element import ELEMENTS

jax = pytest.importorskip("jax")

from host.frontends.test_jax import (  # noqa: E402
    FORWARDS,
    GRADIENTS,
    SUBJECTS,
    bits,
    bj,
    caller,
    drawn,
    jnp,
    moved,
    of_ops,
    problem_of,
    slopes,
)
from host.ops.test_functions import OF_CUPY  # noqa: E402


def gpus() -> Any:
    try:
        return jax.devices("cuda")
    except RuntimeError:  # jax knows no such platform
        return []


pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not gpus(), reason="jax sees no CUDA device")]


@pytest.fixture(autouse=True)
def on_a_gpu() -> Iterator[None]:
    """In every thread, and with doubles."""
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_default_device", gpus()[0])
    yield
    jax.config.update("jax_enable_x64", False)
    jax.config.update("jax_default_device", None)


# --------------------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("op", OF_CUPY)
def test_values_are_those_of_functions_bit_for_bit(op: str) -> None:
    cupy = pytest.importorskip("cupy")
    problem = problem_of(op)
    inputs = drawn(problem)
    there = of_ops(problem, {n: cupy.asarray(a) for n, a in inputs.items()})
    wanted = bits({n: cupy.asnumpy(a) for n, a in there.items()})
    for call in (caller(problem), jax.jit(caller(problem))):
        found = call(inputs)
        assert all(a.devices() == {gpus()[0]} for a in found.values())
        assert bits(found) == wanted


@pytest.mark.parametrize(
    ("op", "element"), [(op, e) for op in FORWARDS for e in ("f16", "bf16", "f64") if e in SUBJECTS[op].spec.dtypes]
)
def test_values_are_the_host_devices(op: str, element: str) -> None:
    problem = problem_of(op, element)
    inputs = drawn(problem)
    found, wanted = caller(problem)(inputs), of_ops(problem, inputs)
    off = {"f16": 1e-2, "bf16": 1e-1, "f64": 1e-9}[element]
    for name, array in found.items():
        assert array.dtype == wanted[name].dtype
        here, there = (np.asarray(a, np.float64) for a in (array, wanted[name]))
        np.testing.assert_allclose(here, there, rtol=off, atol=off * np.abs(there).max(initial=1))


@pytest.mark.parametrize("element", ELEMENTS)
def test_every_element_type_goes_through_xla(element: rt.ElementKind) -> None:
    x = np.arange(6).reshape(2, 3).astype(ELEMENTS[element].numpy)
    assert bits({"y": bj.repeat(x, repeats=(2, 1))}) == bits({"y": np.tile(x, (2, 1))})


@pytest.mark.parametrize("op", GRADIENTS)
def test_gradients_are_the_host_devices(op: str) -> None:
    problem = problem_of(op, "f64")
    inputs = drawn(problem)
    every = moved(problem, inputs)
    found = jax.jit(slopes(problem, inputs))(every)
    with jax.default_device(jax.devices("cpu")[0]):
        wanted = slopes(problem, inputs)(every)
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.parametrize("size", [64, 128])
def test_attention_of_tensor_maps(element: str, size: int) -> None:
    """On Hopper its kernels are told of tensors by maps, which are made when they are loaded, for memory to come."""
    dtype = ELEMENTS[rt.ElementKind(element)].numpy
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 4, 256, size)).astype(dtype)
    loss = lambda q, k, v: bj.flash_sdpa(q, k, v, is_causal=True).y.astype(jnp.float32).mean()  # noqa: E731
    found = jax.jit(jax.value_and_grad(loss, (0, 1, 2)))(q, k, v)

    def plain(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (a.astype(jnp.float64) for a in (q, k, v))
        scores = jnp.where(jnp.tri(256, dtype=bool), q @ k.swapaxes(2, 3) * size**-0.5, -jnp.inf)
        return (jax.nn.softmax(scores) @ v).mean()

    wanted = jax.jit(jax.value_and_grad(plain, (0, 1, 2)))(q, k, v)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
        assert np.abs(one - other).max() <= 0.05 * np.abs(other).max() + 1e-4


# ------------------------------------------------------------------------------------------- memory, streams and graphs


def test_plans_work_on_the_memory_of_xlas_arrays_and_on_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, seen = SUBJECTS["softmax"].plan, {}
    run = plan.run
    monkeypatch.setattr(plan, "run", lambda self, **given: (seen.update(given), run(self, **given)))
    x = jnp.ones((40, 50))
    y = bj.softmax(x)
    y.block_until_ready()
    assert (seen["x"].pointer, seen["y"].pointer) == (x.unsafe_buffer_pointer(), y.unsafe_buffer_pointer())
    assert seen["stream"] and seen["x"].device == "cuda:0"


def test_ops_wait_for_what_comes_before_and_others_for_them() -> None:
    @jax.jit
    def chain(x: Any) -> Any:
        for _ in range(10):
            x = bj.softmax(x @ x, softmax_axis=1) * 2 - 1
        return x

    @jax.jit
    def plain(x: Any) -> Any:
        for _ in range(10):
            x = jax.nn.softmax(x @ x, axis=1) * 2 - 1
        return x

    for seed in range(5):
        x = jax.random.normal(jax.random.key(seed), (1024, 1024), jnp.float64)
        np.testing.assert_allclose(chain(x), plain(x), rtol=1e-9, atol=1e-9)


GRAPH = """
import jax, jax.numpy as jnp, numpy as np
import baracuda.frontends.jax as bj
from baracuda.frontends.jax.launch import Launch
calls = 0
run = Launch.__call__
def counted(*arguments):
    global calls
    calls += 1
    run(*arguments)
Launch.__call__ = counted

def step(x, gain):
    loss = lambda x, gain: (bj.rms_norm(bj.softmax(x) * 3, gain).y ** 2).sum()
    dx, dgain = jax.grad(loss, (0, 1))(x, gain)
    return x - 0.01 * dx, gain - 0.001 * dgain

x, gain = jax.random.normal(jax.random.key(0), (64, 128)), jnp.ones(128)
fast = jax.jit(step, donate_argnums=(0, 1))
there = jax.device_put((np.array(x), np.array(gain)), jax.devices("cpu")[0])
for _ in range(20):
    x, gain = fast(x, gain)
seen = calls
for _ in range(20):
    there = jax.jit(step)(*there)
for here, other in zip((x, gain), there):
    np.testing.assert_allclose(here, other, rtol=1e-3, atol=1e-4)
print(seen)
"""


@pytest.mark.parametrize("graphs", [True, False])
def test_xla_records_calls_in_its_graphs_if_it_may(graphs: bool) -> None:
    """Four ops in twenty steps: of a graph, Python sees those that record it, else every one."""
    flag = "--xla_gpu_graph_min_graph_size=1" if graphs else "--xla_gpu_enable_command_buffer="
    set_to = {"PYTHONPATH": os.pathsep.join(sys.path), "XLA_FLAGS": flag, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    done = subprocess.run([sys.executable, "-c", GRAPH], env=os.environ | set_to, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    calls = int(done.stdout.split()[-1])
    assert calls < 80 if graphs else calls == 80


def test_threads_call_together() -> None:
    def gradient(rows: int) -> Any:
        return jax.jit(jax.grad(lambda x: bj.softmax(x)[:, 0].sum()))(jnp.ones((rows, 5)))[:, 0]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(gradient, [1, 2, 3] * 8))
    assert all(np.allclose(g, 0.16) for g in found)


def test_a_program_for_the_processor_runs_there() -> None:
    x = jax.device_put(np.random.default_rng(0).standard_normal((4, 6)), jax.devices("cpu")[0])
    y = jax.jit(bj.softmax)(x)
    assert y.devices() == x.devices() and np.allclose(y.sum(1), 1)


@pytest.mark.skipif(len(gpus()) < 2, reason="one CUDA device")
def test_each_device_computes_its_shard() -> None:
    P = jax.sharding.PartitionSpec
    mesh = jax.make_mesh((2,), ("rows",), devices=gpus()[:2])
    x = jax.random.normal(jax.random.key(0), (8, 300))
    there = jax.device_put(x, jax.sharding.NamedSharding(mesh, P("rows")))
    found = jax.jit(jax.shard_map(bj.softmax, mesh=mesh, in_specs=P("rows"), out_specs=P("rows")))(there)
    assert len(found.sharding.device_set) == 2
    np.testing.assert_array_equal(found, bj.softmax(x))
