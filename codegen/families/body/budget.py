"""How much a body may ask to be evaluated."""

from __future__ import annotations

from collections.abc import Iterator

from ...spec.checks.budgets import over
from ...spec.checks.finding import Finding
from .spec import BodySpec

MAX_EXPRESSIONS = 16_000  # characters of what a body declares; attention has 1,777
MAX_IN_SCHEDULES = 200_000  # the same for all schedules, each of which selection asks; attention has 35,913


def expressions(spec: BodySpec) -> Iterator[Finding]:
    launched = [text for kernel in spec.kernels for text in (*kernel.grid, kernel.shared, kernel.when or "")]
    shapes = [text for tensor in spec.arguments.values() for text in (tensor.shape, *tensor.shapes)]
    sizes = [scratch.size for scratch in spec.workspace.values()]
    everything = [*spec.settings.values(), *spec.terms.values(), *sizes, *launched, *shapes]
    count, fits = sum(len(str(text)) for text in everything), sum(len(row.fits or "") for row in spec.schedules)
    subject = "shapes, settings, terms, workspaces and kernels"
    yield from over("kernels", subject, count, MAX_EXPRESSIONS)
    yield from over("schedules", f"{subject}, for all schedules", count * len(spec.schedules) + fits, MAX_IN_SCHEDULES)
