"""Cases to measure: those of a spec's `bench`, with their minimum traffic and flops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from baracuda.checking.problems.problem import Problem
from baracuda.checking.problems.subject import Subject
from baracuda.codegen.conditions.parse import evaluate_condition
from baracuda.codegen.spec.spec import OpSpec
from baracuda.runtime import ElementKind, PlanPreference

SWEPT = ("rms_norm", "rms_norm_backward")  # what a sweep is of, unless ops are named
_ELEMENTS = 1 << 27  # elements of a sweep's problems, so that the rows' length alone changes
_LETTERS = {
    "batch_size": "B", "num_heads": "H", "num_kv_heads": "KV", "query_len": "Q", "key_len": "K", "d_k": "D",
    "d_v": "DV", "channels": "C", "seq_len": "L", "width": "W", "state_len": "state",
}  # fmt: skip
_UNSAID = ("scale", "norm_axes_mask", "softmax_axis", "is_causal", "dtype", "arch")  # the same in all, or said apart
_OF_INTS = (0.0, 100.0)  # what all types hold


@dataclass(frozen=True)
class Tensor:
    """An argument that is present: its role, shape and stored type."""

    name: str
    role: str  # "in", "out" or "inout"
    shape: tuple[int, ...]
    kind: ElementKind
    drawn: tuple[float, float] | None = None  # the range that its numbers are from
    ascending: bool = False  # whether they are in order, and the last is the end of the range

    @property
    def nbytes(self) -> int:
        """What it occupies."""
        return prod(self.shape) * self.kind.row.bytes


@dataclass(frozen=True, eq=False)
class Case:
    """A problem to measure, of one element type; `arch` is given where only its kernels are to be taken, and `tuned` is
    False where the rule is to choose, whatever was measured."""

    subject: Subject
    declared: Mapping[str, Any]  # fields in the spec's case; others have their defaults
    element: ElementKind
    arch: str | None = None
    tuned: bool = True

    @property
    def spec(self) -> OpSpec:
        """The spec of the op."""
        return self.subject.spec

    @property
    def op(self) -> str:
        """The name of the op."""
        return self.spec.op

    @property
    def values(self) -> dict[str, Any]:
        """Every field of the descriptor but `element`."""
        return self.subject.values(self.declared)

    @property
    def descriptor(self) -> Any:
        """The problem's descriptor."""
        return self.subject.descriptor(self.declared, self.element)

    @property
    def label(self) -> str:
        """A short name, unique within the op."""
        arch = [self.arch] if self.arch else []
        return " ".join([self.element.value, *_words(self.spec, self.declared), *arch])

    def plan(self, device: Any = None) -> Any:
        """The plan that callers get on `device`."""
        preference = PlanPreference(archs=frozenset({self.arch}) if self.arch else None, tuned=self.tuned)
        return self.subject.plan.select(self.descriptor, preference, device=device)

    def tensors(self, plan: Any) -> list[Tensor]:
        """The present arguments with default shapes and types."""
        shapes = plan.shapes()
        present = [(n, a) for n, a in plan.ARGUMENTS.items() if plan.present(n)]
        drawn = {**self.spec.of_kind(self.values.get("kind")).tests.ranges, **self.spec.bench.ranges}
        ints = [n for n, t in self.spec.inputs.items() if t.dtype == ("T",) and self.spec.sort_of(t) == "int"]
        drawn = {**dict.fromkeys(ints, _OF_INTS), **drawn}
        ascending = self.spec.bench.ascending
        return [
            Tensor(n, a.role, tuple(shapes[n][0]), plan.elements_of(n)[0], drawn.get(n), n in ascending)
            for n, a in present
        ]

    def flops(self) -> int | None:
        """Additions and multiplications, if the spec counts them."""
        text = self.spec.bench.flops
        return None if text is None else int(evaluate_condition(text, self.values))


@dataclass(frozen=True)
class Traffic:
    """Minimum memory traffic: inputs read once, outputs written once, updated tensors both."""

    read: int
    written: int

    @classmethod
    def of(cls, tensors: list[Tensor]) -> Traffic:
        """Of the arguments of one launch."""
        return cls(
            sum(t.nbytes for t in tensors if t.role != "out"), sum(t.nbytes for t in tensors if t.role != "in")
        )

    @property
    def total(self) -> int:
        """Bytes in either direction."""
        return self.read + self.written

    @property
    def kind(self) -> str:
        """The applicable ceiling: read, write or copy."""
        share = self.read / max(1, self.total)
        return "read" if share > 0.75 else "write" if share < 0.25 else "copy"


def cases_of(subject: Subject, dtypes: Sequence[str] = ()) -> Iterator[Case]:
    """The spec's benchmark cases, for `dtypes` if given."""
    bench = subject.spec.bench
    for spec_case in bench.cases:
        fields = {name: value for name, value in spec_case.items() if name not in ("dtype", "arch")}
        usual = [spec_case["dtype"]] if "dtype" in spec_case else dtypes or bench.dtypes or [_usual(subject.spec)]
        for dtype in (d for d in usual if not dtypes or d in dtypes):
            yield Case(subject, fields, ElementKind(dtype), spec_case.get("arch"))


def sweep_of(subject: Subject, dtypes: Sequence[str] = ()) -> Iterator[Case]:
    """Rows of 64 to 131072 elements at constant problem size; nothing for other families.

    For each power of two: itself, a quarter more, which leaves most of a tile empty, and an odd length half way.
    """
    spec = subject.spec
    if not Problem.kind_of(subject).rows_apart or not spec.bench.cases:
        return
    first = {name: value for name, value in spec.bench.cases[0].items() if name not in ("dtype", "arch")}
    for exponent in range(6, 18):
        for cols in (1 << exponent, 5 << exponent - 2, (3 << exponent - 1) + 1):
            if cols <= 1 << 17:
                shape = [max(1, _ELEMENTS // cols), cols]
                for dtype in dtypes or [_usual(spec)]:
                    yield Case(subject, {**first, "input_shape": shape}, ElementKind(dtype))


def columns(case_label: str) -> int | None:
    """The row length in a label, for sweep plots."""
    extents = next((w for w in case_label.split() if "x" in w and w.replace("x", "").isdigit()), "")
    return int(extents.rpartition("x")[2]) if extents.count("x") == 1 else None


def _usual(spec: OpSpec) -> str:
    return "bf16" if "bf16" in spec.dtypes else spec.dtypes[0]


def _words(spec: OpSpec, fields: Mapping[str, Any]) -> Iterator[str]:
    """Extents by letters, shapes by crosses, flags by name; a value that two fields share is given once."""
    shapes = ["x".join(map(str, value)) for name, value in fields.items() if spec.descriptor[name].type == "shape"]
    if shapes:
        yield " by ".join(shapes)
    square = fields.get("query_len") == fields.get("key_len")
    for name, value in fields.items():
        kind = spec.descriptor[name].type
        if kind == "shape" or name in _UNSAID:
            continue
        if kind == "bool":
            yield name.removeprefix("has_") if value else f"no-{name.removeprefix('has_')}"
        elif name == "query_len" and square:
            yield f"S{value}"
        elif not (name == "key_len" and square) and not (name == "d_v" and value == fields.get("d_k")):
            yield f"{_LETTERS.get(name, name + '=')}{value}"
    if "is_causal" in spec.descriptor:
        yield "causal" if fields.get("is_causal") else "full"
