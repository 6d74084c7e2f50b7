"""Whether a file matches the problem that it names, and whether running it fits into memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import numpy as np

from baracuda.runtime import ElementKind, InvalidProblem, Unsupported
from baracuda.runtime.values import short_repr, some_of

from ..problems.problem import Problem

_ELEMENTS = 1 << 25  # of all tensors together
_RUN = 1 << 30  # elements of all runs together: seconds on the host device
_WORKSPACE = 1 << 30  # bytes

Numbers = Mapping[str, Mapping[str, np.ndarray[Any, Any]]]


def check_fits(problem: Problem, facts: Mapping[str, Any], numbers: Numbers) -> None:
    """Raise InvalidProblem, or Unsupported for an element type, for what is of another problem or too large to try."""
    _check_size(problem, facts["repeats"])
    inputs = {name: array.shape for name, array in numbers["inputs"].items()}
    needed = {name: problem.shape_of(name) for name in inputs.keys() & problem.arguments.keys()}
    if inputs != needed:
        raise InvalidProblem(f"has inputs {short_repr(inputs)}, {problem.spec.plan} takes {short_repr(needed)}")
    for part, verb in (("exact", "should be"), ("allowed", "may be")):
        if missing := problem.results.keys() - numbers[part].keys():
            raise InvalidProblem(f"does not say what {some_of(missing)} {verb}")
        for name in problem.results:
            _check_spread(problem, name, numbers[part][name].shape)
    _check_known("patterns", facts["patterns"], problem.arguments)
    _check_known("broadcast", facts["broadcast"], inputs)
    _check_known("choice", facts["choice"], problem.arguments)
    for name, axis in facts["broadcast"].items():
        if axis >= len(inputs[name]):
            raise InvalidProblem(f"has {name!r} broadcast along axis {axis}, its shape is {inputs[name]}")
    for name, kind in facts["choice"].items():
        if ElementKind.of(kind, f"element of {name!r}") not in (allowed := problem.plan.elements_of(name)):
            raise Unsupported(f"{name!r} must hold {' or '.join(allowed)}, got {kind}")


def _check_size(problem: Problem, repeats: int) -> None:
    elements = sum(prod(problem.shape_of(name)) for name in problem.arguments)
    if elements > _ELEMENTS:
        raise InvalidProblem(f"needs tensors of {elements} elements; {_ELEMENTS} at most are tried")
    if repeats * elements > _RUN:
        raise InvalidProblem(f"needs {repeats} runs on tensors of {elements} elements; {_RUN} in all are tried at most")
    if problem.plan.workspace_bytes > _WORKSPACE:
        raise InvalidProblem(f"needs {problem.plan.workspace_bytes} bytes of workspace; {_WORKSPACE} at most are tried")


def _check_spread(problem: Problem, name: str, shape: tuple[int, ...]) -> None:
    """One number may stand for several elements of an output, but not for more than it has."""
    flat = problem.flat(name, np.broadcast_to(np.int8(0), problem.shape_of(name))).shape
    if len(shape) > len(flat) or np.broadcast_shapes(shape, flat) != flat:
        raise InvalidProblem(f"has numbers of shape {shape} for {name!r}, which has {flat}")


def _check_known(label: str, names: Iterable[str], allowed: Iterable[str]) -> None:
    if unknown := set(names) - set(allowed):
        raise InvalidProblem(f"has {label} of {some_of(unknown)}, which the problem does not have")
