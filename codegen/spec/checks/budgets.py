"""How much a spec may ask to be evaluated: each expression has a budget of its own, and all together have one."""

from __future__ import annotations

from collections.abc import Iterator

from ..spec import OpSpec
from .finding import Finding

MAX_REQUIREMENTS = 4_000  # characters of all conditions; attention has 259
MAX_IN_CASES = 100_000  # the same for all cases of tests and benchmarks; attention has 15,540


def requirements(spec: OpSpec) -> Iterator[Finding]:
    count, cases = sum(len(requirement.that) for requirement in spec.require), len(spec.tests.cases)
    yield from over("require", "conditions", count, MAX_REQUIREMENTS)
    yield from over("tests", "conditions, for all cases", count * (cases + len(spec.bench.cases)), MAX_IN_CASES)


def over(key: str, subject: str, count: int, most: int) -> Iterator[Finding]:
    if count > most:
        yield (key,), 0, f"evaluates {count} characters of {subject}; the most is {most}"
