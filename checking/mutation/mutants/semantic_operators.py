"""Operators on CUDA text that get an idea wrong: what is waited for, which part is which, what a sum begins with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from .code import ASSIGNMENTS, Code, Edit
from .scopes import closing
from .tokens import Token

_ORDERING = re.compile(
    r"__sync(threads|warp)|__threadfence(_block)?|bar_sync|\w*(wait|commit|arrive|fence|expect|release|acquire)\w*"
)
_ROUND = re.compile(r"ceil_div|round_up")
_TURNED = re.compile(r"\w*(parity|phase|stage)")
_LOWER = frozenset({"<", "<=", ">", ">=", "==", "!=", "&&", "||", "?", ":", "&", "|", "^", "<<", ">>"})
_SUMS = frozenset({"+", "-"})
_PRODUCTS = frozenset({"*", "/", "%"})
_LINKS = frozenset({".", "->", "::"})


def ordering(code: Code) -> Iterator[Edit]:
    """A barrier, fence, wait, commit or arrival dropped."""
    for at, token in code.each():
        if _ORDERING.fullmatch(token.text) and (opening := _opening(code.tokens, at)) and not code.is_declared(at):
            end = closing(code.tokens, opening)
            if code.tokens[end + 1].text == ";":
                yield code.edit(_start(code, at), end, "")


def _opening(tokens: list[Token], at: int) -> int:
    """Where the parentheses of a call of the name at `at` open, behind its template's arguments; 0 if it is no call."""
    following = at + 1
    if tokens[following].text == "<" and not tokens[following].spaced:
        depth = 0
        while following < len(tokens) and (depth or following == at + 1):
            depth += tokens[following].text.count("<") - tokens[following].text.count(">")
            following += 1
    return following if following < len(tokens) and tokens[following].text == "(" else 0


def _start(code: Code, at: int) -> int:
    """Where the expression begins whose last member is at `at`: `a` of `a.b[c].d`."""
    while code.tokens[at - 1].text in _LINKS:
        at -= 2
        while code.tokens[at].text in (")", "]"):
            opened = "(" if code.tokens[at].text == ")" else "["
            end = at
            at = next(i for i in range(end, -1, -1) if _closes(code, i, end, opened)) - 1
    return at


def _closes(code: Code, opening: int, end: int, opened: str) -> bool:
    return code.tokens[opening].text == opened and closing(code.tokens, opening) == end


def phase(code: Code) -> Iterator[Edit]:
    """Another stage of a ring of buffers, or the other phase of its barrier."""
    for at, token in code.each():
        if token.kind == "name" and _TURNED.fullmatch(token.text) and not code.is_declared(at):
            start, following = _start(code, at), code.tokens[at + 1]
            is_read = following.spaced or following.text in (")", "]", ",", ";")
            if is_read and following.text not in ASSIGNMENTS and code.tokens[start - 1].text not in ("!", "++"):
                yield code.edit(start, at, f"!{code.cut(start, at)}")


def exchange(code: Code) -> Iterator[Edit]:
    """Two neighbouring arguments of a call exchanged."""
    for at, token in code.each():
        if token.text != "(" or not _is_call(code, at):
            continue
        for (first, last), (start, end) in _neighbours(code, at):
            one, other = code.cut(first, last), code.cut(start, end)
            if one != other:
                yield code.edit(first, end, f"{other}, {one}")


_COMMUTE = frozenset({"min", "max", "minimum", "maximum"})
_HEADS = frozenset({"if", "for", "while", "return", "asm", "volatile", "sizeof", "switch", "decltype"})


def _is_call(code: Code, opening: int) -> bool:
    before = code.tokens[opening - 1]
    return (before.kind == "name" and before.text not in _COMMUTE | _HEADS) or before.text == ">"


def _neighbours(code: Code, opening: int) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    end, at = closing(code.tokens, opening), opening + 1
    arguments = []
    while at < end:
        last = code.right(at - 1, frozenset())
        arguments.append((at, last))
        at = last + 2
        if last < at - 2 or code.tokens[last + 1].text != ",":
            break
    yield from pairwise(arguments)


def term(code: Code) -> Iterator[Edit]:
    """One term of a sum dropped."""
    for at, token in code.each():
        if token.spaced and token.text in _SUMS:
            yield code.edit(at, code.right(at, _LOWER | _SUMS), "")
            if token.text == "+":
                yield code.edit(code.left(at, _LOWER | _SUMS), at, "")


def factor(code: Code) -> Iterator[Edit]:
    """One factor of a product dropped."""
    for at, token in code.each():
        if token.spaced and token.text in _PRODUCTS:
            yield code.edit(at, code.right(at, _LOWER | _SUMS | _PRODUCTS), "")
            if token.text == "*":
                yield code.edit(code.left(at, _LOWER | _SUMS | _PRODUCTS), at, "")


def identity(code: Code) -> Iterator[Edit]:
    """Zero where a reduction begins with an infinity."""
    for at, token in code.each():
        if token.text == "infinity" and (opening := _opening(code.tokens, at)):
            start = _start(code, at)
            yield code.edit(start, closing(code.tokens, opening), "0")


def partial(code: Code) -> Iterator[Edit]:
    """The last part forgotten where it is not a whole one."""
    for at, token in code.each():
        if _ROUND.fullmatch(token.text) and (opening := _opening(code.tokens, at)):
            pairs = list(_neighbours(code, opening))
            if len(pairs) == 1:
                (first, second) = (code.cut(*pair) for pair in pairs[0])
                whole = f"({first}) / ({second})"
                yield code.edit(at, closing(code.tokens, opening), whole if token.text == "ceil_div" else first)
