"""What a spec file may say. Every key is declared, here or by a family; anything else is an error.

The text below a key is its description in the JSON Schema, which editors show; docs/spec-language.md says more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr

from ..program.functions import Functions
from .family import FamilyName
from .once import Kept
from .parts import (
    ArchSpec,
    BenchSpec,
    Bounds,
    BoundSpec,
    Context,
    Dim,
    FieldSpec,
    GradientSpec,
    PrecisionSpec,
    ReadTensor,
    Requirement,
    TensorSpec,
    TestsSpec,
)
from .types import Arch, Arguments, Doc, Element, Ident, Once, Place, PlanName, Rung, Strict, Text, sort_of


class OpSpec(Strict):
    """One operation in one direction: what the specs of all families say."""

    FOLLOW: ClassVar[tuple[str, ...]] = ("category", "direction", "plan", "family", "formula", "source", "descriptor")
    op: Ident
    """The operation; names its files, its kernels and its tests. Unique in the folder; for example `row_scale`."""
    category: Ident
    """The subfolder and subpackage of the generated files; for example `normalization`."""
    direction: Literal["forward", "backward"]
    """A forward and its backward are two specs."""
    plan: PlanName
    """The public class, which ends in `Plan`; its descriptor ends in `Descriptor` instead. Unique in the folder; for
    example `RowScalePlan`."""
    family: FamilyName
    """How the mathematics is given."""
    doc: Doc
    """First line of the plan's documentation; for example `Root-mean-square normalisation over a suffix of the
    axes.`"""
    formula: Text
    """The mathematics, for people; for example `y = x / sqrt(mean(x^2) + eps)`."""
    source: Doc
    """The paper or definition that it comes from."""

    descriptor: Annotated[dict[Ident, FieldSpec], Arguments]
    """Field -> what it is: what is known of a problem before any array is; for example `{eps: {type: float, doc: added
    to the mean square}}`. A field `element`, one of `dtypes`, is added."""
    require: Annotated[list[Requirement], Field(max_length=64)] = []
    """Conditions that `select` checks in this order; the first that is violated raises; for example `- {that:
    isfinite(eps) and eps >= 0, raises: InvalidProblem}`."""
    dtypes: Annotated[tuple[Element, ...], Field(min_length=1, strict=False), Once] = ("f32", "f16", "bf16", "f64")
    """What the element type `T` may be, by default `f32`, `f16`, `bf16` and `f64`; a map op that only moves elements
    may list the others."""
    inputs: Mapping[Ident, TensorSpec]
    outputs: Mapping[Ident, TensorSpec]
    check_order: Annotated[tuple[Ident, ...], Field(strict=False), Once] = ()
    """All arguments, in the order that `run` looks at them; by default that above."""

    gradient: GradientSpec | None = None
    """Backward ops: whose derivative this is, which is the oracle."""
    backward: dict[str, Any] | None = None
    """Forward ops: the gradient op, `<op>_backward`. What it does not say follows from the forward, its program, too,
    where it has neither that nor kernels; for example `{program: dx = y * (dy - sum(dy * y, cols))}`, or `{}`."""
    precision: PrecisionSpec = PrecisionSpec()
    """How exact it is; for example `{contraction: true}`."""
    numerics: Annotated[int, Field(ge=1, le=9999)] = 1
    """The revision of the bits that its kernels compute, a part of their names: a change of bits raises it."""
    reproducibility: Annotated[dict[Ident, Annotated[tuple[Rung, ...], Field(strict=False), Once]], Arguments] = {}
    """Output -> what is promised of its bits, `[]` for nothing, by default as much as its program can keep; for example
    `{y: [deterministic, batch_invariant]}`."""
    arch: Annotated[dict[Arch, ArchSpec], Field(min_length=1)] = {"sm_80": ArchSpec()}
    """Architecture -> what its kernels need and may use, `{}` at least; they run there and on anything later. Row and
    map specs name one; for example `{sm_80: {}}`."""
    tests: TestsSpec = TestsSpec()
    """Problems to test on."""
    bench: BenchSpec = BenchSpec(cases=[])
    """Problems worth measuring."""

    _context: Context = PrivateAttr(default_factory=lambda: Context())

    def model_post_init(self, context: Context | None) -> None:
        self._context = context or Context()

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        copy = super().model_copy(update=update, deep=deep)
        copy.__dict__.pop("kept", None)  # which was of other values
        return copy

    @cached_property
    def kept(self) -> Kept:
        """What is computed of it `once`."""
        return Kept()

    @property
    def by_hand(self) -> bool:
        """Whether its kernels are written by hand, not made from a program."""
        return True

    @property
    def plans(self) -> dict[str, Place]:
        """The names of its plan classes, and where the spec says them."""
        return {self.plan: ("plan",)}

    @property
    def bounds(self) -> dict[Place, Bounds]:
        """The factors of error bounds, by where the spec says them."""
        of_outputs: dict[Place, Bounds] = {("outputs", n, "bound"): tensor.bound for n, tensor in self.outputs.items()}
        return {("precision", "bound"): self.precision.bound, **of_outputs}

    @property
    def batch_extent(self) -> str | None:
        """What the extent of the batch is called where kernels are chosen; None without a batch."""
        return self.tests.batch

    @property
    def by_kind(self) -> Mapping[str, OpSpec]:
        """The spec of each kind, with a program of its own; of an op without kinds itself, under ""."""
        return {"": self}

    def of_kind(self, name: str | None) -> OpSpec:
        """The spec with the program of one of its kinds; itself if it has none."""
        return self

    @property
    def functions(self) -> Functions:
        """What its programs may call besides the language's own."""
        return self._context.functions

    @property
    def folder(self) -> Path | None:
        """Where the headers and oracles of a project are: the folder of the spec's file."""
        return self._context.folder

    def sort_of(self, tensor: TensorSpec) -> str:
        """Whether programs see the tensor's elements as "float", "int", "bool" or "complex"."""
        sorts = self.sorts_of(tensor)
        return sorts[0] if len(sorts) == 1 else "float"

    def sorts_of(self, tensor: TensorSpec) -> list[str]:
        """What its elements may be; an op that only moves them may have several."""
        return [*dict.fromkeys(map(sort_of, self.dtypes if tensor.dtype[0] == "T" else tensor.dtype))]

    def bound_of(self, output: str, dtype: str) -> BoundSpec:
        """The factors of an output's error bound."""
        declared = {**self.precision.bound, **self.outputs[output].bound}
        return next((bound for name, bound in declared.items() if name == dtype), BoundSpec())

    @property
    def tensors(self) -> Mapping[str, TensorSpec]:
        return {**self.inputs, **self.outputs}

    @property
    def arguments(self) -> Mapping[str, TensorSpec]:
        """Tensors the caller passes: an output that updates an input has no buffer of its own."""
        return {name: t for name, t in self.tensors.items() if t.updates is None}


class ProgramSpec(OpSpec):
    """An op whose kernels are made from a program over some dims."""

    if TYPE_CHECKING:  # families declare these, each with its own words for the author
        dims: Mapping[str, Dim]
        inputs: Mapping[str, ReadTensor]
        outputs: Mapping[str, ReadTensor]
        program: str
        reference: str | None

    @property
    def by_hand(self) -> bool:
        return False

    @property
    def by_kind(self) -> Mapping[str, ProgramSpec]:
        return {"": self}

    @property
    def other_expressions(self) -> Iterable[str]:
        """Expressions over fields beside those of dims and conditions."""
        return ()

    @property
    def tensors(self) -> Mapping[str, ReadTensor]:
        return {**self.inputs, **self.outputs}

    @property
    def arguments(self) -> Mapping[str, ReadTensor]:
        return {name: t for name, t in self.tensors.items() if t.updates is None}
