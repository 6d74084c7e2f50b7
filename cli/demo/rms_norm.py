"""The demo's workload: RMSNorm forward and backward through their plans, as in a training step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from baracuda.codegen.project import PACKAGE, plans_of
from baracuda.runtime import RowPlan

from .activations import Arrays, activations
from .machines import Machine

EPS = 1e-6  # the value the forward's spec tests with: a gradient's oracle takes it from there
LAST_AXIS = 0b10


@dataclass(frozen=True, slots=True)
class Pass:
    """A plan, its inputs and outputs, and the seconds of one run."""

    plan: RowPlan[Any]
    inputs: Arrays
    outputs: Arrays
    seconds: float

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors: the minimum memory traffic."""
        return sum(array.nbytes for array in (*self.inputs.values(), *self.outputs.values()))


def passes(rows: int, cols: int, on: Machine) -> list[Pass]:
    """Run the forward, then the backward with the values saved by the forward."""
    plans: Any = plans_of(PACKAGE)
    problem = {"input_shape": (rows, cols), "norm_axes_mask": LAST_AXIS, "has_gamma": True, "element": "bf16"}
    drawn = activations(rows, cols)
    x, gamma, dy = drawn["x"], drawn["gamma"], drawn["dy"]
    plan = plans.RMSNormPlan.select(plans.RMSNormDescriptor(**problem, eps=EPS), device=on.name)
    forward = _run(plan, {"x": x, "gamma": gamma}, on)
    plan = plans.RMSNormBackwardPlan.select(plans.RMSNormBackwardDescriptor(**problem), device=on.name)
    saved = forward.outputs["rms"]
    return [forward, _run(plan, {"dy": dy, "x": x, "gamma": gamma, "rms": saved}, on)]


def _run(plan: Any, inputs: Arrays, on: Machine) -> Pass:
    written = {
        name: on.empty(plan.shapes()[name][0], plan.elements_of(name)[0].row.numpy)
        for name, argument in plan.ARGUMENTS.items()
        if argument.written
    }
    read = {name: on.put(array) for name, array in inputs.items()}
    launch = plan.bind(**read, **written, workspace=on.empty((plan.workspace_bytes,), np.uint8))
    launch()
    seconds = on.seconds(launch)
    return Pass(plan, inputs, {name: on.get(array) for name, array in written.items()}, seconds)
