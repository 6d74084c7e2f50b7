"""The names, texts and numbers that the values of a spec are made of."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Ident = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Text = Annotated[str, Field(min_length=1, max_length=4000, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f]*$")]
# What expressions are written with: names, numbers, operators and brackets, on one line, without comments.
Expression = Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[A-Za-z0-9_ .,()\[\]+*/%<>=!-]*$")]
Doc = Annotated[str, Field(min_length=1, max_length=400, pattern=r"^[^\x00-\x1f\x7f\\]*$")]
Float = Literal["f32", "f16", "bf16", "f64", "c64", "c128"]  # what rounds
Element = Literal[
    "f32", "f16", "bf16", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool",
    "f8e4m3", "f8e5m2", "c64", "c128",
]  # fmt: skip
Stored = Literal[
    "T", "acc", "f32", "f16", "bf16", "f64", "f8e4m3", "f8e5m2", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "bool"
]
Rung = Literal["deterministic", "bit_stable_on_same_hardware", "batch_invariant", "bit_stable_across_arch"]
Layout = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
PlanName = Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]{0,59}Plan$")]
NumberName = Annotated[str, Field(pattern=r"^[a-z][a-z_]{0,31}$")]  # between the values in a schedule's name
Number = Annotated[int, Field(ge=0, lt=2**31)]
Threads = Annotated[int, Field(ge=32, le=1024, multiple_of=32)]
Arguments = Field(max_length=64)  # tensors and fields, of each kind


def sort_of(dtype: str) -> str:
    """Whether numbers of a type are floats, ints, bools or complex to programs."""
    return "bool" if dtype == "bool" else "int" if dtype[0] in "iu" else "complex" if dtype[0] == "c" else "float"


def arch_number(arch: str) -> int:
    """90 for sm_90 and sm_90a."""
    return int(arch[3:].rstrip("a"))


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise ValueError(f"lists one twice: {', '.join(names)}")
    return names


Once = AfterValidator(_distinct)
Place = tuple[str | int, ...]  # the keys that lead to a value of a spec
StoredTypes = Annotated[tuple[Stored, ...], Field(min_length=1, strict=False), Once]
Arch = Literal["sm_80", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120"]
Rank = Annotated[int, Field(ge=0, le=16)]
Spilled = Annotated[int, Field(ge=0, le=4096)]
Macro = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,31}$")]


class Strict(BaseModel):
    """Values of a spec: no other keys, no conversions, no changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)
    FOLLOW: ClassVar[tuple[str, ...]] = ()  # keys that must not be given, because they follow from others
