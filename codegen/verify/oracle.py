"""What the outputs should be, in more precision than any kernel has, and how far from it a kernel may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from baracuda.runtime import ElementKind, KernelSku
from baracuda.runtime.element import Element

from ..consistency import scope_of
from ..program import Line, parse
from ..program.evaluate import Arithmetic, Bounded, Space, bound, evaluate
from ..program.ops import NumPy
from ..spec import BoundSpec, OpSpec
from .problem import Arrays, Problem

Flat = dict[str, Any]


def wide_type(element: ElementKind) -> np.dtype[Any]:
    """The oracle's own type: float64, or the platform's long double when the kernel itself works in float64."""
    return np.dtype(np.longdouble if element.row.acc == ElementKind.F64 else np.float64)


def reference(problem: Problem, arrays: Mapping[str, Any]) -> Flat:
    """Expected outputs of `problem` for `arrays` (rows x columns, wide), by the definition.

    A forward op evaluates its reference; a gradient op differentiates its forward's, with nothing taken from its own
    program. Saved tensors among the results are what the forward would have saved.
    """
    if problem.spec.gradient is None:
        lines = _reference_lines(problem.spec)
        return evaluate(lines, _environment(problem.spec, problem.values, problem.space, arrays), problem.space)
    return _gradient(problem, arrays)


def explicit(problem: Problem, arrays: Mapping[str, Any]) -> Flat:
    """Expected outputs by the op's own program, for saved tensors of any value."""
    names = _environment(problem.spec, problem.values, problem.space, arrays)
    return evaluate(_program(problem.spec), names, problem.space)


def _reference_lines(spec: OpSpec) -> tuple[Line, ...]:
    assert spec.reference is not None
    return parse(spec.reference, scope_of(spec))


def _program(spec: OpSpec) -> tuple[Line, ...]:
    return parse(spec.program, scope_of(spec))


def _environment(spec: OpSpec, values: Mapping[str, Any], space: Space, arrays: Mapping[str, Any]) -> Flat:
    """Everything a program of `spec` may read: arrays, defaults of those that are absent, and scalars."""
    names: Flat = {n: f for n, f in values.items() if n in spec.descriptor and spec.descriptor[n].type != "shape"}
    for name, tensor in spec.inputs.items():
        if name in arrays:
            names[name] = arrays[name]
        elif tensor.default is not None:
            names[name] = np.full(space.shape(tensor.dims), tensor.default, np.float64)
    return names


def _gradient(problem: Problem, arrays: Mapping[str, Any]) -> Flat:
    import autograd

    gradient = problem.spec.gradient
    assert gradient is not None
    forward = problem.forward
    assert forward is not None
    lines, xp = _reference_lines(forward), _differentiable()
    values = {**_scalars(forward), **problem.values}
    space = Space(dict(zip(forward.dims, problem.space.extents.values(), strict=True)), problem.space.present)
    fixed = _environment(forward, values, space, arrays)
    wrt = {there: here for here, there in gradient.wrt.items() if there in fixed and here in problem.written}

    def loss(*inputs: Any) -> Any:
        outputs = evaluate(lines, {**fixed, **dict(zip(wrt, inputs, strict=True))}, space, xp)
        total = 0.0
        for here, there in gradient.cotangents.items():
            total = total + xp.sum(outputs[there] * arrays[here])
        return total

    results: Flat = {}
    for name in gradient.saved:
        results[name] = (evaluate(lines, fixed, space) if name in forward.outputs else fixed)[name]
    if problem.rows and problem.cols:
        slopes = autograd.grad(loss, tuple(range(len(wrt))))(*(fixed[name] for name in wrt)) if wrt else ()
        results |= dict(zip(wrt.values(), slopes, strict=True))
    else:
        results |= {here: np.zeros(problem.space.shape(problem.spec.tensors[here].dims)) for here in wrt.values()}
    return results


def _scalars(spec: OpSpec) -> dict[str, Any]:
    """Values for scalars of the forward that its gradient's descriptor does not have."""
    return {n: spec.tests.defaults.get(n, f.default) for n, f in spec.descriptor.items() if f.type != "shape"}


def _differentiable() -> Any:
    """autograd's NumPy, with the functions it lacks."""
    import autograd.numpy as anp
    from autograd.extend import defvjp, primitive

    plain = NumPy()
    slope = 2 / np.sqrt(np.pi)

    class Differentiable:
        def __getattr__(self, name: str) -> Any:
            return getattr(anp, name)

        @staticmethod
        def elementwise(function: Any, a: Any) -> Any:
            applied = primitive(lambda v: plain.elementwise(function, v))
            sign = -1 if function.__name__ == "erfc" else 1
            defvjp(applied, lambda _, v: lambda g: g * sign * slope * anp.exp(-v * v))
            return applied(a)

    return Differentiable()


@dataclass(frozen=True)
class Accuracy:
    """How an output compares with what was expected; `worst_ratio` is the largest error in units of its bound.

    The element with that ratio is at `index`, counted in (rows, columns) as far as the output varies along them.
    """

    max_error: float
    worst_ratio: float
    relative: float  # error over expected, as norms
    bound_there: float = 0.0
    index: tuple[int, ...] = ()
    got: float = 0.0
    expected: float = 0.0

    def __str__(self) -> str:
        where = f"element {self.index}" if self.index else "the element"
        off = f"got {self.got:.9g}, expected {self.expected:.9g} within {self.bound_there:.3g}"
        return f"{where}: {off} ({self.worst_ratio:.3g} times the bound)"


def tolerances(problem: Problem, arrays: Mapping[str, Bounded], held: Mapping[str, ElementKind]) -> Flat:
    """The declared bound on the error of each element of each output, as arrays of rows x columns.

    ``c1 * u * |y| + c2 * E``, where u is the unit roundoff of the type the output is stored in and E the running error
    bound of the program in the accumulator's arithmetic.
    """
    spec, element = problem.spec, problem.element
    acc = element.row.acc.row
    names = {n: b.value for n, b in arrays.items()}
    environment = _environment(spec, problem.values, problem.space, names)
    given = {n: arrays[n] if n in arrays else _constant(v, acc.unit_roundoff) for n, v in environment.items()}
    casts = {"T": element.row.unit_roundoff, "acc": acc.unit_roundoff}
    casts |= {k: ElementKind(k).row.unit_roundoff for k in ("f16", "bf16", "f32", "f64")}
    tiny = _smallest(acc) if spec.precision.subnormals == "keep" else acc.smallest_normal
    how = Arithmetic(acc.unit_roundoff, tiny, depth_of(problem), casts)
    found = bound(_program(spec), given, problem.space, how)
    declared = spec.precision.bound.get(element.value, BoundSpec())  # type: ignore[call-overload]
    noise = _noise(problem, environment)
    return {a: _stored(found[n], held[a], declared) + noise.get(n, 0.0) for a, n in problem.results.items()}


def _noise(problem: Problem, names: Mapping[str, Any]) -> Flat:
    """How far the oracle itself may be off: a reference may cancel where the program does not."""
    if problem.spec.reference is None:
        return {}
    kind = np.finfo(wide_type(problem.element))
    how = Arithmetic(float(kind.eps), 0.0, lambda dims, count: float(count), dict.fromkeys(_CASTS, 0.0))
    exact = {n: Bounded(v, 0.0) for n, v in names.items()}
    found = bound(_reference_lines(problem.spec), exact, problem.space, how)
    return {n: np.where(np.isfinite(b.error), b.error, 0.0) for n, b in found.items()}


_CASTS = ("T", "acc", "f16", "bf16", "f32", "f64")


def _constant(value: Any, unit_roundoff: float) -> Bounded:
    return Bounded(value, np.abs(np.asarray(value, np.float64)) * unit_roundoff)


def _stored(found: Bounded, kind: ElementKind, declared: BoundSpec) -> Any:
    error = declared.c2 * found.error
    row = kind.row
    if not row.unit_roundoff:
        return error
    return error + declared.c1 * row.unit_roundoff * (np.abs(found.value) + error) + _smallest(row)


def _smallest(row: Element) -> float:
    """The smallest subnormal number."""
    return 2 * row.unit_roundoff * row.smallest_normal


def depth_of(problem: Problem) -> Any:
    """The longest chain of additions that the SKU's schedule makes of a sum; see row.cuh for the order."""
    sku: KernelSku = problem.plan.sku
    tile = sku.schedule
    vec = 16 // problem.element.row.bytes

    def along_row(count: int) -> int:
        packs = -(-count // (tile.lanes * vec))
        butterfly = min(tile.lanes, 32).bit_length() - 1
        return packs * vec - 1 + butterfly + max(0, tile.lanes // 32 - 1)

    def down_column(count: int) -> int:
        blocks = max(1, min(tile.blocks, -(-count // tile.rows)))
        per_part = -(-count // (blocks * tile.rows))
        parts = blocks * tile.rows
        slices = 1 if tile.wide else tile.threads // 32
        return per_part + -(-parts // slices) + slices

    def depth(dims: tuple[str, ...], count: int) -> float:
        return along_row(count) if dims == (problem.col_dim,) else down_column(count)

    return depth


def compare(got: Any, expected: Any, tolerance: Any, kind: ElementKind) -> Accuracy:
    """Measure `got`, stored as `kind`, against `expected`; the ratio is infinite where only one of them is finite.

    An infinity is right where the expected value lies beyond what `kind` can hold, give or take the tolerance.
    """
    largest = kind.row.largest or np.inf
    got, expected = np.asarray(got, np.longdouble), np.asarray(expected, np.longdouble)
    if not got.size:
        return Accuracy(0.0, 0.0, 0.0)
    tolerance = np.broadcast_to(np.asarray(tolerance, np.longdouble), got.shape)
    with np.errstate(all="ignore"):
        same = (got == expected) | (np.isnan(got) & np.isnan(expected))
        alike = (np.sign(got) == np.sign(expected)) | (tolerance >= largest)
        same |= np.isinf(got) & (np.abs(expected) + tolerance >= largest) & alike
        error = np.where(same, 0, np.abs(got - expected))
        ratio = np.where(same, 0, error / tolerance)
        ratio = np.where(np.isnan(ratio) | np.isinf(error), np.inf, ratio)
        finite = np.isfinite(got) & np.isfinite(expected)
        norm = float(np.sqrt(np.sum(np.where(finite, expected, 0) ** 2)))
        distance = float(np.sqrt(np.sum(np.where(finite, got - expected, 0) ** 2)))
    worst = int(np.argmax(ratio))
    relative = distance / norm if norm else distance
    index = tuple(int(i) for i, n in zip(np.unravel_index(worst, got.shape), got.shape, strict=True) if n > 1)
    return Accuracy(
        max_error=float(error.max()),
        worst_ratio=float(ratio.max()),
        relative=relative,
        bound_there=float(tolerance.flat[worst]),
        index=index,
        got=float(got.flat[worst]),
        expected=float(np.broadcast_to(expected, got.shape).flat[worst]),
    )


def widen(
    problem: Problem, arrays: Mapping[str, np.ndarray[Any, Any]], kind: np.dtype[Any] | None = None
) -> Flat:
    """Arrays as the oracle reads them: rows x columns, in its own type unless `kind` is another."""
    kind = kind or wide_type(problem.element)
    return {
        n: problem.flat(n, a if a.dtype.kind in "iu" else a.astype(np.float64).astype(kind)) for n, a in arrays.items()
    }


def with_saved(
    problem: Problem, arrays: Arrays, held: Mapping[str, ElementKind], hidden: Arrays | None = None
) -> tuple[Arrays, Flat]:
    """Add what the forward saves, rounded as it is stored; return the arrays and the oracle's results."""
    kind = wide_type(problem.element)
    wide = {n: a.astype(np.float64).astype(kind) for n, a in (hidden or {}).items()}
    expected = reference(problem, {**widen(problem, arrays), **wide})
    full = dict(arrays)
    for name in problem.spec.gradient.saved if problem.spec.gradient else ():
        if name in problem.arguments:
            exact = problem.caller(name, np.asarray(expected[name]), problem.shape_of(name))
            full[name] = exact.astype(np.float64).astype(held[name].row.numpy)
    return full, expected


def bounded(
    problem: Problem, arrays: Mapping[str, np.ndarray[Any, Any]], exact: Mapping[str, Any]
) -> dict[str, Bounded]:
    """Inputs with how far they lie from the real values that the expectation was computed from."""
    saved = set(problem.spec.gradient.saved) if problem.spec.gradient else set()
    given = {}
    for name, value in widen(problem, arrays).items():
        with np.errstate(invalid="ignore"):
            error = np.abs(value - exact[name]) if name in saved and name in exact else 0.0
        given[name] = Bounded(value, error)
    return given
