"""What kernels compute, as hashes: of the outputs whose bits are promised everywhere, and of the others."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..oracles.accuracy import numbers_of
from ..problems.problem import Arrays, Problem
from ..problems.subject import Subject
from ..trials.arrange import arrange
from ..trials.memory import Memory
from .numbers import draw
from .sample import sampled

STABLE = "bit_stable_across_arch"
_DIGITS = 12  # hexadecimal, of a hash
# C's functions that libraries compute with errors of their own: other bits in other versions, and on other processors.
_INEXACT = (
    "acos acosh asin asinh atan atan2 atanh cbrt cos cosh erf erfc exp exp10 exp2 expm1 hypot j0 j1 jn lgamma log log10"
    " log1p log2 pow sin sincos sinh tan tanh tgamma y0 y1 yn"
)
_CALLED = re.compile(rf"\0(?:{'|'.join(_INEXACT.split())})f?(?=\0)".encode())


@dataclass(frozen=True)
class Golden:
    """What a kernel computed of a problem; a hash is "" where there is nothing of its kind."""

    sku: str
    problem: str  # a hash of the descriptor and the inputs
    everywhere: str  # of the outputs that are `bit_stable_across_arch`
    others: str
    steady: bool  # whether `others` are the same with any compiler of the device


def fitting(subject: Subject, arch: str, but: Collection[str] = ()) -> list[Problem]:
    """An op's sample that `arch` runs, but for the kernels that these names are of."""
    runs = (problem for problem in sampled(subject) if problem.plan.sku.fits(arch) is None)
    return [problem for problem in runs if str(problem.plan.sku) not in but]


def golden_of(problems: Iterable[Problem], memory: Memory) -> list[Golden]:
    """What their kernels compute."""
    return [_computed(problem, memory) for problem in problems]


def _computed(problem: Problem, memory: Memory) -> Golden:
    inputs = draw(problem)
    outputs = arrange(problem, inputs, memory).run()
    promises = problem.plan.promises
    stable = {name for name, rungs in promises.items() if STABLE in rungs}
    promised = {argument for argument, name in problem.results.items() if stable & {argument, name}}
    return Golden(
        str(problem.plan.sku),
        _hash([str(problem.descriptor)], inputs),
        _hash([], {name: array for name, array in outputs.items() if name in promised}),
        _hash([], {name: array for name, array in outputs.items() if name not in promised}),
        memory.name != "host" or _steady(problem, memory),
    )


def _steady(problem: Problem, memory: Any) -> bool:
    """Whether the code that ran consists of correctly rounded operations, none of which a compiler may fuse."""
    sources = problem.plan._sources.values()
    return not any(source.contraction or _CALLED.search(memory.device.code(source)) for source in sources)


def _hash(words: Iterable[str], arrays: Arrays) -> str:
    if not arrays and not words:
        return ""
    digest = hashlib.sha256("\n".join(words).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"\n{name} {array.dtype} {array.shape}\n".encode() + _bits(array))
    return digest.hexdigest()[:_DIGITS]


def _bits(array: np.ndarray[Any, Any]) -> bytes:
    """The bytes of an array in which all NaNs are alike."""
    numbers = numbers_of(np.ascontiguousarray(array)).copy()
    if numbers.dtype.kind not in "iub":
        numbers[np.isnan(numbers.astype(np.float64))] = np.nan
    return numbers.tobytes()
