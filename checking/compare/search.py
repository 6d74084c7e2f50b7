"""Adversarial search: inputs of a problem changed step by step towards larger errors, in units of the bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..oracles.accuracy import as_float
from ..problems.problem import Arrays
from ..trials.memory import Memory
from ..trials.trial import Trial

_Array = np.ndarray[Any, Any]


def hardest(trial_of: Callable[[Arrays], Trial], inputs: Arrays, steps: int, seed: int, memory: Memory) -> Trial:
    """The trial with the worst ratio of error to bound that `steps` changes of `inputs` lead to.

    A change is kept where the ratio does not fall; one beyond 1, or that raises, ends the search. Numbers stay between
    those that were drawn, so that an op's domain is kept.
    """
    rng = np.random.default_rng([seed, 2])
    best, best_inputs = trial_of(inputs), inputs
    names = [name for name, array in inputs.items() if array.dtype.kind not in "iub" and array.size > 1]
    worst = _ratio(best, memory)
    for _ in range(steps if names else 0):
        if not worst <= 1:
            break
        name = names[rng.integers(len(names))]
        changed = {**best_inputs, name: _changed(best_inputs[name], rng)}
        trial = trial_of(changed)
        ratio = _ratio(trial, memory)
        if not ratio < worst:
            best, best_inputs, worst = trial, changed, ratio
    return best


def _ratio(trial: Trial, memory: Memory) -> float:
    """The worst over all outputs; infinite where the trial raises, as its verdict will say again."""
    try:
        measured: Mapping[str, Any] = trial.measure(memory)
    except Exception:  # whatever a launch may raise
        return float("inf")
    return max((accuracy.worst_ratio for accuracy in measured.values()), default=0.0)


def _changed(array: _Array, rng: np.random.Generator) -> _Array:
    """Some numbers of an array, from one to all, become others of it, or lie somewhere between those and themselves."""
    flat = array.reshape(-1)
    count = int(np.ceil(flat.size ** rng.random()))
    places, others = rng.choice(flat.size, count, replace=False), rng.integers(flat.size, size=count)
    share = rng.choice([1.0, rng.random(), 2.0 ** -rng.integers(1, 24)])
    old, new = _wide(flat[places]), _wide(flat[others])
    changed = flat.copy()
    with np.errstate(all="ignore"):  # what lies between infinities is one of them
        between = old + (new - old) * share
    changed[places] = np.where(np.isfinite(between), between, new).astype(array.dtype)
    return changed.reshape(array.shape)


def _wide(numbers: _Array) -> _Array:
    return numbers.astype(np.complex128) if numbers.dtype.kind == "c" else as_float(numbers).astype(np.float64)
