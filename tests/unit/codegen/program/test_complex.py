"""Complex numbers: values against NumPy, bounds against exact arithmetic, gradients against differences, refusals."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from baracuda.codegen.program import Const, Line, ProgramError, Scope, kind_of, parse, to_source
from baracuda.codegen.program.bounds import Arithmetic, Bounded, bound
from baracuda.codegen.program.derive import derive
from baracuda.codegen.program.derived_lines import Forward
from baracuda.codegen.program.evaluate import evaluate
from baracuda.codegen.program.space import Space
from baracuda.codegen.program.tree import Axes
from baracuda.codegen.spec.functions import shipped_functions

EXTENTS = {"row": 3, "col": 4}
EACH = frozenset(EXTENTS)
KINDS = {"x": "complex", "w": "complex", "r": "float", "y": "complex", "o": "float"}
AXES = {"x": Axes(("row", "col"), Const(0.0))}
DIMS = {"x": EACH, "w": EACH, "r": EACH}
SCOPE = Scope(tuple(EXTENTS), DIMS, functions=shipped_functions(), axes=AXES, kinds=KINDS)
SPACE = Space(EXTENTS)
U = 2.0**-24
F32 = Arithmetic(U, 2.0**-149, lambda dims, count: float(count), {"T": U, "acc": U})

# What programs say, and what NumPy makes of complex x and w and of real r.
VALUES = {
    "y = x + w": lambda x, w, r: x + w,
    "y = r - x": lambda x, w, r: r - x,
    "y = x * r": lambda x, w, r: x * r,
    "y = r * x * 2": lambda x, w, r: 2 * r * x,
    "y = x * w": lambda x, w, r: x * w,
    "y = x * conj(w)": lambda x, w, r: x * np.conj(w),
    "y = conj(x) * w": lambda x, w, r: np.conj(x) * w,
    "y = conj(x) * conj(w)": lambda x, w, r: np.conj(x * w),
    "y = x / w": lambda x, w, r: x / w,
    "y = r / x": lambda x, w, r: r / x,
    "y = x / r": lambda x, w, r: x / r,
    "y = -x": lambda x, w, r: -x,
    "y = fma(x, w, r)": lambda x, w, r: x * w + r,
    "y = x ** 5": lambda x, w, r: x**5,
    "y = (x + w) ** 2": lambda x, w, r: (x + w) ** 2,
    "y = exp(x)": lambda x, w, r: np.exp(x),
    "y = log(x)": lambda x, w, r: np.log(x),
    "y = sqrt(x)": lambda x, w, r: np.sqrt(x),
    "y = rsqrt(x)": lambda x, w, r: 1 / np.sqrt(x),
    "y = sin(x)": lambda x, w, r: np.sin(x),
    "y = cos(x)": lambda x, w, r: np.cos(x),
    "y = sinh(x)": lambda x, w, r: np.sinh(x),
    "y = cosh(x)": lambda x, w, r: np.cosh(x),
    "y = exp2(x)": lambda x, w, r: np.exp2(x),
    "y = exp10(x)": lambda x, w, r: np.exp(x * np.log(10)),
    "y = log2(x)": lambda x, w, r: np.log2(x),
    "y = log10(x)": lambda x, w, r: np.log10(x),
    "y = tan(x)": lambda x, w, r: np.tan(x),
    "y = tanh(x)": lambda x, w, r: np.tanh(x),
    "y = pow(x, w)": lambda x, w, r: np.power(x, w),
    "y = pow(x, 1.5)": lambda x, w, r: np.power(x, 1.5),
    "y = pow(abs(r), w)": lambda x, w, r: np.power(np.abs(r).astype(complex), w),
    "y = square(x) + reciprocal(w)": lambda x, w, r: x * x + 1 / w,
    "y = complex(r, imag(x))": lambda x, w, r: r + 1j * x.imag,
    "y = where(r > 0.0, x, r)": lambda x, w, r: np.where(r > 0, x, r),
    "y = where(x == w or x != x, 1.0, x)": lambda x, w, r: x,
    "y = r": lambda x, w, r: r + 0j,
    "t = x * w\ny = t - conj(t) + T(t)": lambda x, w, r: 2 * x * w - np.conj(x * w),
    "y = sum(x * w, col)": lambda x, w, r: np.sum(x * w, 1, keepdims=True),
    "y = mean(exp(x), row, col)": lambda x, w, r: np.mean(np.exp(x), keepdims=True),
    "y = x - mean(x, col)": lambda x, w, r: x - np.mean(x, 1, keepdims=True),
    "y = x[row, col - 1]": lambda x, w, r: np.pad(x, ((0, 0), (1, 0)))[:, :-1],
    "o = real(x) - imag(w)": lambda x, w, r: x.real - w.imag,
    "o = abs(x)": lambda x, w, r: np.abs(x),
    "o = angle(x)": lambda x, w, r: np.angle(x),
    "o = real(x * conj(x))": lambda x, w, r: np.abs(x) ** 2,
    "o = norm2(x, col)": lambda x, w, r: np.linalg.norm(x, axis=1, keepdims=True),
    "o = norm1(x, col)": lambda x, w, r: np.sum(np.abs(x), 1, keepdims=True),
    "o = var(x, col)": lambda x, w, r: np.var(x, 1, keepdims=True),
    "o = max(abs(x), col)": lambda x, w, r: np.max(np.abs(x), 1, keepdims=True),
    "o = where(isnan(x), 1.0, real(r) + imag(r))": lambda x, w, r: r,
}


def _arrays(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    re, im = rng.normal(size=(2, 2, *EXTENTS.values()))
    arrays: dict[str, Any] = {"x": re[0] + 1j * im[0], "w": re[1] + 1j * im[1], "r": rng.normal(size=(3, 4))}
    arrays["x"][0, :3] = 1.5j, -1.5j, 2.0  # where formulas change sides
    return arrays


def _kinds(lines: tuple[Line, ...]) -> dict[str, str]:
    kinds = {name: kind for name, kind in KINDS.items() if name in SCOPE.values}
    for line in lines:
        kinds[line.name] = kind_of(line.expr, kinds)
    return kinds


@pytest.mark.parametrize("program", VALUES)
def test_values_are_those_of_numpy(program: str) -> None:
    lines, arrays = parse(program, SCOPE), _arrays()
    name = lines[-1].name
    found = evaluate(lines, arrays, SPACE)[name]
    assert _kinds(lines)[name] == KINDS[name]
    expected = VALUES[program](**arrays)
    np.testing.assert_allclose(np.broadcast_to(found, expected.shape), expected, 1e-12, 1e-13)


@pytest.mark.parametrize("program", VALUES)
def test_printed_lines_are_read_as_the_same_program(program: str) -> None:
    lines = parse(program, SCOPE)
    again = parse("\n".join(f"{line.name} = {to_source(line.expr)}" for line in lines), SCOPE)
    assert [(line.name, line.expr) for line in again] == [(line.name, line.expr) for line in lines]


def test_what_is_copied_stays_one_element() -> None:
    assert [to_source(line.expr) for line in parse("y = x", SCOPE)] == ["x"]
    assert [to_source(line.expr) for line in parse("y = complex(real(x), imag(x))", SCOPE)] == ["x"]


def test_conjugates_cost_nothing() -> None:
    by_hand = "o = real(x) * real(x) + imag(x) * imag(x)"
    assert parse("o = real(x * conj(x))", SCOPE) == parse("o = real(conj(x) * x)", SCOPE) == parse(by_hand, SCOPE)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("o = where(x < w, 1.0, 0.0)", "< takes real numbers, got a complex one; take abs(x), real(x) or imag(x)"),
        ("y = maximum(x, w)", "maximum takes real numbers, got a complex one; take abs(x), real(x) or imag(x)"),
        ("y = floor(x)", "floor takes real numbers, got a complex one; take abs(x), real(x) or imag(x)"),
        ("y = atan2(x, r)", "atan2 takes real numbers, got a complex one; take abs(x), real(x) or imag(x)"),
        ("y = x % 2", "% takes real numbers, got a complex one; take abs(x), real(x) or imag(x)"),
        ("y = max(x, col)", "max takes real numbers, got complex ones; take abs(x), real(x) or imag(x)"),
        ("o = argmin(x, col)", "argmin takes real numbers, got complex ones; take abs(x), real(x) or imag(x)"),
        ("y = prod(x, col)", "prod takes real numbers, got complex ones; write exp(sum(log(x), dim))"),
        ("y = where(x, w, r)", "where takes real numbers, got a complex one; its condition is a bool, as x != 0"),
        ("y = complex(x, r)", "complex takes two real numbers, got a complex one; add it, as in x + complex(0, y)"),
        ("o = x", "'o' is complex, and its dtype takes real numbers only; take abs(x), real(x) or imag(x)"),
        ("y = x + 2j", "'2j' is not allowed here; the imaginary unit is complex(0, 1)"),
        ("y = relu(x)", "<= takes real numbers, got a complex one; take abs(x), real(x) or imag(x)"),
        ("y = x[row, col * real(x)]", "'x' is read at 'col * real(x)' along col, which is a float; a place is an int"),
    ],
)
def test_what_has_no_meaning_is_refused(program: str, message: str) -> None:
    with pytest.raises(ProgramError) as error:
        _kinds(parse(f"first = r\n{program}", SCOPE))
    assert str(error.value).startswith(message)


# Parts that cancel in products, and that are far from or near to each other, to one and to the axes.
_PARTS = [1.0, 1 + 2.0**-20, -1.0 - 2.0**-23, 3e-6, -2.0**-30, 7e8, 0.0, -0.0]


def _adversarial() -> tuple[Any, Any]:
    numbers = np.array([a + 1j * b for a, b in product(_PARTS, repeat=2)], np.complex64)
    x, w = (part.reshape(-1) for part in np.meshgrid(numbers, numbers))
    return x, w


def _bounded(program: str, x: Any, w: Any) -> tuple[Any, Bounded]:
    """What single precision makes of a program, and its exact value with the bound."""
    space, scope = Space({"cell": x.size}), Scope(("cell",), dict.fromkeys("xw", frozenset({"cell"})), kinds=KINDS)
    lines = parse(program, scope)
    wide = {"x": Bounded(x.astype(np.complex128), 0.0), "w": Bounded(w.astype(np.complex128), 0.0)}
    name = lines[-1].name
    return evaluate(lines, {"x": x, "w": w}, space)[name], bound(lines, wide, space, F32)[name]


@pytest.mark.parametrize(
    "program",
    ["y = x * w", "y = x * conj(w)", "y = x / w", "y = 1 / x", "y = sqrt(x)", "y = rsqrt(x)", "y = x**3", "o = abs(x)",
     "y = tanh(x)", "y = tan(x)"],
)
def test_each_part_is_within_its_own_bound(program: str) -> None:
    x, w = _adversarial()
    x, w = (v[(w != 0) & (x != 0)] for v in (x, w))
    found, exact = _bounded(program, x, w)
    for part in (np.real, np.imag) if np.iscomplexobj(found) else (np.real,):
        value, error = part(exact.value), np.broadcast_to(part(exact.error), found.shape)
        off = np.abs(part(found).astype(np.float64) - value)
        assert np.isfinite(error).all() and (off <= error).all()
        # It could be exceeded. NumPy's functions are far more accurate than CUDA's, of which tanh multiplies several.
        assert (off[error > 0] / error[error > 0]).max() > (0.03 if "tan" in program else 0.05)


def test_a_part_that_cancels_is_bounded_by_what_cancels() -> None:
    """The exact product is that of fractions; a bound relative to the part would be exceeded by far."""
    a, b = np.float32(1 + 2.0**-12), np.float32(1 + 2.0**-11)
    x, w = np.array([a + 1j * b], np.complex64), np.array([a + 1j * (a * a / b)], np.complex64)
    found, exact = _bounded("y = x * w", x, w)
    parts = [Fraction(float(part)) for part in (x.real[0], x.imag[0], w.real[0], w.imag[0])]
    off = abs(Fraction(float(found.real[0])) - (parts[0] * parts[2] - parts[1] * parts[3]))
    assert abs(float(found.real[0])) * U < off <= Fraction(float(exact.error.real[0]))


def test_neither_quotients_nor_absolute_values_overflow_on_the_way() -> None:
    huge, tiny = np.complex64(3e38 + 1e38j), np.complex64(2e-38 - 1e-38j)
    space, scope = Space({"cell": 1}), Scope(("cell",), dict.fromkeys("xw", frozenset({"cell"})), kinds=KINDS)
    for program, expected in (
        ("o = abs(x)", lambda z: np.abs(np.complex128(z))),
        ("y = w / x", lambda z: 1 / np.complex128(z)),
        ("y = sqrt(x)", lambda z: np.sqrt(np.complex128(z))),
        ("o = real(x / x)", lambda z: 1.0),
    ):
        for z in (huge, tiny) if "w / x" not in program else (tiny,):
            arrays = {"x": np.array([z]), "w": np.array([1], np.complex64)}
            lines = parse(program, scope)
            found = evaluate(lines, arrays, space)[lines[-1].name][0]
            np.testing.assert_allclose(found, expected(z), 1e-6)


@pytest.mark.parametrize(
    ("program", "x", "expected"),
    [
        ("y = tanh(x)", 200 - 0.3j, complex(1, -0.0)), ("y = tanh(x)", -200 - 0.3j, complex(-1, -0.0)),
        ("y = tanh(x)", -0.0 + 0j, -0.0 + 0j),
        ("y = tanh(x)", complex(np.inf, np.inf), 1 + 0j), ("y = tanh(x)", complex(-np.inf, np.nan), -1 + 0j),
        ("y = tanh(x)", complex(-0.0, 1.5), complex(-0.0, np.tan(1.5))), ("y = tan(x)", 1 + 200j, 0 + 1j),
        ("y = tan(x)", complex(np.nan, -np.inf), complex(0, -1)),
        ("y = tan(x)", complex(-0.0, -0.0), complex(-0.0, -0.0)),
        ("y = pow(x, 0.0)", 0j, 1 + 0j), ("y = pow(x, 2.5)", 0j, 0j), ("y = pow(x, 0.5)", complex(-4, -0.0), -2j),
        ("y = log2(x)", complex(0, 0), complex(-np.inf, 0)), ("y = log2(x)", complex(-8, -0.0), 3 - 4.532360141827194j),
    ],
)  # fmt: skip
def test_edges_are_those_of_c(program: str, x: complex, expected: complex) -> None:
    scope = Scope(("cell",), {"x": frozenset({"cell"})}, kinds=KINDS)
    (found,) = evaluate(parse(program, scope), {"x": np.array([x])}, Space({"cell": 1}))["y"]
    np.testing.assert_allclose([found.real, found.imag], [expected.real, expected.imag], 1e-14, 1e-14)
    if expected.imag == 0:
        assert np.signbit(found.imag) == np.signbit(expected.imag)
    if expected.real == 0 and "pow" not in program:
        assert np.signbit(found.real) == np.signbit(expected.real)


@pytest.mark.parametrize("program", ["y = tanh(x)", "y = tan(x)", "y = pow(x, 2.5)"])
def test_gradients_have_no_nan_where_functions_are_flat(program: str) -> None:
    lines = parse(program, SCOPE)
    forward = Forward(lines, _kinds(lines), {**DIMS, "dy": EACH}, tensors={"x": ("row", "col"), "dy": ("row", "col")})
    x = np.zeros((3, 4), complex) + (0 if "pow" in program else 900 if "tanh" in program else 900j)
    found = evaluate(derive(forward, {"dy": "y"}, {"dx": "x"}, ()), {"x": x, "dy": np.ones((3, 4), complex)}, SPACE)
    assert not np.any(found["dx"])


def _loss(lines: tuple[Line, ...], arrays: dict[str, Any], name: str) -> float:
    value = evaluate(lines, arrays, SPACE)[name]
    dy = np.broadcast_to(arrays[f"d{name}"], np.broadcast_shapes(np.shape(value), (1, 1)))
    return float(np.sum(np.real(np.conj(dy) * value)))


@pytest.mark.parametrize("program", [p for p in VALUES if not p.startswith(("y = r\n", "y = where(x =="))])
def test_gradients_are_those_of_both_parts(program: str) -> None:
    """As torch's: the gradient of x is the slope along its real part, plus i times that along its imaginary part."""
    lines, arrays = parse(program, SCOPE), _arrays(seed=3)
    name, kinds = lines[-1].name, _kinds(lines)
    value = np.asarray(evaluate(lines, arrays, SPACE)[name])
    dims = {"x": EACH, "w": EACH, "r": EACH} | {f"d{name}": EACH if value.shape == (3, 4) else frozenset[str]()}
    if value.shape == (3, 1):
        dims[f"d{name}"] = frozenset({"row"})
    rng = np.random.default_rng(4)
    arrays[f"d{name}"] = rng.normal(size=value.shape) + (1j * rng.normal(size=value.shape) if name == "y" else 0.0)
    tensors = {"x": ("row", "col"), f"d{name}": tuple(d for d in EXTENTS if d in dims[f"d{name}"])}
    forward = Forward(lines, kinds, dims, tensors=tensors)
    wrt = {f"d_{source}": source for source in "xwr"}
    found = evaluate(derive(forward, {f"d{name}": name}, wrt, ()), arrays, SPACE)
    for gradient, source in wrt.items():
        expected = np.zeros(arrays[source].shape, arrays[source].dtype)
        for place in np.ndindex(expected.shape):
            for unit in (1.0, 1j) if source != "r" else (1.0,):
                losses = []
                for step in (1e-6, -1e-6):
                    moved = {**arrays, source: arrays[source].copy()}
                    moved[source][place] += step * unit
                    losses.append(_loss(lines, moved, name))
                expected[place] += unit * (losses[0] - losses[1]) / 2e-6
        value = np.broadcast_to(found[gradient], expected.shape)
        np.testing.assert_allclose(value, expected, 1e-6, 1e-6, err_msg=gradient)
