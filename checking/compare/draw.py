"""Random problems from everything that an op allows: a function of seed, op and index.

The architectures of the op's kernels that the device can run take turns.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from baracuda.codegen.spec.parts import RangeSpec
from baracuda.runtime import ElementKind, InvalidProblem, KernelSku, PlanPreference, Unsupported, get_device

from ..problems.cases import can_be_laid_out, drawn_cases, skus_of
from ..problems.problem import Problem
from ..problems.subject import Subject
from ..trials.memory import PATTERNS

_TRIES = 512  # draws of fields before giving up
_ATTENTION = ("batch_size", "num_heads", "query_len", "key_len")


@dataclass(frozen=True)
class Drawn:
    """A problem, and how its tensors are filled, stored and laid out."""

    problem: Problem
    style: str
    seed: int  # of the numbers
    choice: Mapping[str, ElementKind]  # stored types where the caller may choose
    patterns: Mapping[str, str]
    broadcast: Mapping[str, int]  # inputs of stride 0, and along which axis
    shift_workspace: int

    @property
    def layouts(self) -> str:
        """Unusual layouts, in one line."""
        parts = []
        for name in self.problem.arguments:
            kind = [str(self.choice[name])] if name in self.choice else []
            pattern = [self.patterns[name]] if self.patterns[name] != "contiguous" else []
            flat = [f"stride 0 along axis {self.broadcast[name]}"] if name in self.broadcast else []
            if traits := kind + pattern + flat:
                parts.append(f"{name} {' '.join(traits)}")
        return ", ".join(parts) or "contiguous"


def draw(subject: Subject, seed: int, index: int, device: str, limit: int = 1 << 20) -> Drawn:
    """Problem `index`, of at most `limit` elements, for "host" or "cuda"; raises Unsupported if there is none."""
    spec = subject.spec
    rng = np.random.default_rng([seed, zlib.crc32(spec.op.encode()), index])
    kinds = len(spec.dtypes)
    element = ElementKind(spec.dtypes[index % kinds])
    skus = skus_for(subject, element, device)
    archs = _archs(skus, device)
    arch = archs[index // kinds % len(archs)]
    if problem := next(_problems(subject, element, arch, skus, rng, device, limit), None):
        return _arranged(problem, rng)
    raise Unsupported(f"{spec.op}: no problem of {element} on {arch or 'any architecture'} below {limit} elements")


def skus_for(subject: Subject, element: ElementKind, device: str) -> list[KernelSku]:
    """The kernels for an element type that the device can run."""
    arch = get_device(_device_name(device)).arch
    skus = [sku for sku in skus_of(subject) if sku.element == element and sku.fits(arch) is None]
    if not skus:
        raise Unsupported(f"{subject.spec.op}: no kernel for {element} runs on {arch}")
    return skus


def _device_name(device: str) -> str:
    return "cuda:0" if device == "cuda" else device


def _archs(skus: list[KernelSku], device: str) -> list[str | None]:
    """The architectures that selection is restricted to in turn; on a GPU also none, as for callers."""
    return [*sorted({sku.arch for sku in skus}), *([None] if device == "cuda" else [])]


def _problems(
    subject: Subject,
    element: ElementKind,
    arch: str | None,
    skus: list[KernelSku],
    rng: np.random.Generator,
    device: str,
    limit: int,
) -> Iterator[Problem]:
    target = get_device(_device_name(device))
    preference = PlanPreference(archs=frozenset({arch})) if arch else None
    of_arch = [sku for sku in skus if arch in (None, sku.arch)]
    cases = Problem.kind_of(subject).drawn_cases(subject, of_arch, rng, limit) or _cases(subject, rng)
    layouts = [None, *sorted({sku.layout for sku in skus if sku.layout})]
    for case in islice(cases, _TRIES):
        layout = layouts[int(rng.integers(len(layouts)))]
        try:
            problem = Problem.of(subject, case, element, arch, layout)
            requested = None if layout is None else [layout]
            problem.plan = subject.plan.select(problem.descriptor, preference, device=target, layouts=requested)
        except (Unsupported, InvalidProblem):
            continue
        if cost(problem) <= limit and can_be_laid_out(problem):
            yield problem


def cost(problem: Problem) -> int:
    """What `limit` bounds: elements, for attention scores; of an array without elements those along its other axes."""
    scores = math.prod(int(problem.values[n]) for n in _ATTENTION) if _ATTENTION[2] in problem.values else 0
    return max(problem.size, scores, *[math.prod(n or 1 for n in problem.shape_of(name)) for name in problem.arguments])


def _cases(subject: Subject, rng: np.random.Generator) -> Iterator[Mapping[str, Any]]:
    """Cases as the spec draws them, some with far longer extents; without `tests.draw`, the spec's own."""
    if rng.random() < 0.5:
        yield from islice(drawn_cases(_stretched(subject, rng), rng), _TRIES // 2)
    yield from drawn_cases(subject, rng)
    cases = subject.spec.tests.cases
    for _ in range(_TRIES):
        yield {n: v for n, v in cases[int(rng.integers(len(cases)))].items() if n != "dtype"}


def _stretched(subject: Subject, rng: np.random.Generator) -> Subject:
    """The same op with the ranges that are not short extended up to 64-fold."""
    spec, longer = subject.spec, {}
    for name, rule in spec.tests.draw.items():
        if isinstance(rule, RangeSpec) and rule.high >= 10:
            longer[name] = rule.model_copy(update={"high": rule.high << int(rng.integers(0, 7))})
    tests = spec.tests.model_copy(update={"draw": {**spec.tests.draw, **longer}})
    loaded = replace(subject.loaded, spec=spec.model_copy(update={"tests": tests}))
    return replace(subject, loaded=loaded)


def _is_mapped(problem: Problem) -> bool:
    """Whether only kernels of one architecture may be selected that use tensor maps."""
    return problem.arch in getattr(problem.plan, "MAPS", {})


def _arranged(problem: Problem, rng: np.random.Generator) -> Drawn:
    """Styles, stored types and layouts for a problem; fast paths get their share."""
    style = str(rng.choice(problem.STYLES))
    choice = {}
    for name in problem.arguments:
        kinds = problem.plan.elements_of(name)
        kind = kinds[int(rng.integers(len(kinds)))]
        if kind != kinds[0]:
            choice[name] = kind
    mixed = rng.random()
    mixed = mixed / 2 if _is_mapped(problem) else mixed  # the copy engine addresses no others
    default_pattern = "contiguous" if mixed < 0.4 else "gap"
    patterns = {n: str(rng.choice(list(PATTERNS))) if mixed >= 0.5 else default_pattern for n in problem.arguments}
    shift = 16 * int(rng.integers(3))
    return Drawn(problem, style, int(rng.integers(1 << 31)), choice, patterns, _broadcast(problem, rng), shift)


def _broadcast(problem: Problem, rng: np.random.Generator) -> dict[str, int]:
    """Some of the inputs, each with an axis that gets stride 0."""
    broadcast = {}
    for name, tensor in problem.arguments.items():
        shape, argument = problem.shape_of(name), problem.plan.ARGUMENTS[name]
        free = shape[:-1] if tensor.layout == "inner" else shape if tensor.layout == "any" else ()
        free = free[:-1] if _is_mapped(problem) else free  # a tensor map cannot repeat rows
        axes = [axis for axis, extent in enumerate(free) if extent > 1 and axis != problem.packed_axis(name)]
        is_offset = problem.stored_types()[name].value[0] in "iu" and problem.element.value[0] not in "iu"
        if axes and not argument.written and name not in problem.saved and not is_offset and rng.random() < 0.1:
            broadcast[name] = int(rng.choice(axes))
    return broadcast
