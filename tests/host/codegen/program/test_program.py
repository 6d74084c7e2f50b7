"""The program language: text and tree agree, and so do its readings, with CUDA, with NumPy and with the error bound."""

from __future__ import annotations

import ctypes
import math
import random
import re
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baracuda.codegen.conditions.parse import ConditionError, evaluate_condition, read_condition
from baracuda.codegen.program import (
    Call,
    Const,
    Expr,
    Line,
    Name,
    ProgramError,
    Reduce,
    Scope,
    kind_of,
    parse,
    parse_expression,
    to_source,
)
from baracuda.codegen.program.bounds import Arithmetic, Bounded, bound
from baracuda.codegen.program.cuda import to_cuda
from baracuda.codegen.program.evaluate import evaluate
from baracuda.codegen.program.ops import OPS, NumPy
from baracuda.codegen.program.reductions import reduce as reduce_values
from baracuda.codegen.program.space import Space
from baracuda.codegen.program.tree import Cast, Query, walk
from baracuda.runtime.device import KernelSource
from baracuda.runtime.devices.named import get_device

DIMS = ("rows", "cols")
EACH = frozenset(DIMS)
FLOATS, INTS, BOOLS = ("a", "b", "c"), ("i", "j"), ("f",)
KINDS = {**dict.fromkeys(FLOATS, "float"), "s": "float", **dict.fromkeys(INTS, "int"), "n": "int", "f": "bool"}
SCOPE = Scope(DIMS, {**dict.fromkeys((*FLOATS, *INTS), EACH), "s": frozenset(), "n": frozenset(), "f": frozenset()},
              frozenset({"g"}))  # fmt: skip
EXACT = ("abs", "sqrt", "safe_sqrt", "floor", "ceil", "round", "trunc", "stop_gradient")
INEXACT = tuple(o for o in OPS if OPS[o].rounding > 1)
JUMPING = ("fmod", "copysign")
COMPARE = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
BITS = ("floor_divide", "remainder", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")


class Trees:
    """Random trees that the language would accept; `functions` are the float functions they may call."""

    def __init__(self, chance: random.Random, functions: tuple[str, ...] = EXACT, everything: bool = False) -> None:
        self.chance, self.functions, self.everything = chance, functions, everything

    def number(self, depth: int) -> Expr:
        return self.whole(depth) if self.chance.randrange(4) == 0 else self.real(depth)

    def real(self, depth: int) -> Expr:
        pick = self.chance.choice
        if depth == 0 or self.chance.randrange(8) == 0:
            return Name(pick((*FLOATS, "s"))) if self.chance.randrange(3) else Const(self._literal())
        match self.chance.randrange(10 if self.everything else 8):
            case 0 | 1 | 2:
                return Call(pick(("add", "sub", "mul")), self._one_real(depth - 1))
            case 3:
                return Call("div", (self.number(depth - 1), self.number(depth - 1)))
            case 4:
                return _negated(self.real(depth - 1))
            case 5:
                function = pick(self.functions)
                return Call(function, tuple(self.real(depth - 1) for _ in range(OPS[function].arity)))
            case 6:
                return Call("where", (self.truth(depth - 1), *self._one_real(depth - 1)))
            case 7:  # adding zero settles the sign of a zero, on which NumPy and C++ need not agree
                extreme = Call(pick(("maximum", "minimum")), self._one_real(depth - 1))
                return Call("add", (extreme, Const(0.0)))
            case 8:
                kind = pick(("sum", "mean", "var", "max", "min"))
                return self._reduced(kind, (self.number if kind in ("mean", "var") else self.real)(depth - 1))
        return Cast(pick(("acc", "f16", "bf16", "f32")), self.number(depth - 1))

    def _one_real(self, depth: int) -> tuple[Expr, Expr]:
        pair = [self.real(depth), self.number(depth)]
        self.chance.shuffle(pair)
        return pair[0], pair[1]

    def _reduced(self, kind: str, of: Expr) -> Expr:
        return Reduce(kind, of, self.chance.choice(((DIMS[0],), (DIMS[1],), DIMS)))

    def _literal(self) -> float:
        return self.chance.choice((0.0, -0.0, 1.0, 0.5, -2.5, 1e-6, 3.0, 0.1, 1e30, -7e-30))

    def whole(self, depth: int) -> Expr:
        pick = self.chance.choice
        if depth == 0 or self.chance.randrange(8) == 0:
            leaf = pick(("name", "name", "const", "query"))
            if leaf == "query":
                return Query(pick(("index", "size")), pick(DIMS))
            return (
                Name(pick((*INTS, "n"))) if leaf == "name" else Const(pick((0, 1, -1, 2, 7, -64, 64, 2**40, 2**63 - 1)))
            )
        match self.chance.randrange(7 if self.everything else 6):
            case 6:
                return self._reduced(pick(("sum", "max", "min")), self.whole(depth - 1))
            case 0 | 1:
                op = pick(BITS)
            case 5:
                return Call("philox", (self.whole(0), self.whole(0), self.whole(depth - 1)))
            case 2:
                op = pick(("add", "sub", "mul", "maximum", "minimum"))
            case 3:
                return Call("where", (self.truth(depth - 1), self.whole(depth - 1), self.whole(depth - 1)))
            case _:
                inner = self.whole(depth - 1)
                return _negated(inner) if self.chance.randrange(2) else Call(pick(("abs", "invert")), (inner,))
        return Call(op, (self.whole(depth - 1), self.whole(depth - 1)))

    def truth(self, depth: int) -> Expr:
        pick = self.chance.choice
        if depth == 0:
            return pick((Name("f"), Query("present", "g"), Const(True), Const(False)))
        match self.chance.randrange(6):
            case 0:
                return Call("isnan", (self.real(depth - 1),))
            case 1:
                return Call("logical_not", (self.truth(depth - 1),))
            case 2:
                return Call(pick(("logical_and", "logical_or")), (self.truth(depth - 1), self.truth(depth - 1)))
        return Call(pick(COMPARE), (self.number(depth - 1), self.number(depth - 1)))

    def any(self, depth: int) -> Expr:
        return self.chance.choice((self.real, self.real, self.whole, self.truth))(depth)


def _negated(expr: Expr) -> Expr:
    """As the parser has it, for which the minus before a literal is a part of the literal."""
    if isinstance(expr, Const) and math.copysign(1, expr.value) > 0:
        return Const(-expr.value)
    return Call("neg", (expr,))


@settings(max_examples=300)
@given(st.randoms(use_true_random=False))
def test_parsing_what_is_printed_gives_the_tree_back(chance: random.Random) -> None:
    """`to_source` and `parse_expression` are inverse; types and signs of literals count."""
    tree = Trees(chance, (*EXACT, *INEXACT), everything=True).any(4)
    text = to_source(tree)
    assert repr(parse_expression(text, SCOPE)) == repr(tree), text
    kind_of(tree, KINDS)


@settings(max_examples=300)
@given(st.text(alphabet="abijnsf01.+-*/%<>=!&|^~(), \nxeyTsum[]{}'\"\\:;_", max_size=60))
def test_any_text_is_a_program_or_a_program_error(text: str) -> None:
    """No text makes the parser fail in a way of its own, and every message is one line."""
    for read in (lambda: parse(text, SCOPE), lambda: parse_expression(text, SCOPE)):
        try:
            read()
        except ProgramError as error:
            assert "\n" not in str(error)
    try:
        read_condition(text, ("n", "shape"))
    except ConditionError as error:
        assert "\n" not in str(error)


# The CUDA reading, compiled for the host device, against the NumPy reading.

ROWS, COLS = 12, 24
SPECIAL = (0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 5e-324, -1e-310, 1.7e308, -1e300,
           1e-300, 2.0**53, 9007199254740993.0, 0.1, -3.7)  # fmt: skip
WHOLE = (0, 1, -1, 2, -2, 3, 7, -7, 31, 63, 64, 65, -63, -64, 2**31, -(2**31), 2**53 + 1, 2**62, -(2**62), 2**63 - 1,
         -(2**63))  # fmt: skip
SPACE = Space({"rows": ROWS, "cols": COLS}, frozenset({"g"}))

KERNEL = """
#include <baracuda/element.cuh>
#include <baracuda/math.cuh>
using namespace baracuda;
struct Args {
    const double *a, *b, *c;
    const long long *i, *j;
    double s;
    long long n, f, size_rows, size_cols;
    double* out;
};
constexpr bool HAS_G = true;
using T = double;
using acc_t = double;
struct Names {
    double a, b, c;
    long long i, j;
    double s;
    long long n;
    bool f;
    long long size_rows, size_cols, index_rows, index_cols;
};
%s
extern "C" __global__ void k(const Args args) {
    const long long count = args.size_rows * args.size_cols;
    for (long long at = 0; at < count; ++at) {
        const Names n = {args.a[at], args.b[at], args.c[at], args.i[at], args.j[at], args.s, args.n, args.f != 0,
            args.size_rows, args.size_cols, at / args.size_cols, at %% args.size_cols};
%s
    }
}
"""
FUNCTION = """__device__ {type} e{at}(const Names& names) {{
    const auto [a_, b_, c_, i_, j_, s_, n_, f_, rows_size, cols_size, rows_index, cols_index] = names;
    return {text};
}}
"""
STORE = "        reinterpret_cast<{type}*>(args.out)[{at} * count + at] = e{at}(n);\n"
C_TYPE = {"float": "double", "int": "long long", "bool": "long long"}


def _inputs(chance: np.random.Generator) -> dict[str, Any]:
    shape = (ROWS, COLS)
    names: dict[str, Any] = {}
    for name in FLOATS:
        random_ones = chance.standard_normal(shape) * 10.0 ** chance.integers(-12, 12, shape)
        names[name] = np.where(chance.random(shape) < 0.5, chance.choice(SPECIAL, shape), random_ones)
    for name in INTS:
        random_ones = chance.integers(-(2**63), 2**63 - 1, shape) >> chance.integers(0, 63, shape)
        names[name] = np.where(chance.random(shape) < 0.6, chance.choice(np.array(WHOLE), shape), random_ones)
    return {**names, "s": 0.75, "n": -5, "f": True}


def _run_on_the_host(trees: list[Expr], names: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    types = [C_TYPE[kind_of(tree, KINDS)] for tree in trees]
    functions = "".join(
        FUNCTION.format(type=c, at=at, text=to_cuda(t, KINDS))
        for at, (t, c) in enumerate(zip(trees, types, strict=True))
    )
    stores = "".join(STORE.format(type=c, at=at) for at, c in enumerate(types))
    out = np.zeros((len(trees), ROWS, COLS))
    arrays = [np.ascontiguousarray(names[n]) for n in (*FLOATS, *INTS)]
    words = np.zeros(11, np.int64)
    words[:5] = [a.ctypes.data for a in arrays]
    words[5:6].view(np.float64)[:] = names["s"]
    words[6:] = names["n"], names["f"], ROWS, COLS, out.ctypes.data
    kernel = get_device("host").load(KernelSource("tests/expressions.cu", KERNEL % (functions, stores), "k"))
    kernel.launch((1, 1, 1), 1, words.ctypes.data_as(ctypes.c_void_p).value or 0, words.nbytes, 0)
    return [row if c == "double" else row.view(np.int64) for row, c in zip(out, types, strict=True)]


def _in_numpy(tree: Expr, names: dict[str, Any]) -> np.ndarray[Any, Any]:
    value = evaluate([Line("y", tree)], names, SPACE)["y"]
    wanted = np.float64 if kind_of(tree, KINDS) == "float" else np.int64
    return np.broadcast_to(np.asarray(value).astype(wanted), (ROWS, COLS))


@pytest.mark.parametrize("seed", range(3))
def test_cuda_and_numpy_read_exact_operators_alike(seed: int) -> None:
    """Bit for bit: arithmetic, integers, comparisons, choices, also of infinities, NaN, -0 and overflowing integers."""
    trees = [Trees(random.Random(1000 * seed + at)).any(4) for at in range(100)]
    names = _inputs(np.random.default_rng(seed))
    for tree, got in zip(trees, _run_on_the_host(trees, names), strict=True):
        expected = _in_numpy(tree, names)
        same = got.view(np.int64) == expected.copy().view(np.int64)
        same |= (got != got) & (expected != expected)
        where = tuple(np.argwhere(~same)[0]) if not same.all() else ()
        assert same.all(), (
            to_source(tree),
            {n: np.asarray(v)[where] for n, v in names.items() if np.ndim(v)},
            got[where],
        )


def test_every_operator_alone() -> None:
    """Each integer and float operator on every pair of the values that matter; each inexact function within 4 ulp."""
    i, j, a, b = map(Name, "ijab")
    exact = [Call(op, (i, j)) for op in (*BITS, "add", "sub", "mul", "div", "maximum", "minimum", *COMPARE)]
    exact += [Call(op, (a, b)) for op in ("add", "sub", "mul", "div", *COMPARE)]
    exact += [Call(op, (x,)) for op in EXACT for x in (a, i)] + [Call("neg", (i,)), Call("invert", (i,))]
    exact += [Call("philox", (i, j, x)) for x in (i, j)]
    inexact = [Call(op, (x, b)[: OPS[op].arity]) for op in INEXACT for x in (a, i)]
    whole = np.array([(x, y) for x in WHOLE for y in WHOLE])
    real = np.array([(x, y) for x in SPECIAL for y in SPECIAL])
    for part in range(0, len(whole), ROWS * COLS):
        names = _inputs(np.random.default_rng(part))
        for at, name in enumerate("ij"):
            names[name] = np.resize(whole[part:, at], (ROWS, COLS))
        for at, name in enumerate("ab"):
            names[name] = np.resize(real[part:, at], (ROWS, COLS))
        for tree, got in zip(exact + inexact, _run_on_the_host(exact + inexact, names), strict=True):
            expected = _in_numpy(tree, names)
            same = (got == expected) | ((got != got) & (expected != expected))
            if tree in inexact:
                same |= np.abs(_ordered(got) - _ordered(expected)) <= 4
            assert same.all(), to_source(tree)


def _philox(keys: tuple[int, int], counter: tuple[int, ...]) -> tuple[int, ...]:
    """Philox4x32-10 in Python's integers."""
    (a, b, c, d), (key, other), low = counter, keys, 0xFFFFFFFF
    for _ in range(10):
        first, second = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (second >> 32) ^ b ^ key, second & low, (first >> 32) ^ d ^ other, first & low
        key, other = key + 0x9E3779B9 & low, other + 0xBB67AE85 & low
    return a, b, c, d


def test_philox_gives_its_authors_numbers() -> None:
    """Two vectors that come with Random123, the authors' implementation; then any seed, offset and element."""
    zeros = (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    pi = (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)
    assert _philox((0, 0), (0, 0, 0, 0)) == zeros
    assert _philox((0xA4093822, 0x299F31D0), (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)) == pi
    lines = parse("y = philox(s, o, e)", Scope(("x",), dict.fromkeys("soe", frozenset())))
    low, chance = 0xFFFFFFFF, random.Random(0)
    for _ in range(50):
        seed, offset, element = (chance.getrandbits(64) for _ in "soe")
        key, block = (seed & low, seed >> 32), element >> 2
        words = _philox(key, (block & low, block >> 32, offset & low, offset >> 32))
        names = {n: np.uint64(v).astype(np.int64) for n, v in zip("soe", (seed, offset, element), strict=True)}
        assert evaluate(lines, names, Space({"x": 1}))["y"] == words[element & 3]


def _ordered(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Doubles as whole numbers in the same order, neighbours one apart."""
    bits = values.astype(np.float64).view(np.int64)
    return np.where(bits < 0, -(bits & (2**63 - 1)), bits).astype(np.longdouble)


def test_fma_rounds_once() -> None:
    """`fma` is the one product that is not rounded."""
    names = _inputs(np.random.default_rng(5))
    for name in FLOATS:
        names[name] = np.random.default_rng(ord(name)).standard_normal((ROWS, COLS))
    names["c"] = -names["a"] * names["b"]  # only the rounding of the product is left
    (got,) = _run_on_the_host([Call("fma", tuple(map(Name, FLOATS)))], names)
    for value, *of in zip(got.flat, *(names[n].flat for n in FLOATS), strict=True):
        x, y, z = map(Fraction, of)
        assert value == float(x * y + z)


def test_ints_of_floats() -> None:
    """A kernel's `i64` is the oracle's."""
    names = _inputs(np.random.default_rng(6))
    edges = [0.0, -0.7, 2.5, -1e18, 2.0**62, 2.0**63, -(2.0**63), -1e300, np.inf, -np.inf, np.nan]
    values = np.resize(np.array(edges), names["a"].shape)
    names["a"] = values
    (got,) = _run_on_the_host([Call("i64", (Name("a"),))], names)
    assert np.array_equal(got, 1.0 * NumPy.whole(values))


@pytest.mark.parametrize("kind", ["sum", "mean", "max"])
def test_reducing_a_plain_number_rounds_nothing(kind: str) -> None:
    """A descriptor's field is Python's int or float, and a program of f64 sees all its digits."""
    tree = Reduce(kind, Name("c"), ("x",))
    value = evaluate([Line("y", tree)], {"c": 1 / 3}, Space({"x": 3}))["y"]
    assert value.item() == np.longdouble(1 / 3) * (3 if kind == "sum" else 1)


@pytest.mark.parametrize(
    ("text", "cuda"),
    [
        ("(a + b) + c", "a + b + c"),
        ("a + (b + c)", "a + (b + c)"),
        ("a - (b - c)", "a - (b - c)"),
        ("a - b - c", "a - b - c"),
        ("a * (b / c)", "a * (b / c)"),
        ("a / b * c", "a / b * c"),
        ("(a + b) * c", "(a + b) * c"),
        ("-(a + b)", "-(a + b)"),
        ("-a ** 2", "-(a * a)"),
        ("(-a) ** 3", "-a * -a * -a"),
        ("- -a", "-(-a)"),
        ("a - -b", "a - -b"),
        ("a - -1.5", "a - acc_t(-1.5)"),
        ("i - -1", "math::subtract(i, (-1ll))"),
        ("~-i", "~math::subtract(0ll, i)"),
        ("i // j // n", "math::floor_divide(math::floor_divide(i, j), n)"),
        ("i << j + 1", "math::left_shift(i, math::add(j, 1ll))"),
        ("i / j", "acc_t(i) / acc_t(j)"),
        ("i * j + a", "acc_t(math::multiply(i, j)) + a"),
        ("i < a", "acc_t(i) < a"),
        ("a < b < c", "a < b && b < c"),
        ("a < b and (b < c or f)", "a < b && (b < c || f)"),
        ("not f and f", "!f && f"),
        ("where(f, i, a) * b", "(f ? acc_t(i) : a) * b"),
        ("where(where(f, f, f), a, where(f, b, c))", "(f ? f : f) ? a : (f ? b : c)"),
        ("where(present(g), index(cols), size(rows))", "HAS_G ? cols_index : rows_size"),
        ("floor(i)", "math::floor(acc_t(i))"),
        ("maximum(i, j)", "math::maximum(i, j)"),
        ("maximum(i, a)", "math::maximum(acc_t(i), a)"),
        ("f16(a) + bf16(i) + T(b)", "acc_t(float(f16(a))) + acc_t(float(bf16(acc_t(i)))) + acc_t(T(b))"),
        ("acc(a) + f32(a) + f64(a)", "acc_t(a) + acc_t(float(a)) + acc_t(double(a))"),
    ],
)
def test_the_order_of_operations_is_the_authors(text: str, cuda: str) -> None:
    """The CUDA text groups as the program's text does, whatever the two languages' precedences; names end in `_`."""
    assert to_cuda(parse_expression(text, SCOPE), KINDS) == re.sub(r"\b[abcfijn]\b", r"\g<0>_", cuda)


@pytest.mark.parametrize(
    ("text", "scales"),
    [
        ("erfc(a)", True),
        ("0.5 * a * erfc(-a) * b", True),
        ("-(a * -erfc(a + 1))", True),
        ("1 - erfc(a)", False),
        ("a * (erfc(a) + b)", False),
        ("erfc(a) * erfc(b)", False),
        ("exp(erfc(a))", False),
        ("where(f, erfc(a), b)", False),
        ("a * erfc(erfc(b))", False),
    ],
)
def test_a_function_keeps_what_its_result_does(text: str, scales: bool) -> None:
    """Where its value is only multiplied before it is stored, the result's rounding hides its last bits."""
    expr = parse_expression(text, SCOPE)
    assert ("erfc_for<T>" in to_cuda(expr, KINDS, stored=True)) == scales
    assert "erfc_for" not in to_cuda(expr, KINDS)


def test_grouping_is_seen_in_the_value() -> None:
    """(a + b) + c and a + (b + c) are two programs with two results, in both readings."""
    trees = [parse_expression(text, SCOPE) for text in ("(a + b) + c", "a + (b + c)")]
    names = _inputs(np.random.default_rng(0))
    names |= {n: np.full((ROWS, COLS), v) for n, v in zip(FLOATS, (1e16, -1e16, 1.0), strict=True)}
    assert [float(_in_numpy(t, names)[0, 0]) for t in trees] == [1.0, 0.0]
    assert [float(got[0, 0]) for got in _run_on_the_host(trees, names)] == [1.0, 0.0]


@pytest.mark.parametrize("cast", ["T", "acc", "f16", "bf16", "f32", "f64"])
def test_every_cast_compiles(cast: str) -> None:
    """A cast rounds to its type, for every accumulator."""
    types = {"T": np.float64, "acc": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
             "f32": np.float32, "f64": np.float64}  # fmt: skip
    names = _inputs(np.random.default_rng(1))
    for name in FLOATS:
        names[name] = np.random.default_rng(7).standard_normal((ROWS, COLS)).astype(np.float32).astype(np.float64)
    (got,) = _run_on_the_host([Cast(cast, Name("a"))], names)
    assert np.array_equal(got, names["a"].astype(types[cast]).astype(np.float64))


# The error reading: what is computed in float32, step by step, lies within the bound.


class _Single:
    """Evaluates a tree as a float32 kernel would, one rounding an operation; `bad` is where something overflowed."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names, self.bad = names, np.zeros((ROWS, COLS), bool)

    def read(self, expr: Expr) -> Any:
        value = self._value(expr)
        if np.asarray(value).dtype.kind == "f":
            self.bad = self.bad | ~np.isfinite(value)
        return value

    def _value(self, expr: Expr) -> Any:
        match expr:
            case Const(value=value):
                return value if isinstance(value, bool) else np.array(value, "f4" if isinstance(value, float) else "i8")
            case Name(id=name):
                return self.names[name]
            case Query():
                return evaluate([Line("q", expr)], {}, SPACE)["q"]
            case Cast(to=to, arg=arg):
                types = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
                return _float32(_float32(self.read(arg)).astype(types.get(to, np.float32)))
            case Reduce(kind=kind, arg=arg, dims=dims):
                value = self.read(arg)
                whole = np.asarray(value).dtype.kind in "iu" and kind not in ("mean", "var")
                return self._reduce(kind, value if whole else _float32(value), dims)
            case Call(op=op, args=args):
                return self._call(op, [self.read(a) for a in args])
        raise AssertionError(expr)

    def _reduce(self, kind: str, value: Any, dims: tuple[str, ...]) -> Any:
        whole = np.broadcast_to(value, np.broadcast_shapes(np.shape(value), SPACE.shape(dims)))
        axes = SPACE.axes(dims)
        self.bad = self.bad | ~np.all(np.isfinite(whole) & ~self.bad, axis=axes, keepdims=True)
        if kind in ("max", "min"):
            return reduce_values(NumPy(), kind, whole, dims, SPACE)
        if kind == "var":
            away = _float32(whole - self._reduce("mean", whole, dims))
            return self._reduce("mean", _float32(away * away), dims)
        moved = np.moveaxis(whole, axes, range(len(axes))).reshape(
            -1, *(n for x, n in enumerate(whole.shape) if x not in axes)
        )
        total = np.cumsum(moved, axis=0, dtype=np.int64 if moved.dtype.kind in "iu" else np.float32)[-1].reshape(
            [1 if x in axes else n for x, n in enumerate(whole.shape)]
        )
        return total if kind == "sum" else _float32(total / np.float32(SPACE.count(dims)))

    def _call(self, op: str, args: list[Any]) -> Any:
        row = OPS[op]
        values = args[1:] if op == "where" else args
        if row.kind == "float" or any(np.asarray(v).dtype.kind == "f" for v in values):
            args = [*args[: len(args) - len(values)], *map(_float32, values)]
        if op in INEXACT or op in JUMPING:  # NumPy's own float32 functions keep no bound
            args = [np.asarray(a, np.float64) for a in args]
        result = row.numpy(NumPy(), *args)
        if op == "sigmoid":  # 0 where exp(-a) overflows: below the smallest normal number, yet not within the bound
            self.bad = self.bad | (args[0] < -88)
        return _float32(result) if np.asarray(result).dtype.kind == "f" else result


def _float32(value: Any) -> Any:
    return np.asarray(value, np.float32)


@settings(max_examples=250)
@given(st.integers(0, 2**32))
def test_the_error_bound_holds_in_float32(seed: int) -> None:
    """Every finite float32 evaluation lies within `bound` of the real value, casts, choices and reductions included."""
    chance = np.random.default_rng(seed)
    tree = Trees(random.Random(seed), (*EXACT, *INEXACT, *JUMPING), everything=True).real(4)
    names = _inputs(chance)
    for name in FLOATS:
        scale = 10.0 ** chance.integers(-4, 4, (ROWS, 1))
        names[name] = (chance.standard_normal((ROWS, COLS)) * scale * (chance.random((ROWS, COLS)) > 0.1)).astype(
            np.float32
        )
    for name in INTS:
        names[name] = chance.integers(-(2**28), 2**28, (ROWS, COLS)) >> chance.integers(0, 28, (ROWS, COLS))
    _assert_within_bound(tree, names)


def _assert_within_bound(tree: Expr, names: dict[str, Any]) -> int:
    how = Arithmetic(2.0**-24, 2.0**-149, lambda dims, count: count, {"acc": 2.0**-24, "f32": 2.0**-24, "f16": 2.0**-11,
                     "bf16": 2.0**-8})  # fmt: skip
    wide = {n: np.asarray(v, np.float64) if np.asarray(v).dtype.kind == "f" else v for n, v in names.items()}
    exact = evaluate([Line("y", tree)], wide, SPACE)["y"]
    allowed = bound([Line("y", tree)], {n: Bounded(v, 0.0) for n, v in wide.items()}, SPACE, how)["y"]
    single = _Single(names)
    with np.errstate(all="ignore"):
        got = np.float64(single.read(tree))
        usable = ~single.bad & np.isfinite(exact) & np.isfinite(got)
        error, limit = np.abs(got - exact), allowed.error * (1 + 1e-6)
    exceeds = usable & (np.broadcast_to(error, usable.shape) > np.broadcast_to(limit, usable.shape))
    assert not exceeds.any(), (to_source(tree), np.argwhere(exceeds)[:3])
    return int(usable.sum())


@pytest.mark.parametrize(
    ("text", "a", "b"),
    [
        ("sin(a * b)", 1e8, 3.0),  # no monotone function
        ("cos(a * b)", 1e8, 3.0),
        ("log(bf16(a) - f16(a) + a - b)", 1.0, 0.998),  # near the end of where it is defined
        ("sqrt(bf16(a) - f16(a) + a - b)", 1.0, 0.998),
        ("rsqrt(bf16(a) - f16(a) + a - b)", 1.0, 0.998),
        ("f16(a)", 3e-8, 0.0),  # below the smallest f16
        ("f16(a) * b", 1e-7, 1.0),
        ("where(a * a - a < a * (a - 1.0), 1.0, -1.0)", 1.1, 0.0),  # comparisons that rounding decides
        ("where(not a * a - a < a * (a - 1.0) and a < b, 1.0, 5.0)", 1.1, 2.0),
        ("where(a * a - a < a * (a - 1.0), 1, 2) // 2 * a", 1.1, 0.0),
        ("a + (index(cols) + 16777217) - 16777217", 1e-6, 0.0),  # whole numbers that float32 does not hold
        ("a + 1e-46", 0.0, 0.0),  # literals that it does not hold
        ("a * 0.1 - b", 1.0, 0.1),
        ("a + sum(where(a > 0.0, 16777217, 1), cols) - 16777217 * 24", 1e-6, 0.0),
    ],
)
def test_the_error_bound_holds_where_it_is_hard(text: str, a: float, b: float) -> None:
    """At the ends of domains, at discontinuities, below normal numbers and beyond exact whole numbers."""
    shape = (ROWS, COLS)
    near = np.linspace(1.0, 1.01, ROWS * COLS).reshape(shape)
    names = {**_inputs(np.random.default_rng(3)), "a": np.float32(a * near), "b": np.full(shape, np.float32(b))}
    assert _assert_within_bound(parse_expression(text, SCOPE), names) > 0


# Programs that attack the reader.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y = " + "-" * 900 + "a", "the program nests deeper than 100 operators; write it in shorter parts"),
        ("y = " + "not " * 900 + "f", "the program nests deeper than 100 operators; write it in shorter parts"),
        ("y = " + " + ".join("a" * 150), "the program nests deeper than 100 operators; write it in shorter parts"),
        ("y = " + "(" * 300 + "a" + ")" * 300, "not an expression of this language: too many nested parentheses"),
        ("y = maximum(" + "a, " * 1500 + "a)", "the program has more than 2000 syntax nodes"),
        ("y = 0x" + "f" * 3900, "a literal must fit in 64 bits"),
        ("y = " + "9" * 3900, "a literal must fit in 64 bits"),
        ("y = 1e999", "a literal must be finite"),
        ("y = -9223372036854775808", "a literal must fit in 64 bits"),
        ("y = ((((a**16)**16)**16)**16)**16", "an operand written out 16 times is too large; give it a name"),
        ("y = " + "(a < " * 30 + "a" + " < a)" * 30, "an operand written out 2 times is too large; give it a name"),
        ("\n".join(f"y{k} = a**16 * a**16" for k in range(60)),
         "the program has more than 2000 operations, powers and functions written out"),
        ("y = a[i, else 0]", "not an expression of this language: invalid syntax; what a place outside of an array "
         "gives is said of the array, as in `x: {dims: [row, col], outside: 0}`"),
        ("y = a ** 0", "`**` takes a whole exponent from 1 to 16, got 0; pow takes any"),
        ("y = a ** True", "`**` takes a whole exponent from 1 to 16, got True; pow takes any"),
        ("y = __import__('os').system('x')",
         "\"__import__('os').system('x')\" is not allowed here; there are no modules and methods; write system(...)"),
        ("y = (lambda: a)()", "'(lambda: a)()' is not allowed here"),
        ("y = [a for a in b]",
         "'[a for a in b]' is not allowed here; reduce over a dim, as in sum(x, dim)"),
        ("y = a.real", "'a.real' is not allowed here; there are no modules and attributes; use plain names"),
        ("y = a[0]", "'a' has no places; only an input of arrays is read at one: none"),
        ("y = a if f else b", "'a if f else b' is not allowed here; write where(condition, a, b)"),
        ("y = (z := a)", "'(z := a)' is not allowed here; give the value a line of its own"),
        ("y = 'a'", "\"'a'\" is not allowed here; values are numbers and bools"),
        ("y = f'{a}'",
         "\"f'{a}'\" is not allowed here; there are no strings; an option is a field of type bool or int"),
        ("y = 1j", "'1j' is not allowed here; the imaginary unit is complex(0, 1)"),
        ("y = ...", "'...' is not allowed here; values are numbers and bools"),
        ("y = a @ b", "'a @ b' is not allowed here; a matrix product is a sum, as in sum(a * b, dim)"),
        ("y = +a", "'+a' is not allowed here"),
        ("y = a is b",
         "'a is b' is not allowed here; compare with == and !=; present(x) tells whether an optional tensor is there"),
        ("y = exp(*a)", "'*a' is not allowed here"),
        ("y = exp(x=a)", "'exp(x=a)' is not allowed here; pass arguments by position, as in sum(x, dim)"),
        ("y = sum(a)", "sum needs the dims it runs over, as in sum(x, cols)"),
        ("y = sum(a, col)", "unknown dim 'col'; did you mean 'cols'?"),
        ("y = exq(a)", "unknown function 'exq'; did you mean 'exp'?"),
        ("y = exp(a, b)", "exp takes 1 operand, got 2"),
        ("y = where(f)", "where takes 3 operands, got 1"),
        ("y = present(a)", "unknown optional tensor 'a'; known are g"),
        ("y = present(1)", "present takes the name of an optional tensor, got '1'"),
        ("y = index(0)", "'0' is not a dim; this op has rows, cols"),
        ("y = z", "unknown name 'z'; known are a, b, c, i, j, s, n, f"),
        ("y, z = a", "'a' gives 1 value for 2 names"),
        ("import os", "expected `name = expression`, got 'import os'; all functions are there without imports"),
        ("y: int = a",
         "expected `name = expression`, got 'y: int = a'; values have no annotations; casts as f16(x) round to a type"),
        ("y = z = a", "expected `name = expression`, got 'y = z = a'; one name a line, as in y = x"),
        ("a.b = a", "expected `name = expression`, got 'a.b = a'; one name a line, as in y = x"),
        ("Y = a", "'Y' is not a name; use lower-case letters, digits and underscores"),
        ("_y = a", "'_y' is not a name; use lower-case letters, digits and underscores"),
        ("a = b", "'a' already means something; choose another name"),
        ("exp = b", "'exp' already means something; choose another name"),
        ("rows = b", "'rows' already means something; choose another name"),
        ("y = a +", "not an expression of this language: invalid syntax"),
        ("y = np.mean(a)", "'np.mean(a)' is not allowed here; there are no modules and methods; write mean(x, dim)"),
        ("y = np.exp(a)", "'np.exp(a)' is not allowed here; there are no modules and methods; write exp(...)"),
        ("y = a.sum(cols)", "'a.sum(cols)' is not allowed here; there are no modules and methods; write sum(x, dim)"),
        ("y = sum(a, axis=1)", "'sum(a, axis=1)' is not allowed here; pass arguments by position, as in sum(x, dim)"),
        ("y = max(a, 0.0)", "'0.0' is not a dim; max reduces over dims; of two values, write maximum(x, 0.0)"),
        ("y = min(a, b)", "'b' is not a dim; min reduces over dims; of two values, write minimum(x, b)"),
        ("y = max(a, col)", "unknown dim 'col'; did you mean 'cols'?"),
        ("y = clip(a, 0.0, 1.0)", "unknown function 'clip'; write clamp(x, low, high)"),
        ("y += a", "expected `name = expression`, got 'y += a'; no name changes; give the new value a name of its own"),
        ("y = (a, b)", "'(a, b)' is not allowed here; there are no collections; give each value a line of its own"),
        ("y = None", "'None' is not allowed here; values are numbers and bools"),
        ("y = a in b", "'a in b' is not allowed here; compare with == and !=, joined by `or`"),
        ("def y(): pass",
         "expected `name = expression`, got 'def y():\\n    pass'; give each value a line of its own"),
        ("if f: y = a",
         "expected `name = expression`, got 'if f:\\n    y = a'; there are no branches; write where(condition, a, b)"),
        ("for y in a: pass",
         "expected `name = expression`, got 'for y in a:\\n    pass'; reduce over a dim, as in sum(x, dim)"),
        ("a", "expected `name = expression`, got 'a'; give the value a name, as in y = x"),
        ("return a", "expected `name = expression`, got 'return a'; assign to the output's name"),
    ],
)  # fmt: skip
def test_hostile_and_careless_programs_are_refused_in_one_line(text: str, message: str) -> None:
    """Whatever is not on the white list is refused, at once, in words of this language."""
    with pytest.raises(ProgramError) as caught:
        parse(text, SCOPE)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("i + f", "+ takes numbers, got a bool; use where(condition, a, b)"),
        ("a % b", "% takes operands of kind int, got float; of floats write modulo(x, y)"),
        ("a & i", "& takes operands of kind int, got float"),
        ("~a", "~ takes operands of kind int, got float"),
        ("a and f", "and takes operands of kind bool, got float"),
        ("not i", "not takes operands of kind bool, got int"),
        ("isnan(i)", "isnan takes operands of kind float, got int; an int is never NaN"),
        ("where(a, b, c)", "where takes a bool as its condition, got float"),
        ("where(f, f, i)", "where takes two numbers or two bools, got bool and int"),
        ("where(f, a, f)", "where takes two numbers or two bools, got float and bool"),
    ],
)
def test_operands_of_the_wrong_kind_are_refused(text: str, message: str) -> None:
    """Numbers and bools never mix silently: C++ would convert where NumPy does something else."""
    with pytest.raises(ProgramError, match=re.escape(message)):
        kind_of(parse_expression(text, SCOPE), KINDS)


@pytest.mark.parametrize(
    "text",
    ["__import__('os')", "().__class__", "n.real", "[n for n in n]", "[n]", "{n}", "lambda: n", "n ** n", "n << n",
     "f'{n}'", "'a'", "b'a'", "1j", "...", "len(n, key=n)", "eval(n)", "len", "math", "rt", "self", "(n := 1)", "n[:]",
     "n[0:1]", "*n", "n @ n", "await n", "yield", "n, *n", "0x" + "f" * 3900, "9" * 3900, "1e999", "not " * 900 + "n",
     "n" + " + n" * 150, "", "n = n", "n\nn"],
)  # fmt: skip
def test_conditions_refuse_what_is_not_on_their_list(text: str) -> None:
    """A condition ends as Python in a generated file, so anything but arithmetic on fields is refused."""
    with pytest.raises(ConditionError) as caught:
        read_condition(text, ("n",))
    assert "\n" not in str(caught.value)


def test_conditions_mean_what_they_say() -> None:
    """What the white list lets through is computed as Python computes it."""
    text = read_condition("1 <= len(shape) <= 3 and not (n // 2 * 2 != n) and shape[-1] % 2 == 0", ("shape", "n"))
    assert evaluate_condition(text, {"shape": (3, 4), "n": 6}) is True
    assert evaluate_condition(text, {"shape": (3, 5), "n": 6}) is False
    choice = read_condition("1 if n > 2 else ceil_div(n, 2)", ("n",))
    assert [evaluate_condition(choice, {"n": n}) for n in (1, 2, 3)] == [1, 1, 1]
    assert evaluate_condition(read_condition("bucket(n, 4, 8) + round_up(n, 3)", ("n",)), {"n": 5}) == 14


def test_the_random_trees_reach_every_operator() -> None:
    """The properties above are about the whole language: no operator is left out by chance."""
    seen = set()
    for seed in range(1000):
        for part in walk(Trees(random.Random(seed), (*EXACT, *INEXACT, *JUMPING), everything=True).any(4)):
            seen.add(part.op if isinstance(part, Call) else part.kind if isinstance(part, Reduce) else "")
    assert set(OPS) - seen == {"fma", "i64", "real", "imag", "complex"}  # which have tests of their own


def test_a_tail_of_erfc_sees_all_of_a_long_double() -> None:
    """At 22 the 64th bit of an operand moves erfc by a tenth of a double's ulp, the rest of a double by a hundred."""
    x = np.longdouble(22) + np.longdouble(2) ** -50
    (line,) = parse("y = erfc(x)", Scope(("n",), {"x": frozenset()}))
    y = evaluate([line], {"x": x}, Space({"n": 1}))["y"]
    expected = math.erfc(22.0) * (1 - 2 * 22.02 * 2.0**-50)  # erfc'(x) / erfc(x) is about -(2 x + 1 / x)
    assert abs(y / expected - 1) < 4e-16
