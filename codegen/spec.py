"""What a spec file may say. Every key is declared here; anything else is an error."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

Ident = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
ClassName = Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]{0,63}$")]
Text = Annotated[str, Field(min_length=1, max_length=4000, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f]*$")]
Doc = Annotated[str, Field(min_length=1, max_length=400, pattern=r"^[^\x00-\x1f\x7f\\]*$")]
Float = Literal["f32", "f16", "bf16", "f64"]
Stored = Literal["T", "acc", "f32", "f16", "bf16", "f64", "i32", "i64"]
Rung = Literal["deterministic", "bit_stable_on_same_hardware", "batch_invariant", "bit_stable_across_arch"]
Layout = Literal["packed", "strided", "gathered"]
Arch = Literal["sm_80", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120"]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class FieldSpec(Strict):
    """A field of the descriptor: what the problem is, known before any array is."""

    type: Literal["shape", "int", "float", "bool"]
    doc: Doc
    default: int | float | bool | None = None


class Requirement(Strict):
    """A condition on the descriptor's fields, and the error that its violation raises."""

    that: Text
    raises: Literal["InvalidProblem", "Unsupported"]


class DimSpec(Strict):
    """A group of axes of the field `of`: those that the expression `axes` lists, or the `rest`."""

    of: Ident
    axes: Text


class TensorSpec(Strict):
    """An array argument."""

    dims: Annotated[tuple[Ident, ...], Field(min_length=1, strict=False)]
    doc: Doc
    dtype: Annotated[tuple[Stored, ...], Field(min_length=1, strict=False)] = ("T",)
    layout: Literal["any", "contiguous"] = "any"
    optional: Ident | Literal[False] = False
    default: float | int | None = None
    may_alias: Annotated[tuple[Ident, ...], Field(strict=False)] = ()
    updates: Ident | None = None

    @field_validator("dtype", mode="before")
    @classmethod
    def _one_is_a_list_of_one(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value


class BoundSpec(Strict):
    """|error| <= c1 * u(T) * |y| + c2 * (the running error bound of the program in the accumulator)."""

    c1: Annotated[float, Field(gt=0, le=16)] = 1.0
    c2: Annotated[float, Field(gt=0, le=16)] = 1.0


class PrecisionSpec(Strict):
    contraction: bool = False
    subnormals: Literal["keep", "flush"] = "keep"
    bound: dict[Float, BoundSpec] = {}


class GradientSpec(Strict):
    """Which forward op this one differentiates, and what its tensors are called there."""

    of: Ident
    cotangents: dict[Ident, Ident]  # tensor here -> output there
    wrt: dict[Ident, Ident]  # output here -> input there
    saved: Annotated[tuple[Ident, ...], Field(strict=False)] = ()


class ArchSpec(Strict):
    """What the SKUs of an architecture need from it, and how much of it they may use."""

    needs: Annotated[tuple[Literal["tma", "wgmma", "cluster"], ...], Field(strict=False)] = ()
    shared_bytes: Annotated[int, Field(ge=0)] | None = None
    registers: Annotated[int, Field(ge=16, le=255)] | None = None
    stack_bytes: Annotated[int, Field(ge=0, le=4096)] = 0
    spill_bytes: dict[Layout, Annotated[int, Field(ge=1, le=4096)]] = {}


class TestsSpec(Strict):
    """Problems to test on, and, for inputs a formula is not defined everywhere for, the range to draw from."""

    __test__ = False

    defaults: dict[Ident, Any] = {}
    ranges: dict[Ident, Annotated[tuple[float, float], Field(strict=False)]] = {}
    cases: Annotated[list[dict[Ident, Any]], Field(min_length=1)]


class BenchSpec(Strict):
    cases: list[dict[Ident, Any]]
    flops: Text | None = None


class OpSpec(Strict):
    """One operation in one direction."""

    op: Ident
    category: Ident
    kind: ClassName
    direction: Literal["forward", "backward"]
    plan: Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]{0,59}Plan$")]
    family: Literal["row"]
    doc: Doc
    formula: Text
    source: Doc

    descriptor: dict[Ident, FieldSpec]
    require: list[Requirement] = []
    dtypes: Annotated[tuple[Float, ...], Field(min_length=1, strict=False)]
    dims: dict[Ident, DimSpec]

    inputs: dict[Ident, TensorSpec]
    outputs: dict[Ident, TensorSpec]
    check_order: Annotated[tuple[Ident, ...], Field(strict=False)] = ()

    program: Text
    reference: Text | None = None
    gradient: GradientSpec | None = None

    precision: PrecisionSpec = PrecisionSpec()
    reproducibility: dict[Ident, Annotated[tuple[Rung, ...], Field(strict=False)]]
    arch: Annotated[dict[Arch, ArchSpec], Field(min_length=1)]
    tests: TestsSpec
    bench: BenchSpec = BenchSpec(cases=[])

    @property
    def tensors(self) -> dict[str, TensorSpec]:
        return {**self.inputs, **self.outputs}

    @property
    def arguments(self) -> dict[str, TensorSpec]:
        """Tensors the caller passes: an output that updates an input has no buffer of its own."""
        return {name: t for name, t in self.tensors.items() if t.updates is None}
