"""Invariant: whatever pydantic refuses is reported as `path:line: what; the fix`, in our words alone."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    RootModel,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from baracuda.codegen.spec.errors import explain
from baracuda.codegen.spec.yaml_source import read_yaml


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


def even(value: int) -> int:
    if value % 2:
        raise ValueError(f"{value} is odd; needs an even number")
    return value


def custom(value: Any) -> Any:
    raise PydanticCustomError("ours", "input should shine")


class Color(StrEnum):
    RED = "red"
    GREEN = "green"


class Tensor(Strict):
    dims: Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=3)]
    dtype: Literal["T", "acc", "f32"] = "T"
    doc: str = ""


class Row(Strict):
    kind: Literal["row"]
    cols: int


class Map(Strict):
    kind: Literal["map"]
    vec: Literal[1, 2, 4] = 1


class Names(RootModel[list[str]]):
    pass


class Spec(Strict):
    op: str = Field(default="x", pattern="^[a-z_]+$", min_length=1, max_length=8)
    inputs: dict[Annotated[str, Field(pattern="^[a-z]+$")], Tensor] = {}
    family: Row | Map | None = Field(default=None, discriminator="kind")
    families: list[Annotated[Row | Map, Field(discriminator="kind")]] = []
    maybe: Optional[Tensor] = None  # noqa: UP045 (both spellings are walked)
    color: Annotated[Color, Field(strict=False)] = Color.RED
    names: str | list[str] | None = None
    rows: int | Literal["all", "none"] = 0
    some: Tensor | list[Tensor] | None = None
    lax: Annotated[int, Field(strict=False)] = 0
    laxer: Annotated[float, Field(strict=False)] = 0
    flag: bool = False
    nothing: None = None
    ratio: float = Field(default=1.0, gt=0, le=8, allow_inf_nan=False)
    count: int = Field(default=1, ge=1, lt=100, multiple_of=1)
    step: int = Field(default=4, multiple_of=4)
    evens: list[Annotated[int, AfterValidator(even)]] = []
    tuple_: tuple[int, str] = Field(default=(1, ""), alias="pair")
    group: frozenset[str] = frozenset()
    free: Annotated[int, BeforeValidator(custom)] = 0
    root: Names = Names([])
    asserted: int = 0
    total: dict[str, int] = {}

    @field_validator("asserted")
    @classmethod
    def small(cls, value: int) -> int:
        if value > 5:  # not by `assert`: pytest rewrites those
            raise AssertionError("asserted is large; needs a number < 5")
        return value

    @model_validator(mode="after")
    def sums(self) -> Spec:
        if self.total.get("sum", 0) != sum(v for k, v in self.total.items() if k != "sum"):
            raise ValueError("the sum is wrong; add again\nand the count too; count again")
        return self


TABLE: list[tuple[str, str]] = [
    # keys
    ("colr: red", "1: unknown key 'colr'; did you mean 'color'?"),
    ("COLOR: red", "1: unknown key 'COLOR'; did you mean 'color'?"),
    ("par: 1", "1: unknown key 'par'; did you mean 'pair'?"),
    ("inputs:\n  x:\n    dims: [a]\n    dosc: b", "4: unknown key 'dosc' in 'inputs.x'; did you mean 'doc'?"),
    ("maybe: {dims: [a], zz: b}", "1: unknown key 'zz' in 'maybe'; needs one of 'dims', 'doc', 'dtype'"),
    ("maybe: {dims: [a], dtyp: T}", "1: unknown key 'dtyp' in 'maybe'; did you mean 'dtype'?"),
    ("family: {kind: map, vc: 1}", "1: unknown key 'vc' in 'family'; did you mean 'vec'?"),
    ("op: x\ninputs:\n  x:\n    doc: b", "3: 'inputs.x.dims' is missing; add it"),
    ("inputs:\n  A1: {dims: [a]}", "2: key 'A1'; needs text that matches ^[a-z]+$"),
    # shapes
    ("op: 5", "1: 'op' is 5; needs a string in quotes"),
    ("op: true", "1: 'op' is true; needs a string in quotes"),
    ("op:", "1: 'op' is null; needs a string"),
    ("count: '5'", "1: 'count' is '5'; needs an integer"),
    ("count: 1.5", "1: 'count' is 1.5; needs an integer"),
    ("lax: a", "1: 'lax' is 'a'; needs an integer"),
    ("lax: 1.5", "1: 'lax' is 1.5; needs an integer"),
    ("ratio: big", "1: 'ratio' is 'big'; needs a number"),
    ("laxer: big", "1: 'laxer' is 'big'; needs a number"),
    ("flag: no", "1: 'flag' is 'no'; needs true or false"),
    ("nothing: 1", "1: 'nothing' is 1; needs null"),
    ("inputs: [a]", "1: 'inputs' is a list of length 1; needs a mapping"),
    ("inputs:\n  x: abc", "2: 'inputs.x' is 'abc'; needs a mapping"),
    ("family: row", "1: 'family' is 'row'; needs a mapping"),
    ("evens: 2", "1: 'evens' is 2; needs a list"),
    ("pair: 2", "1: 'pair' is 2; needs a list"),
    ("group: {a: 1}", "1: 'group' is a mapping; needs a list"),
    ("root: [a, 1]", "1: 'root[1]' is 1; needs a string in quotes"),
    ("inputs: {x: {dims: [a, [b]]}}", "1: 'inputs.x.dims[1]' is a list of length 1; needs a string"),
    ("- op", "1: the file is a list of length 1; needs a mapping"),
    # limits
    ("op: A-B", "1: 'op' is 'A-B'; needs text that matches ^[a-z_]+$"),
    ("op: ''", "1: 'op' is ''; needs a length >= 1"),
    ("op: abcdefghij", "1: 'op' is 'abcdefghij'; needs a length <= 8"),
    ("maybe: {dims: []}", "1: 'maybe.dims' is a list of length 0; needs a length >= 1"),
    ("maybe: {dims: [a, b, c, d]}", "1: 'maybe.dims' is a list of length 4; needs a length <= 3"),
    ("ratio: 0", "1: 'ratio' is 0; needs a number > 0.0"),
    ("ratio: 9.5", "1: 'ratio' is 9.5; needs a number <= 8.0"),
    ("ratio: .nan", "1: 'ratio' is nan; needs a finite number"),
    ("count: 0", "1: 'count' is 0; needs a number >= 1"),
    ("count: 100", "1: 'count' is 100; needs a number < 100"),
    ("step: 6", "1: 'step' is 6; needs a multiple of 4"),
    # choices
    ("maybe: {dims: [a], dtype: ac}", "1: 'maybe.dtype' is 'ac'; did you mean 'acc'?"),
    ("maybe: {dims: [a], dtype: zz}", "1: 'maybe.dtype' is 'zz'; needs one of 'T', 'acc', 'f32'"),
    ("maybe: {dims: [a], dtype: 3}", "1: 'maybe.dtype' is 3; needs one of 'T', 'acc', 'f32'"),
    ("color: gren", "1: 'color' is 'gren'; did you mean 'green'?"),
    ("family: {kind: map, vec: 3}", "1: 'family.vec' is 3; needs 1, 2 or 4"),
    ("family: {kind: rov, cols: 1}", "1: 'family.kind' is 'rov'; did you mean 'row'?"),
    ("family:\n  cols: 1", "1: 'family.kind' is missing; add it"),
    # unions
    ("family: {kind: row}", "1: 'family.cols' is missing; add it"),
    ("families:\n- {kind: map}\n- {kind: row, cols: a}", "3: 'families[1].cols' is 'a'; needs an integer"),
    ("names: 5", "1: 'names' is 5; needs a string or a list"),
    ("names: [a, 5]", "1: 'names[1]' is 5; needs a string in quotes"),
    ("rows: al", "1: 'rows' is 'al'; did you mean 'all'?"),
    ("some: 5", "1: 'some' is 5; needs a mapping or a list"),
    ("some: {dims: [a], dosc: b}", "1: unknown key 'dosc' in 'some'; did you mean 'doc'?"),
    ("some:\n- dims: [a]\n- {dims: [5]}", "3: 'some[1].dims[0]' is 5; needs a string in quotes"),
    # our own words
    ("evens: [2,\n  3]", "2: 3 is odd; needs an even number"),
    ("asserted: 7", "1: asserted is large; needs a number < 5"),
    ("op: x\ntotal: {a: 1, sum: 2}", "1: and the count too; count again\n1: the sum is wrong; add again"),
    # types that the table does not know
    ("free: 1", "1: 'free' is 1; it should shine"),
    ("pair: [1]", "1: 'pair' is a list of length 1; needs a list"),
    # several at once, by line
    ("colr: 1\nop: 2\ncount: a\n", "1: unknown key 'colr'; did you mean 'color'?\n"
     "2: 'op' is 2; needs a string in quotes\n3: 'count' is 'a'; needs an integer"),
    ("op: " + "-" * 70, f"1: 'op' is '{'-' * 57}...'; needs a length <= 8"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), TABLE, ids=range(len(TABLE)))
def test_messages(text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(text)
    source = read_yaml(Path("a.yaml"))
    with pytest.raises(ValidationError) as caught:
        Spec.model_validate(source.data)
    said = str(explain(caught.value, source, Spec))
    assert said == "\n".join(f"a.yaml:{line}" for line in message.splitlines())
