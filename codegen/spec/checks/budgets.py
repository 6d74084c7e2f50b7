"""How much a spec may ask to be evaluated: each expression has a budget of its own, and all together have one."""

from __future__ import annotations

from collections.abc import Iterator

from ...families.body.spec import BodySpec
from ..spec import OpSpec
from .finding import Finding

MAX_REQUIREMENTS = 4_000  # characters of all conditions; attention has 259
MAX_IN_CASES = 100_000  # the same for all cases of tests and benchmarks; attention has 15,540
MAX_EXPRESSIONS = 16_000  # characters of what a body declares; attention has 1,777
MAX_IN_SCHEDULES = 200_000  # the same for all schedules, each of which selection asks; attention has 35,913


def requirements(spec: OpSpec) -> Iterator[Finding]:
    count, cases = sum(len(requirement.that) for requirement in spec.require), len(spec.tests.cases)
    yield from _over("require", "conditions", count, MAX_REQUIREMENTS)
    yield from _over("tests", "conditions, for all cases", count * (cases + len(spec.bench.cases)), MAX_IN_CASES)


def expressions(spec: BodySpec) -> Iterator[Finding]:
    launched = [text for kernel in spec.kernels for text in (*kernel.grid, kernel.shared, kernel.when or "")]
    shapes = [text for tensor in spec.arguments.values() for text in (tensor.shape, *tensor.shapes)]
    sizes = [scratch.size for scratch in spec.workspace.values()]
    everything = [*spec.settings.values(), *spec.terms.values(), *sizes, *launched, *shapes]
    count, fits = sum(len(str(text)) for text in everything), sum(len(row.fits or "") for row in spec.schedules)
    subject = "shapes, settings, terms, workspaces and kernels"
    yield from _over("kernels", subject, count, MAX_EXPRESSIONS)
    yield from _over("schedules", f"{subject}, for all schedules", count * len(spec.schedules) + fits, MAX_IN_SCHEDULES)


def _over(key: str, subject: str, count: int, most: int) -> Iterator[Finding]:
    if count > most:
        yield (key,), 0, f"evaluates {count} characters of {subject}; the most is {most}"
