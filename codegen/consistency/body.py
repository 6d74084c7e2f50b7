"""Rules of the body family: expressions over the descriptor, and names that other keys refer to."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import find_spec

from ..conditions import ConditionError, read_condition
from ..spec import BodySpec
from .finding import Finding, Place, Rule, near

SCHEDULE_NAMES = ("threads", "itemsize", "accsize", "multiprocessors")


def names(spec: BodySpec) -> Iterator[Finding]:
    """Names that expressions share: descriptor fields, settings and numbers of schedules differ."""
    for i, row in enumerate(spec.schedules):
        for name in row.numbers:
            if name in spec.descriptor or name in SCHEDULE_NAMES:
                yield ("schedules", i, "numbers", name), 0, f"{name!r} means something else; choose another name"


def shapes(spec: BodySpec) -> Iterator[Finding]:
    for section in ("inputs", "outputs"):
        for name, tensor in getattr(spec, section).items():
            place = (section, name)
            yield from _expression(tensor.shape, tuple(spec.descriptor), (*place, "shape"))
            if not _is_tuple(tensor.shape):
                yield (*place, "shape"), 0, f"{tensor.shape!r} is no shape; write '(rows, cols)', for one axis '(rows,)'"
            for i, text in enumerate(tensor.shapes):
                yield from _expression(text, tuple(spec.descriptor), (*place, "shapes", i))


def _is_tuple(text: str) -> bool:
    try:
        return isinstance(ast.parse(text.strip(), mode="eval").body, ast.Tuple)
    except SyntaxError:
        return True  # complained of already


def expressions(spec: BodySpec) -> Iterator[Finding]:
    numbers = {name for row in spec.schedules for name in row.numbers}
    fields = tuple(spec.descriptor)
    everything = (*fields, *SCHEDULE_NAMES, *sorted(numbers), *spec.settings)
    for name, text in spec.settings.items():
        yield from _expression(text, fields, ("settings", name))
    for name, scratch in spec.workspace.items():
        yield from _expression(scratch.size, everything, ("workspace", name, "size"))
    for i, kernel in enumerate(spec.kernels):
        for axis, text in enumerate(kernel.grid):
            yield from _expression(text, everything, ("kernels", i, "grid", axis))
        yield from _expression(kernel.shared, everything, ("kernels", i, "shared"))
        if kernel.when is not None:
            yield from _expression(kernel.when, everything, ("kernels", i, "when"))
        if isinstance(kernel.threads, str) and kernel.threads not in numbers:
            hint = near(kernel.threads, numbers)
            yield ("kernels", i, "threads"), 0, f"{kernel.threads!r} is no number of the schedules; {hint}"
    for i, row in enumerate(spec.schedules):
        if row.fits is not None:
            yield from _expression(row.fits, everything, ("schedules", i, "fits"))


def _expression(text: str | int, known: tuple[str, ...], place: Place) -> Iterator[Finding]:
    try:
        read_condition(str(text), known)
    except ConditionError as error:
        yield place, 0, str(error)


def references(spec: BodySpec) -> Iterator[Finding]:
    """Tensors, architectures and oracles that are named exist."""
    for layout, axes in spec.layouts.items():
        if layout == "strided":
            yield ("layouts", layout), 0, "'strided' takes anything and is always the last; leave it out"
        for name in axes:
            if name not in spec.arguments:
                yield ("layouts", layout, name), 0, f"unknown tensor {name!r}; {near(name, spec.arguments)}"
    for arch, maps in spec.tensor_maps.items():
        for name in maps:
            if name not in spec.arguments:
                yield ("tensor_maps", arch, name), 0, f"unknown tensor {name!r}; {near(name, spec.arguments)}"
    for i, row in enumerate(spec.schedules):
        if row.arch not in spec.arch:
            yield ("schedules", i, "arch"), 0, f"{row.arch!r} is not under arch; {near(row.arch, spec.arch)}"
        for dtype in row.dtypes:
            if dtype not in spec.dtypes:
                yield ("schedules", i, "dtypes"), 0, f"{dtype!r} is not a dtype of this op; {near(dtype, spec.dtypes)}"
    for dtype in spec.dtypes:
        if not any(dtype in row.dtypes for row in spec.schedules):
            yield ("schedules",), 0, f"no schedule serves {dtype}; add one or drop the dtype"
    for plan, pinned in spec.pinned.items():
        if pinned.arch not in spec.arch:
            yield ("pinned", plan, "arch"), 0, f"{pinned.arch!r} is not under arch; {near(pinned.arch, spec.arch)}"
    if min(spec.arch, key=lambda a: int(a[3:].rstrip("a"))) not in spec.body:
        yield ("body",), 0, "the least architecture needs a header: others fall back on it"
    module = spec.oracle.split(".")[0]
    if find_spec(f"baracuda.codegen.verify.oracles.{module}") is None:
        yield ("oracle",), 0, f"no module {module!r} of oracles is installed"


def draws(spec: BodySpec) -> Iterator[Finding]:
    """What random problems are made of: fields that there are."""
    for name in spec.tests.draw:
        if name not in spec.descriptor:
            yield ("tests", "draw", name), 0, f"unknown field {name!r}; {near(name, spec.descriptor)}"
    if spec.tests.batch is not None and spec.tests.batch not in spec.descriptor:
        yield ("tests", "batch"), 0, f"unknown field {spec.tests.batch!r}; {near(spec.tests.batch, spec.descriptor)}"


RULES: tuple[Rule, ...] = (names, shapes, expressions, references, draws)
