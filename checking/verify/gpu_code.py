"""What NVRTC compiles for GPUs against what the host device runs: both sides of what headers distinguish."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from baracuda.runtime import KernelSku

from ..oracles.accuracy import as_float
from ..oracles.oracle import with_saved
from ..problems.problem import Arrays, Problem
from ..ptx.device import ptx_mode
from ..trials.arrange import arrange, same_bits
from ..trials.memory import memory_of

OLDEST, NEWEST = "sm_80", "sm_90"  # of the architectures that headers distinguish and the model of PTX knows
_SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0)
_HALF, _WIDE = 0.25, 16.0  # unit roundoffs that results of half types and of others may differ by, root mean square
_NOISE = 1.5  # times the host device's error, where that is all that an output is


def targets_of(sku: KernelSku, *, sampled: bool) -> tuple[str, ...]:
    """The architectures to compile a kernel for: OLDEST if it runs there, and NEWEST; of a sample's, one of them."""
    if int(sku.arch[3:]) > int(OLDEST[3:]):
        return (NEWEST,)
    both = OLDEST, NEWEST
    return (both[zlib.crc32(sku.symbol.encode()) % 2],) if sampled else both


def check_gpu_code(problem: Problem, target: str) -> None:
    """PTX for `target` gives the host device's results: the same bits where promised, else all but the last ones."""
    usual, exact = with_saved(problem, problem.draw(seed=21), problem.stored_types(), problem.draw_hidden(seed=21))
    stable = {n for n, rungs in problem.plan.PROMISES.items() if "bit_stable_across_arch" in rungs}
    for label, arrays in (("usual", usual), ("special", _special(problem, usual))):
        host = arrange(problem, arrays, memory_of("host")).run()
        with ptx_mode(target) as memory:
            gpu = arrange(problem, arrays, memory).run()
        for name, result in problem.results.items():
            expected = exact[result] if label == "usual" else None
            reason = _differs(problem, name, host[name], gpu[name], expected, is_stable=name in stable)
            if reason:
                raise AssertionError(f"PTX for {target}, {label} inputs: {name!r} {reason}")


def _special(problem: Problem, usual: Arrays) -> Arrays:
    """A few elements of each input are NaN, infinities and zeros."""
    rng = np.random.default_rng(22)
    arrays = dict(usual)
    for name, array in sorted(usual.items()):
        if problem.stored_types()[name].row.unit_roundoff and array.dtype.kind != "c" and array.size:
            arrays[name] = array.copy()
            places = rng.integers(array.size, size=len(_SPECIAL) if array.size >= 4 * len(_SPECIAL) else 1)
            arrays[name].flat[places] = rng.permutation(np.array(_SPECIAL))[: places.size].astype(array.dtype)
    return arrays


def _differs(
    problem: Problem, name: str, host: np.ndarray[Any, Any], gpu: np.ndarray[Any, Any], exact: Any, *, is_stable: bool
) -> str:
    """How an output differs from the host device's by more than it may, or ""."""
    element = problem.stored_types()[name].row
    if is_stable or not element.unit_roundoff:
        others = int(np.sum(host != gpu))
        return "" if same_bits(host, gpu) else f"has {others} elements of other bits than on the host device"
    if host.dtype.kind == "c":
        host, gpu = host.view(host.real.dtype), gpu.view(gpu.real.dtype)
    a, b = (np.asarray(as_float(array), np.float64) for array in (host, gpu))
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(b[finite]).all():
        return "is not finite in other places than on the host device"
    allowed = (_HALF if element.bytes <= 2 else _WIDE) * element.unit_roundoff * _rms(a[finite])
    difference = _rms(b[finite] - a[finite])
    if difference <= allowed:
        return ""
    if exact is not None:
        expected = np.asarray(exact, np.float64)
        errors = [_rms(problem.flat(name, array) - expected) for array in (a, b)]
        if errors[1] <= _NOISE * errors[0]:
            return ""
    return f"differs from the host device's by {difference:.3g} (root mean square), allowed are {allowed:.3g}"


def _rms(values: np.ndarray[Any, Any]) -> float:
    return float(np.sqrt(np.mean(values**2))) if values.size else 0.0
