"""The oracle of ops with a program: their reference, or the derivative of their forward's."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from itertools import permutations
from typing import Any

import numpy as np

from baracuda.codegen.program import Line, Name, Scope, parse
from baracuda.codegen.program.bounds import Arithmetic, Bounded, bound
from baracuda.codegen.program.evaluate import evaluate
from baracuda.codegen.program.ops import NumPy, error_slope
from baracuda.codegen.program.space import Space
from baracuda.codegen.program.tree import Call, Const, Expr, Reduce, mapped, place_of
from baracuda.codegen.spec.backward import derived_program
from baracuda.codegen.spec.parts import ReadTensor
from baracuda.codegen.spec.scope import scope_of
from baracuda.codegen.spec.spec import ProgramSpec
from baracuda.runtime import ElementKind

from ..problems.problem import ProgramProblem
from .accuracy import smallest, stored
from .wide import wide_type

Flat = dict[str, Any]


def reference(problem: ProgramProblem, arrays: Mapping[str, Any]) -> Flat:
    """Expected outputs of `problem` for wide `arrays` in the shapes of `flat`, by the definition.

    A forward op evaluates its reference, a gradient differentiates its forward's; its own program is not used. The
    results include the saved tensors, as the forward computes them.
    """
    if problem.spec.gradient is None:
        lines, space = _reference_lines(problem.spec), _space(problem)
        return _wrapped(problem, evaluate(lines, _environment(problem.spec, problem.values, space, arrays), space))
    return _gradient(problem, arrays)


def explicit(problem: ProgramProblem, arrays: Mapping[str, Any]) -> Flat:
    """Expected outputs by the op's own program, for saved tensors of any value, in the type of `arrays`."""
    is_narrow = all(np.asarray(array).dtype != np.longdouble for array in arrays.values())
    space = replace(problem.space, real=float) if is_narrow else _space(problem)
    lines = _program(problem.spec)
    return _wrapped(problem, evaluate(lines, _environment(problem.spec, problem.values, space, arrays), space))


def _space(problem: ProgramProblem) -> Space:
    """The problem's space, with constants of the type that oracles compute in."""
    wide = wide_type(problem.element)
    return replace(problem.space, real=np.longdouble if wide == np.longdouble else float)


def _reference_lines(spec: ProgramSpec) -> tuple[Line, ...]:
    assert spec.reference is not None
    return _lines(spec.reference, spec)


def _program(spec: ProgramSpec) -> tuple[Line, ...]:
    return _lines(spec.program, spec)


def _lines(text: str, spec: ProgramSpec) -> tuple[Line, ...]:
    return _parsed(text, scope_of(spec))


@cache
def _parsed(text: str, scope: Scope) -> tuple[Line, ...]:
    return parse(text, scope)


def _environment(spec: ProgramSpec, values: Mapping[str, Any], space: Space, arrays: Mapping[str, Any]) -> Flat:
    """Everything a program of `spec` may read: arrays, defaults of absent ones, and scalars."""
    names: Flat = {n: f for n, f in values.items() if n in spec.descriptor and spec.descriptor[n].is_number}
    names |= {n: space.real(f) for n, f in names.items() if isinstance(f, float)}
    for name, tensor in spec.inputs.items():
        if name in arrays:
            names[name] = _computed(arrays[name])
        elif tensor.default is not None:
            names[name] = np.full(flat_shape(spec, space, tensor), tensor.default, np.float64)
    return names


def _computed(array: Any) -> Any:
    """Whole numbers as programs see them, in 64 bits; bits that are only moved stay what they are."""
    is_narrow = getattr(array, "dtype", np.dtype(float)).kind in "iu" and array.dtype != np.uint64
    return array.astype(np.int64) if is_narrow else array


def _wrapped(problem: ProgramProblem, results: Flat) -> Flat:
    """Results as outputs of whole numbers hold them: modulo two to the number of bits of their only type, or 64."""
    types = {n: problem.plan.elements_of(a) for a, n in problem.results.items()}
    whole = {
        name: kinds[0].row.numpy if len(kinds) == 1 else np.dtype(np.int64)
        for name, kinds in types.items()
        if kinds[0].row.numpy.kind in "iu"
    }
    return {n: np.asarray(v).astype(whole[n]) if n in whole else v for n, v in results.items()}


def flat_shape(spec: ProgramSpec, space: Space, tensor: ReadTensor) -> tuple[int, ...]:
    """The shape of a tensor as the program sees it: an axis per dim, of extent 1 where it does not vary."""
    return space.shape(tensor.over)


def derived(problem: ProgramProblem, arrays: Mapping[str, Any], saved: Mapping[str, Any]) -> Flat:
    """The gradients that the generator's derivative of the forward's program gives, for `saved` as it computes them."""
    gradient = problem.spec.gradient
    assert gradient is not None
    forward, space, fixed = _forward(problem, arrays)
    lines = derived_program(forward, gradient.cotangents, gradient.wrt, gradient.saved)
    kept = {name: saved[name] for name in gradient.saved}
    values = evaluate(lines, {**fixed, **kept, **{name: arrays[name] for name in gradient.cotangents}}, space)
    return {name: values[name] for name in gradient.wrt if name in problem.written}


def _forward(problem: ProgramProblem, arrays: Mapping[str, Any]) -> tuple[ProgramSpec, Space, Flat]:
    """The forward op of a gradient, its space, and everything that its program may read."""
    forward, own = problem.forward, _space(problem)
    assert isinstance(forward, ProgramSpec)
    names = [*forward.dims, *[*own.extents][len(forward.dims) :]]  # a gradient may have more
    space = replace(own, extents=dict(zip(names, own.extents.values(), strict=True)))
    return forward, space, _environment(forward, {**_scalars(forward), **problem.values}, space, arrays)


def _gradient(problem: ProgramProblem, arrays: Mapping[str, Any]) -> Flat:
    import autograd

    gradient = problem.spec.gradient
    assert gradient is not None
    forward, space, fixed = _forward(problem, arrays)
    lines, xp = _with_winners(_reference_lines(forward), gradient.saved), _differentiable()
    wrt = {source: grad for grad, source in gradient.wrt.items() if source in fixed and grad in problem.written}

    def loss(*inputs: Any) -> Any:
        outputs = evaluate(lines, {**fixed, **dict(zip(wrt, inputs, strict=True))}, space, xp)
        total = 0.0
        for grad, output in gradient.cotangents.items():
            for part in (xp.real, xp.imag) if np.iscomplexobj(arrays[grad]) else (lambda a: a,):
                total = total + xp.sum(part(outputs[output]) * part(arrays[grad]))
        return total

    results: Flat = {}
    for name in gradient.saved:
        results[name] = (evaluate(lines, fixed, space) if name in forward.outputs else fixed)[name]
    tensors = problem.spec.tensors
    results |= {grad: np.zeros(flat_shape(problem.spec, problem.space, tensors[grad])) for grad in wrt.values()}
    # Beside an array of no elements, others may have some.
    wrt = {source: grad for source, grad in wrt.items() if problem.size or np.size(fixed[source])}
    if wrt:
        with warnings.catch_warnings():  # of gradients that are 0 everywhere
            warnings.filterwarnings("ignore", "Output seems independent of input")
            grads = autograd.grad(loss, tuple(range(len(wrt))))(*(fixed[name] for name in wrt))
        results |= dict(zip(wrt.values(), map(np.conj, grads), strict=True))  # of complex inputs, by torch's convention
    return results


def _with_winners(lines: tuple[Line, ...], saved: Iterable[str]) -> tuple[Line, ...]:
    """Lines whose extremes are the element at a place that is saved, which alone has their gradient."""
    chosen: dict[Expr, Expr] = {}
    for line in lines:
        place = place_of(line.expr)
        if line.name in saved and isinstance(line.expr, Reduce) and place is not None:
            kind, arg, dims = line.expr.kind.removeprefix("arg"), line.expr.arg, line.expr.dims
            only = Call("where", (Call("equal", (place, line.expr)), arg, Const(0.0)))
            chosen |= {Reduce(kind, arg, order): Reduce("sum", only, dims) for order in permutations(dims)}

    def written(expr: Expr) -> Expr:
        return chosen[expr] if expr in chosen else mapped(expr, written)

    return tuple(Line(line.name, written(line.expr), line.number) for line in lines)


def _scalars(spec: ProgramSpec) -> dict[str, Any]:
    """Values for scalars of the forward that its gradient's descriptor does not have."""
    return {n: spec.tests.defaults.get(n, f.default) for n, f in spec.descriptor.items() if f.is_number}


def _differentiable() -> Any:
    """autograd's NumPy, with the functions it lacks."""
    import autograd.numpy as anp
    from autograd.extend import defvjp, primitive

    plain = NumPy()

    class Differentiable:
        def __getattr__(self, name: str) -> Any:
            return getattr(anp, name)

        @staticmethod
        def elementwise(function: Any, a: Any) -> Any:
            applied = primitive(lambda v: plain.elementwise(function, v))
            defvjp(applied, lambda _, v: lambda g: g * error_slope(anp, function, v))
            return applied(a)

        @staticmethod
        def cbrt(a: Any) -> Any:
            return _of_slopes(np.cbrt, lambda g, r, a: g / (3 * r * r))(a)

        @staticmethod
        def fmod(a: Any, b: Any) -> Any:
            return _of_slopes(np.fmod, lambda g, r, a, b: g, lambda g, r, a, b: -g * anp.trunc(a / b))(a, b)

        @staticmethod
        def copysign(a: Any, b: Any) -> Any:
            of_a = lambda g, r, a, b: g * np.sign(a) * np.sign(r)  # noqa: E731
            return _of_slopes(np.copysign, of_a, lambda g, r, a, b: 0 * g)(a, b)

        @staticmethod
        def maximum(a: Any, b: Any) -> Any:
            return _of_slopes(np.maximum, lambda g, r, a, b: _half(g, a, b), lambda g, r, a, b: _half(g, b, a))(a, b)

        @staticmethod
        def minimum(a: Any, b: Any) -> Any:
            return _of_slopes(np.minimum, lambda g, r, a, b: _half(g, b, a), lambda g, r, a, b: _half(g, a, b))(a, b)

        @staticmethod
        def max(a: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
            return _extreme(np.max, axis)(a)

        @staticmethod
        def min(a: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
            return _extreme(np.min, axis)(a)

        @staticmethod
        def prod(a: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
            return _product(axis)(a)

        @staticmethod
        def complex(a: Any, b: Any) -> Any:
            return _of_slopes(plain.complex, lambda g, r, a, b: np.real(g), lambda g, r, a, b: -np.imag(g))(a, b)

        @staticmethod
        def stop_gradient(a: Any) -> Any:
            return a._value if hasattr(a, "_value") else a

        @staticmethod
        def whole(a: Any) -> Any:
            return plain.whole(a._value if hasattr(a, "_value") else a)

        @staticmethod
        def where(condition: Any, a: Any, b: Any) -> Any:
            """autograd gives each operand a slope of the result's shape, so operands get that shape first."""
            alike = np.ones(np.broadcast_shapes(*map(np.shape, (condition, a, b))))
            a, b = (v * alike if np.result_type(getattr(v, "dtype", v)).kind == "f" else v for v in (a, b))
            return anp.where(condition, a, b)

    return Differentiable()


def _of_slopes(function: Any, *slopes: Any) -> Any:
    """A function that autograd lacks, whose `slopes` take a gradient, the result and the operands."""
    from autograd.extend import defvjp, primitive
    from autograd.numpy.numpy_vjps import unbroadcast_f

    def rule(place: int, slope: Any) -> Any:
        return lambda r, *a: unbroadcast_f(a[place], lambda g: slope(g, r, *a))

    applied = primitive(lambda *a: function(*a))
    defvjp(applied, *(rule(place, slope) for place, slope in enumerate(slopes)))
    return applied


def _half(g: Any, chosen: Any, other: Any) -> Any:
    """What the larger of two operands gets of a gradient: all of it, and half where neither is."""
    return np.where(chosen > other, g, np.where(chosen < other, 0.0, 0.5 * g))


def _extreme(function: Any, axes: tuple[int, ...]) -> Any:
    """An extreme along some axes, whose places share its gradient; it reaches no other, though it be NaN."""
    from autograd.extend import defvjp, primitive

    def slope(extreme: Any, a: Any) -> Any:
        chosen = a == extreme
        return lambda g: np.where(chosen, g, 0.0) / np.sum(chosen, axis=axes, keepdims=True)

    applied = primitive(lambda a: function(a, axis=axes, keepdims=True))
    defvjp(applied, slope)
    return applied


def _product(axes: tuple[int, ...]) -> Any:
    """The product along some axes, of which autograd divides by each factor, 0 too."""
    from autograd.extend import defvjp, primitive

    def slope(product: Any, a: Any) -> Any:
        last = range(-len(axes), 0)
        flat = np.moveaxis(a, axes, last)
        rows = flat.reshape(-1, math.prod(flat.shape[n] for n in last))
        ones = np.ones((len(rows), 1), a.dtype)
        before = np.cumprod(np.concatenate([ones, rows], 1), 1)[:, :-1]
        behind = np.cumprod(np.concatenate([ones, rows[:, ::-1]], 1), 1)[:, -2::-1]
        others = np.moveaxis((before * behind).reshape(flat.shape), last, axes)
        return lambda g: g * others

    applied = primitive(lambda a: np.prod(a, axis=axes, keepdims=True))
    defvjp(applied, slope)
    return applied


def tolerances(problem: ProgramProblem, arrays: Mapping[str, Bounded], types: Mapping[str, ElementKind]) -> Flat:
    """The declared bound on the error of each element of each output, as arrays of rows x columns.

    ``c1 * u * |y| + c2 * E``, where u is the unit roundoff of the type the output is stored in and E the running error
    bound of the program in the accumulator's arithmetic.
    """
    spec, element = problem.spec, problem.element
    acc = element.row.acc.row
    names = {n: b.value for n, b in arrays.items()}
    environment = _environment(spec, problem.values, problem.space, names)
    inputs = {n: arrays[n] if n in arrays else _constant(v, acc.unit_roundoff) for n, v in environment.items()}
    casts = {"T": element.row.unit_roundoff, "acc": acc.unit_roundoff}
    casts |= {k: ElementKind(k).row.unit_roundoff for k in ("f16", "bf16", "f32", "f64")}
    tiny = smallest(acc) if spec.precision.subnormals == "keep" else acc.smallest_normal
    of_factors = problem.split, problem.least, problem.rounded
    arithmetic = Arithmetic(acc.unit_roundoff, tiny, problem.depth, casts, *of_factors)
    bounds = bound(_program(spec), inputs, problem.space, arithmetic)
    declared = {name: spec.bound_of(name, element) for name in spec.outputs}
    noise = _noise(problem, environment)
    copied = _copied(problem.spec)
    return {
        a: 0.0 if n in copied else stored(bounds[n].value, bounds[n].error, types[a], declared[n]) + noise.get(n, 0.0)
        for a, n in problem.results.items()
    }


def _copied(spec: ProgramSpec) -> frozenset[str]:
    """Outputs that are an input of their own type, and so are exact."""
    lines = {line.name: line.expr for line in _program(spec)}
    same = {name: spec.inputs[e.id].dtype for name, e in lines.items() if isinstance(e, Name) and e.id in spec.inputs}
    return frozenset(n for n, t in spec.outputs.items() if len(t.dtype) == 1 and same.get(n) == t.dtype)


def _noise(problem: ProgramProblem, names: Mapping[str, Any]) -> Flat:
    """How far the oracle itself may be off: a reference may cancel where the program does not."""
    if problem.spec.reference is None or wide_type(problem.element).kind != "f":
        return {}
    kind = np.finfo(wide_type(problem.element))
    arithmetic = Arithmetic(float(kind.eps), 0.0, lambda dims, count: float(count), dict.fromkeys(_CASTS, 0.0))
    exact = {n: Bounded(v, 0.0) for n, v in names.items()}
    bounds = bound(_reference_lines(problem.spec), exact, problem.space, arithmetic)
    return {n: np.where(np.isfinite(b.error), b.error, 0.0) for n, b in bounds.items()}


_CASTS = ("T", "acc", "f16", "bf16", "f32", "f64")


def _constant(value: Any, unit_roundoff: float) -> Bounded:
    wide = np.asarray(value, np.float64)
    with np.errstate(over="ignore"):
        exact = wide.astype(np.float32) == wide
    return Bounded(value, np.where(exact, 0.0, np.abs(wide) * unit_roundoff))
