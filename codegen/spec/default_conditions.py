"""The conditions that hold for every spec: ranks, axes in range, extents, finite numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..conditions.kinds import OF_FIELD, WORD, Kind, kind_of
from .family import family_of
from .parts import Dim, Requirement
from .spec import OpSpec

LARGEST_RANK = 8
_TERM = r"(\w+|(?:len|min)\([\w, ]+\))"
_BOUNDED = re.compile(rf"-?[\d.]+ <=? {_TERM}(?= <|$)")  # 2 <= width <= 8
_AT_LEAST = re.compile(rf"{_TERM} (?:>=? -?[\d.]+(?= and |$)|== )")  # min(a, b) >= 0
EXTENT = Kind("int", 0, WORD.high)
OF_AXIS = re.compile(r"\(normalize_axis\((\w+), len\((\w+)\)\),\)")
OF_MASK = re.compile(r"mask_axes\((\w+), len\((\w+)\)\)")


def implied(spec: OpSpec) -> list[Requirement]:
    """What goes without saying, but for what the spec's own conditions say more of."""
    own = [" ".join(requirement.that.split()) for requirement in spec.require]
    said = {bounded for text in own for bounded in _bounded(text)}
    conditions = [*_of_shapes(spec, said), *_of_sizes(spec, said)]
    for name, field in spec.descriptor.items():
        asked = name in said or any(f"isfinite({name})" in text for text in own)
        if field.type == "float" and field.finite and not asked:
            conditions.append(Requirement(that=f"isfinite({name})"))
    return conditions


def _bounded(condition: str) -> Iterator[str]:
    """What a condition bounds from below, or says to be equal to something: of `min(a, b) >= 0` both."""
    yield condition
    if " or " in condition or " if " in condition:
        return
    if match := _BOUNDED.match(condition) or _AT_LEAST.match(condition):
        yield match[1]
        if match[1].startswith("min("):
            yield from match[1][len("min(") : -1].split(", ")


def _of_shapes(spec: OpSpec, said: set[str]) -> Iterator[Requirement]:
    shapes = [name for name, field in spec.descriptor.items() if field.type == "shape"]
    for name in shapes:
        if f"len({name})" not in said:
            yield Requirement(that=f"1 <= len({name}) <= {LARGEST_RANK}", raises="Unsupported")
    yield from family_of(spec).conditions(spec, said)
    own = [" ".join(requirement.that.split()) for requirement in spec.require]
    for name in shapes:
        if f"min({name})" not in said:
            may_be_none = any(re.match(rf"0 <= len\({name}\)|len\({name}\) (?:<|>= 0|== 0)", text) for text in own)
            yield Requirement(that=f"{f'len({name}) == 0 or ' * may_be_none}min({name}) >= 0")


def of_axis(dim: Dim, said: set[str]) -> Iterator[Requirement]:
    """That the field which gives a dim its only axis is one of its shape's."""
    match = OF_AXIS.fullmatch(dim.axes or "")
    if match and (text := f"-len({match[2]}) <= {match[1]} < len({match[2]})") not in said:
        yield Requirement(that=text)


def _of_sizes(spec: OpSpec, said: set[str]) -> Iterator[Requirement]:
    """Fields that are extents by themselves: of dims, or of arrays by hand."""
    named = family_of(spec).extents(spec)
    sizes = [n for n, f in spec.descriptor.items() if f.type == "int" and n in named and n not in said]
    if sizes:
        yield Requirement(that=f"min({', '.join(sizes)}) >= 0" if len(sizes) > 1 else f"{sizes[0]} >= 0")
    at_least = r"\d+ <=? {0}\b|{0} >=? \d|min\([\w, ]*\b{0}\b[\w, ]*\) >=? \d"
    natural = {*sizes, *(n for n in said for text in said if n.isidentifier() and re.match(at_least.format(n), text))}
    fields = {n: f.type for n, f in spec.descriptor.items() if f.type in OF_FIELD}
    extents = {n: EXTENT if n in natural else OF_FIELD[of] for n, of in fields.items()}
    for text in sorted(named - {*spec.descriptor}):
        if f"{text} >= 0" not in said and kind_of(text, extents).low < 0:
            yield Requirement(that=f"{text} >= 0")
