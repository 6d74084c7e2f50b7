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


def passes(rows: int, cols: int, machine: Machine) -> list[Pass]:
    """Run the forward, then the backward with the values saved by the forward."""
    plans: Any = plans_of(PACKAGE)
    problem = {"input_shape": (rows, cols), "norm_axes_mask": LAST_AXIS, "has_gamma": True, "element": "bf16"}
    arrays = activations(rows, cols)
    x, gamma, dy = arrays["x"], arrays["gamma"], arrays["dy"]
    plan = plans.RMSNormPlan.select(plans.RMSNormDescriptor(**problem, eps=EPS), device=machine.name)
    forward = _run(plan, {"x": x, "gamma": gamma}, machine)
    plan = plans.RMSNormBackwardPlan.select(plans.RMSNormBackwardDescriptor(**problem), device=machine.name)
    saved = forward.outputs["rms"]
    return [forward, _run(plan, {"dy": dy, "x": x, "gamma": gamma, "rms": saved}, machine)]


def _run(plan: Any, inputs: Arrays, machine: Machine) -> Pass:
    written = {
        name: machine.empty(plan.shapes()[name][0], plan.elements_of(name)[0].row.numpy)
        for name, argument in plan.ARGUMENTS.items()
        if argument.written
    }
    read = {name: machine.put(array) for name, array in inputs.items()}
    launch = plan.bind(**read, **written, workspace=machine.empty((plan.workspace_bytes,), np.uint8))
    launch()
    seconds = machine.seconds(launch)
    return Pass(plan, inputs, {name: machine.get(array) for name, array in written.items()}, seconds)
