"""How much a spec may ask to be evaluated: each expression has a budget of its own, and all together have one."""

from __future__ import annotations

from collections.abc import Iterator

from ..spec import BodySpec, OpSpec
from .finding import Finding

MAX_REQUIREMENTS = 8_000  # characters; evaluated for every problem that is drawn or selected for
MAX_EXPRESSIONS = 16_000  # characters; evaluated for every schedule that selection looks at


def requirements(spec: OpSpec) -> Iterator[Finding]:
    if (count := sum(len(requirement.that) for requirement in spec.require)) > MAX_REQUIREMENTS:
        yield ("require",), 0, f"has {count} characters of conditions; the most is {MAX_REQUIREMENTS}"


def expressions(spec: BodySpec) -> Iterator[Finding]:
    launched = [text for kernel in spec.kernels for text in (*kernel.grid, kernel.shared, kernel.when or "")]
    shapes = [text for tensor in spec.arguments.values() for text in (tensor.shape, *tensor.shapes)]
    sizes = [scratch.size for scratch in spec.workspace.values()]
    everything = [*spec.settings.values(), *spec.terms.values(), *sizes, *launched, *shapes]
    if (count := sum(len(str(text)) for text in everything)) > MAX_EXPRESSIONS:
        said = f"{count} characters of shapes, settings, terms, workspaces and kernels; the most is {MAX_EXPRESSIONS}"
        yield ("kernels",), 0, said
