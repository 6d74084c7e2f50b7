"""An op's jax primitive; its plan is selected when a program is compiled for a kind of device."""

from __future__ import annotations

from functools import partial
from typing import Any, NoReturn

import jax
from jax.experimental.buffer_callback import buffer_callback
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

import baracuda.runtime as rt

from .batching import batched
from .call import Call
from .launch import Launch

_WORKSPACE = "workspace"


def primitive_of(name: str) -> Any:
    """A primitive that takes the arrays of a `Call`, its parameter, and returns the call's results."""
    primitive = Primitive(name)
    primitive.multiple_results = True
    primitive.def_impl(jax.jit(primitive.bind, static_argnames="call"))
    primitive.def_abstract_eval(_traced)
    for platform in ("cpu", "cuda"):
        mlir.register_lowering(primitive, mlir.lower_fun(partial(_lowered, platform)), platform)
    batching.primitive_batchers[primitive] = partial(batched, primitive)
    ad.primitive_jvps[primitive] = partial(_refused, name)
    return primitive


def _traced(*_arrays: Any, call: Call) -> list[Any]:
    return [jax.core.ShapedArray(shape, dtype) for _, shape, dtype in call.results()]


def _lowered(platform: str, *arrays: Any, call: Call) -> Any:
    """The plan for the first device of its kind, checked, loaded on all of them, and handed to XLA."""
    devices = _devices(platform)
    plan = call.plan.select(call.descriptor, device=devices[0])
    results = {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape, dtype in call.results()}
    if plan.workspace_bytes:
        results[_WORKSPACE] = jax.ShapeDtypeStruct((plan.workspace_bytes,), rt.ElementKind.U8.row.numpy)
    names = list(results)
    launch = Launch(plan, (*call.present, *names), arrays, tuple(results.values()))
    for device in devices:
        launch.load(device)
    outputs = buffer_callback(
        launch,
        tuple(results.values()),
        input_output_aliases={i: names.index(n) for i, n in enumerate(call.present) if n in names},
        command_buffer_compatible=True,
    )(*arrays)
    return outputs[: len(call.outputs)]


def _devices(platform: str) -> list[str]:
    if platform == "cpu":
        return ["host"]
    return [f"cuda:{device.local_hardware_id}" for device in jax.local_devices(backend=platform)]


def _refused(name: str, *_arrays: Any, **_rest: Any) -> NoReturn:
    raise NotImplementedError(f"{name} has no gradient; pass it what jax.lax.stop_gradient gives")
