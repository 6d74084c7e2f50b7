"""Random small specs with a program, whose names are all in use elsewhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from . import payloads

_UNARY = ("abs({})", "-{}", "tanh({})", "sigmoid({})", "floor({})", "sin({})", "expm1(minimum({}, 2.0))", "({})**2")
_BINARY = (
    "({} + {})", "({} - {})", "({} * {})", "maximum({}, {})", "minimum({}, {})", "fma({}, 0.5, {})",
    "({} / (abs({}) + 1.5))", "where({} > 0.25, {}, 1.5)",
)  # fmt: skip
_SHAPES = ((5, 7), (3, 64), (1, 1), (4, 33, 5), (2, 1500), (37, 16))
_LONG = (1, 9000)  # a row that no tile holds


class Names:
    """Hostile names that a spec may give, each once."""

    def __init__(self, rng: Random) -> None:
        self._rng, self._taken = rng, set[str]()

    def __call__(self) -> str:
        while (name := payloads.legal_name(self._rng)) in self._taken or "__" in name:
            pass
        self._taken.add(name)
        return name


def program_spec(rng: Random) -> dict[str, Any]:
    """A spec of the row or map family that most likely is accepted, as data."""
    return _Row(rng).spec() if rng.random() < 0.6 else _Map(rng).spec()


class _Program:
    """What both families have: fields, tensors, lines of expressions."""

    family: str

    def __init__(self, rng: Random) -> None:
        self.rng, self.names = rng, Names(rng)
        self.fields: dict[str, Any] = {}
        self.inputs: dict[str, Any] = {}
        self.outputs: dict[str, Any] = {}
        self.case: dict[str, Any] = {}
        self.lines: list[str] = []
        self.scalars: list[str] = []

    def field(self, kind: str, value: Any) -> str:
        name = self.names()
        self.fields[name] = {"type": kind, "doc": "a field"}
        self.case[name] = value
        return name

    def draw_scalars(self) -> None:
        for _ in range(self.rng.randrange(3)):
            self.scalars.append(self.field("float", self.rng.choice((0.5, -1.25, 2.0))))
        if self.rng.random() < 0.3:
            self.scalars.append(self.field("int", self.rng.randrange(-3, 4)))

    def tensor(self, dims: Sequence[str], dtype: Any = "T", **more: Any) -> dict[str, Any]:
        return {"dims": list(dims), "doc": "a tensor", "dtype": dtype, **more}

    def input(self, dims: Sequence[str]) -> str:
        name, options = self.names(), {}
        if self.rng.random() < 0.2:
            options = {"optional": self.field("bool", self.rng.random() < 0.5), "default": 1}
        self.inputs[name] = self.tensor(dims, self.rng.choice(("T", "T", ["T", "acc"])), **options)
        return name

    def line(self, expression: str, *, output: Sequence[str] | None = None, dtype: str = "T") -> str:
        name = self.names()
        self.lines.append(f"{name} = {expression}")
        if output is not None:
            self.outputs[name] = self.tensor(output, dtype)
        return name

    def expression(self, names: Sequence[str], depth: int = 2) -> str:
        """An expression of `names`, which it need not use all."""
        if depth == 0 or self.rng.random() < 0.15:
            return self.rng.choice([*names, *self.scalars]) if self.rng.random() < 0.9 else "0.75"
        if self.rng.random() < 0.3:
            return self.rng.choice(_UNARY).format(self.expression(names, depth - 1))
        return self.rng.choice(_BINARY).format(*(self.expression(names, depth - 1) for _ in range(2)))

    def spec(self) -> dict[str, Any]:
        self.fill()
        self.drop_unread()
        op, text = self.names(), "\n".join(self.lines) + "\n"
        return {
            "op": op,
            "category": "fuzzed",
            "direction": "forward",
            "plan": f"{op.title().replace('_', '')}Plan",
            "family": self.family,
            "doc": "A random program.",
            "formula": "y = f(x)",
            "source": "none",
            "descriptor": self.fields,
            "dtypes": [self.rng.choice(("f32", "f32", "f64", "bf16"))],
            "dims": self.dims,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "program": text,
            "reference": text,
            "reproducibility": {name: ["deterministic"] for name in self.outputs},
            "arch": {"sm_80": {}},
            "tests": {"cases": [self.case]},
        }

    def drop_unread(self) -> None:
        """Drop the inputs and fields that nothing reads, which a spec may not have."""
        read = set(re.findall(r"\w+", " ".join([*self.lines, str(self.dims)])))
        self.inputs = {name: tensor for name, tensor in self.inputs.items() if name in read}
        read.update(tensor["optional"] for tensor in self.inputs.values() if "optional" in tensor)
        self.fields = {name: field for name, field in self.fields.items() if name in read}
        self.case = {name: value for name, value in self.case.items() if name in read}

    dims: dict[str, Any]

    def fill(self) -> None:
        raise AssertionError("families define this")


class _Row(_Program):
    family = "row"

    def fill(self) -> None:
        shape = self.rng.choice((*_SHAPES, _LONG))
        shape_field, axis = self.field("shape", list(shape)), self.field("int", self.rng.randrange(len(shape)))
        rows, cols = self.names(), self.names()
        self.dims = {
            rows: {"of": shape_field, "axes": "rest"},
            cols: {"of": shape_field, "axes": f"(normalize_axis({axis}, len({shape_field})),)"},
        }
        self.draw_scalars()
        operands = [self.input((rows, cols)) for _ in range(self.rng.choice((1, 1, 2)))]
        operands += [self.input((self.rng.choice((rows, cols)),)) for _ in range(self.rng.randrange(2))]
        for _ in range(self.rng.randrange(3)):
            kind, output = self.rng.choice(("sum", "mean", "max", "min")), self.rng.random() < 0.3
            of_row = self.expression(operands[:1] + operands, 1)
            operands.append(self.line(f"{kind}({of_row}, {cols})", output=(rows,) if output else None, dtype="acc"))
        if self.rng.random() < 0.5:
            operands.append(self.line(self.expression(operands)))
        self.line(f"{self.expression(operands)} + 0.5 * {operands[0]}", output=(rows, cols))
        if self.rng.random() < 0.3:
            total = self.line(f"{self.rng.choice(('sum', 'mean'))}({operands[0]} * 0.5, {rows})")
            self.line(f"{total} * 0.25", output=(cols,), dtype="acc")


class _Map(_Program):
    family = "map"

    def fill(self) -> None:
        self.dims = {}
        for _ in range(self.rng.choice((1, 2, 2, 3))):
            extent = self.field("int", self.rng.choice((1, 2, 5, 17, 40)))
            self.dims[self.names()] = {"of": extent}
        dims = list(self.dims)
        self.draw_scalars()
        operands = [self.input(dims)]
        operands += [self.input(self.rng.sample(dims, self.rng.randrange(1, len(dims) + 1))) for _ in range(2)]
        if self.rng.random() < 0.3:
            operands.append(self.line(f"index({self.rng.choice(dims)}) * 0.125"))
        if self.rng.random() < 0.6:
            operands.append(self.line(self.expression(operands)))
        self.line(f"{self.expression(operands)} + 0.5 * {operands[0]}", output=dims)
        if len(dims) > 1 and self.rng.random() < 0.5:
            over = self.rng.choice(dims)
            total = self.line(f"sum({self.expression(operands, 1)} + {operands[0]}, {over})")
            self.line(f"{total} * 0.5", output=[dim for dim in dims if dim != over], dtype="acc")
