"""What NVRTC compiles for GPUs against what the host device runs: both sides of what headers distinguish."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from baracuda.runtime import KernelSku

from ..oracles.accuracy import as_float, numbers_of, parts
from ..oracles.oracle import with_saved
from ..problems.problem import Arrays, Problem
from ..ptx.device import ptx_mode
from ..trials.arrange import Patterns, arrange, same_bits
from ..trials.memory import gpu_text

OLDEST, NEWEST = "sm_80", "sm_90"  # of the architectures that headers distinguish and the model of PTX knows
_SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0)
_HALF, _WIDE = 0.25, 16.0  # unit roundoffs that results of half types and of others may differ by, root mean square
_LAYOUTS = ("shifted", "odd", "gap", "transposed", "step")
_STEEP = (-88.0, -89.0, -90.0)  # below the largest number, which is 0: their exponentials are subnormal
_NORMAL = 2.0**-126  # no smaller float is normal
_NOISE = 1.5  # times the host device's error, where that is all that an output is


def targets_of(sku: KernelSku, *, sampled: bool) -> tuple[str, ...]:
    """The architectures to compile a kernel for: OLDEST if it runs there, and NEWEST; of a sample's, one of them."""
    if not runs_on_oldest(sku):
        return (NEWEST,)
    both = OLDEST, NEWEST
    return (both[zlib.crc32(sku.symbol.encode()) % 2],) if sampled else both


def runs_on_oldest(sku: KernelSku) -> bool:
    """Whether a kernel runs on the first of the architectures."""
    return int(sku.arch[3:].rstrip("a")) <= int(OLDEST[3:])


def check_gpu_code(problem: Problem, target: str) -> None:
    """PTX for `target` gives the host device's results: the same bits where promised, else all but the last ones.

    Arrays are contiguous, but those with special values have another layout, chosen by a hash of kernel and problem.
    """
    drawn, types, hidden = problem.draw(seed=21), problem.stored_types(), problem.draw_hidden(seed=21)
    usual, exact = with_saved(problem, drawn, types, hidden)
    stable = {n for n, rungs in problem.plan.promises.items() if "bit_stable_across_arch" in rungs}
    layout = _LAYOUTS[zlib.crc32(f"{problem.plan.sku.symbol} {problem.descriptor}".encode()) % len(_LAYOUTS)]
    for label, arrays in (("usual", usual), ("special", _special(problem, usual))):
        patterns = dict.fromkeys(problem.arguments, layout if label == "special" else "contiguous")
        host, gpu = _on_both(problem, arrays, target, patterns)
        for name, result in problem.results.items():
            expected = exact[result] if label == "usual" else None
            reason = _differs(problem, name, host[name], gpu[name], expected, is_stable=name in stable)
            if reason:
                raise AssertionError(f"PTX for {target}, {label} inputs: {name!r} {reason}")
    if stable != {*problem.results} and not problem.spec.by_hand:  # those may flush, as `quick_exp2` does
        steep = {n: _steep(a) if types[n].row.unit_roundoff else a for n, a in drawn.items()}
        host, gpu = _on_both(problem, with_saved(problem, steep, types, hidden)[0], target, {})
        for name in problem.results.keys() - stable:
            a, b = (np.asarray(as_float(numbers_of(outputs[name])), np.float64) for outputs in (host, gpu))
            if flushed := int(np.sum((b == 0) & (a != 0) & (abs(a) < _NORMAL))):
                raise AssertionError(f"PTX for {target}: {name!r} has 0 for {flushed} subnormal numbers")


def _steep(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    values = np.empty_like(array)
    numbers_of(values)[:] = np.random.default_rng(23).choice(_STEEP, numbers_of(values).shape)
    if array.ndim:
        values[..., :1] = 0
    return values


def check_texts(problem: Problem) -> None:
    """What headers have for GPUs, inline PTX included, gives the bits of what they have for the host device."""
    drawn, types, hidden = problem.draw(seed=24), problem.stored_types(), problem.draw_hidden(seed=24)
    usual, _ = with_saved(problem, drawn, types, hidden)
    for target in (OLDEST, NEWEST) if runs_on_oldest(problem.plan.sku) else (NEWEST,):
        of_host, of_gpu = (_in_text(problem, usual, text, {}) for text in (None, target))
        for name in problem.results:
            if not same_bits(of_host[name], of_gpu[name]):
                others = int(np.sum(of_host[name] != of_gpu[name]))
                raise AssertionError(
                    f"{problem.plan.sku.symbol}: {name!r} has {others} elements of other bits with "
                    f"the headers' text for {target} than with the host device's"
                )


def _in_text(problem: Problem, arrays: Arrays, text: str | None, patterns: Patterns) -> Arrays:
    with gpu_text(text) as memory:
        return arrange(problem, arrays, memory, patterns=patterns).run()


def _on_both(problem: Problem, arrays: Arrays, target: str, patterns: Patterns) -> tuple[Arrays, Arrays]:
    """The outputs of the host device with its own text of headers, and of PTX."""
    host = _in_text(problem, arrays, None, patterns)
    with ptx_mode(target) as memory:
        return host, arrange(problem, arrays, memory, patterns=patterns).run()


def _special(problem: Problem, usual: Arrays) -> Arrays:
    """A few elements of each input are NaN, infinities and zeros."""
    rng = np.random.default_rng(22)
    arrays = dict(usual)
    for name, array in sorted(usual.items()):
        if problem.stored_types()[name].row.unit_roundoff and array.size:
            arrays[name] = array.copy()
            numbers = numbers_of(arrays[name])
            places = rng.integers(numbers.size, size=len(_SPECIAL) if numbers.size >= 4 * len(_SPECIAL) else 1)
            numbers[places] = rng.permutation(np.array(_SPECIAL))[: places.size].astype(numbers.dtype)
    return arrays


def _differs(
    problem: Problem, name: str, host: np.ndarray[Any, Any], gpu: np.ndarray[Any, Any], exact: Any, *, is_stable: bool
) -> str:
    """How an output differs from the host device's by more than it may, or ""."""
    element = problem.stored_types()[name].row
    if is_stable or not element.unit_roundoff:
        others = int(np.sum(host != gpu))
        return "" if same_bits(host, gpu) else f"has {others} elements of other bits than on the host device"
    a, b = (parts(array) if array.dtype.kind == "c" else as_float(array) for array in (host, gpu))
    a, b = (np.asarray(array, np.float64) for array in (a, b))
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(b[finite]).all():
        return "is not finite in other places than on the host device"
    allowed = (_HALF if element.bytes <= 2 else _WIDE) * element.unit_roundoff * _rms(a[finite])
    difference = _rms(b[finite] - a[finite])
    if difference <= allowed:
        return ""
    if exact is not None:
        of = [problem.flat(name, as_float(array)) - exact for array in (host, gpu)]
        errors = [_rms(np.asarray(np.abs(error), np.float64)) for error in of]
        if errors[1] <= _NOISE * errors[0]:
            return ""
    return f"differs from the host device's by {difference:.3g} (root mean square), allowed are {allowed:.3g}"


def _rms(values: np.ndarray[Any, Any]) -> float:
    return float(np.sqrt(np.mean(values**2))) if values.size else 0.0
