"""Operators that replace a name in CUDA text: tensors, strides, axes, folds, functions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .code import Code, Edit
from .scopes import closing

_TWINS = {
    **{"rows": "cols", "cols": "rows", "row": "first", "first": "row"},
    **{f"row_{part}": f"col_{part}" for part in ("axes", "extent", "stride")},
    **{f"col_{part}": f"row_{part}" for part in ("axes", "extent", "stride")},
    **{"LANES": "ROWS", "ROWS": "LANES", "THREADS": "LANES", "block": "blocks", "blocks": "block"},
}
_FUNCTIONS = {
    **{"Sum": "Max", "Max": "Min", "Min": "Max", "Mean": "Sum"},
    **{"maximum": "minimum", "minimum": "maximum", "min": "max", "max": "min"},
    **{"exp": "exp2", "exp2": "exp", "log": "log2", "log2": "log", "sqrt": "rsqrt", "rsqrt": "sqrt", "sin": "cos"},
    **{"cos": "sin", "erf": "erfc", "erfc": "erf", "floor": "ceil", "ceil": "floor", "expm1": "exp", "log1p": "log"},
    **{"__shfl_xor_sync": "__shfl_down_sync", "__shfl_down_sync": "__shfl_xor_sync"},
}
_PLACES = frozenset({"threadIdx", "blockIdx", "gridDim", "blockDim"})
_SIBLING = re.compile(r"\w+?(_tensor|_slice|_sum|_parts|_reduced|_type)")
_OF_LANES = frozenset({"in", "raw", "store"})  # functions that take a tensor


def tensor(code: Code) -> Iterator[Edit]:
    """Another tensor of the same kind, or else one with the same member."""
    for at, name, member in _tensors(code):
        if others := _others(code, name, member):
            yield code.edit(at, at, others[0])


def offset(code: Code) -> Iterator[Edit]:
    """A tensor's own memory at another tensor's offset."""
    for at, name, member in _tensors(code):
        same = [other for other in _others(code, name, member) if code.kinds[other] == code.kinds[name]]
        if not same or member not in ("row", "at") or code.tokens[at + 3].text != "(":
            continue
        end = closing(code.tokens, at + 3)
        arguments, other = code.cut(at + 3, end), f"args.{same[0]}"
        away = f"&{other}.at{arguments} - {other}.data" if member == "at" else f"{other}.row{arguments} - {other}.data"
        after = f"args.{name}.data[{away}]" if member == "at" else f"(args.{name}.data + ({away}))"
        yield code.edit(at - 2, end, after)


def _tensors(code: Code) -> Iterator[tuple[int, str, str]]:
    """Where `args.name.member` has its name, the name and the member."""
    for at, token in code.each():
        around = [t.text for t in (*code.tokens[at - 2 : at], code.tokens[at + 1])]
        if token.text in code.kinds and around == ["args", ".", "."]:
            yield at, token.text, code.tokens[at + 2].text


_MEMBERS = {
    "PerElement": frozenset({"data", "row_stride", "col_stride", "row"}),
    "PerRow": frozenset({"data", "row_stride", "at"}),
    "PerCol": frozenset({"data", "col_stride", "at"}),
}


def _others(code: Code, name: str, member: str) -> list[str]:
    """The tensors to confuse with `name`, from the one after it on; of the same kind if possible."""
    names = list(code.kinds)
    turned = names[names.index(name) + 1 :] + names[: names.index(name)]
    same = [n for n in turned if code.kinds[n] == code.kinds[name]]
    return same or [n for n in turned if member in _MEMBERS.get(code.kinds[n], ()) and member != "data"]


def sibling(code: Code) -> Iterator[Edit]:
    """Another name with the same ending, `x_tensor` for `dy_tensor`; another tensor of which a lane has the same."""
    yield from _lanes(code)
    for at, token in code.each():
        match = _SIBLING.fullmatch(token.text)
        if match is None or code.is_declared(at):
            continue
        if other := _behind(token.text, match[1], code.siblings):
            yield code.edit(at, at, other)


def _lanes(code: Code) -> Iterator[Edit]:
    places: dict[str, list[tuple[int, str]]] = {}
    for at, token in code.each():
        function, *before = [t.text for t in code.tokens[at - 4 : at]] or [""]
        if function in _OF_LANES and before == ["(", "args", "."]:
            places.setdefault(function, []).append((at, token.text))
    for found in places.values():
        names = list(dict.fromkeys(name for _, name in found))
        for at, name in found if len(names) > 1 else ():
            yield code.edit(at, at, names[(names.index(name) + 1) % len(names)])


def _behind(name: str, ending: str, names: Sequence[str]) -> str:
    alike = [n for n in names if (m := _SIBLING.fullmatch(n)) and m[1] == ending]
    if name not in alike or len(alike) < 2:
        return ""
    return alike[(alike.index(name) + 1) % len(alike)]


def twin(code: Code) -> Iterator[Edit]:
    """Rows for columns, one axis of the grid for another, threads of a row for rows of a block."""
    for at, token in code.each():
        before, following = code.tokens[at - 1].text, code.tokens[at + 1].text
        if token.text in _PLACES and following == ".":
            yield code.edit(at + 2, at + 2, "y" if code.tokens[at + 2].text == "x" else "x")
        elif token.kind == "name" and not code.is_declared(at) and following != "(":
            other = _TWINS.get(token.text) or _measured(token.text, code.siblings)
            if other and (before in (".", "->", "::") or other in code.names):
                yield code.edit(at, at, other)


def _measured(name: str, names: Sequence[str]) -> str:
    """The other dim's size for a `_size`, its index for an `_index`."""
    end = name.rpartition("_")[2]
    alike = [n for n in names if n.endswith(f"_{end}")] if end in ("size", "index") else []
    return alike[(alike.index(name) + 1) % len(alike)] if name in alike and len(alike) > 1 else ""


def function(code: Code) -> Iterator[Edit]:
    """Another fold, another function."""
    for at, token in code.each():
        before, behind = code.tokens[at - 1].text, code.tokens[at + 1].text
        used = behind in ("(", "<") or (before, behind) == ("<", ">")
        if token.text in _FUNCTIONS and used and not code.is_declared(at):
            yield code.edit(at, at, _FUNCTIONS[token.text])
