"""Which statements of a kernel's source reach its machine code, found by marking each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .scopes import Definition, closing
from .tokens import Token

# Emits text into the object file where it is reached, and nowhere when it is not; it is no part of what runs.
_MARK = r' asm volatile(".pushsection .baracuda,\"\",@progbits\n.ascii \"[{}]\"\n.popsection"); '
_FOUND = re.compile(rb"\[(\d+)\]")
_CONTROL = ("if", "for", "while")


@dataclass(frozen=True)
class Statement:
    """From `start` to `end` of the text; `after` is the end of what precedes it. `alone`: it has no braces."""

    after: int
    start: int
    end: int
    alone: bool


def statements(definitions: Sequence[Definition]) -> list[Statement]:
    """The statements of the functions in `definitions`, in order of their beginning."""
    bodies = (d for d in definitions if d.is_function and d.body < len(d.tokens))
    listed = [s for d in bodies if d.tokens[d.body].text == "{" for s in _block(d.tokens, d.body)]
    return sorted(listed, key=lambda s: (s.start, -s.end))


def _block(tokens: Sequence[Token], opening: int) -> Iterator[Statement]:
    at, end = opening + 1, closing(tokens, opening)
    while at < end:
        behind = _end(tokens, at)
        yield Statement(tokens[at - 1].end, tokens[at].start, tokens[behind - 1].end, False)
        yield from _inside(tokens, at)
        at = behind


def _inside(tokens: Sequence[Token], at: int) -> Iterator[Statement]:
    """The statements that the one at `at` controls."""
    if tokens[at].text == "{":
        yield from _block(tokens, at)
        return
    for body in _bodies(tokens, at):
        if tokens[body].text != "{":
            behind = _end(tokens, body)
            yield Statement(tokens[body - 1].end, tokens[body].start, tokens[behind - 1].end, True)
        yield from _inside(tokens, body)


def _bodies(tokens: Sequence[Token], at: int) -> list[int]:
    """Where the one or two statements begin that a control statement governs."""
    if tokens[at].text not in _CONTROL:
        return []
    opening = next(i for i in range(at, len(tokens)) if tokens[i].text == "(")
    first = closing(tokens, opening) + 1
    behind = _end(tokens, first)
    has_else = tokens[at].text == "if" and behind < len(tokens) and tokens[behind].text == "else"
    return [first, behind + 1] if has_else else [first]


def _end(tokens: Sequence[Token], at: int) -> int:
    """The index behind the statement at `at`."""
    if tokens[at].text == "{":
        return closing(tokens, at) + 1
    if bodies := _bodies(tokens, at):
        return _end(tokens, bodies[-1])
    while tokens[at].text != ";":
        at = closing(tokens, at) if tokens[at].text in ("(", "[", "{") else at
        at += 1
    return at + 1


def marked(text: str, listed: Sequence[Statement]) -> str:
    """`text` with a mark in front of each statement, numbered in order."""
    inserted = []
    for number, statement in enumerate(listed):
        inserted.append((statement.after, number, ("{" if statement.alone else "") + _MARK.format(number)))
        if statement.alone:
            inserted.append((statement.end, -number, "}"))  # inner ones close before outer ones
    pieces, last = [], 0
    for at, _, insertion in sorted(inserted):
        pieces += [text[last:at], insertion]
        last = at
    return "".join([*pieces, text[last:]])


def marks(library: bytes) -> frozenset[int]:
    """The numbers of the marks in a library."""
    return frozenset(int(number) for number in _FOUND.findall(library))


def statement_at(listed: Sequence[Statement], start: int) -> int | None:
    """The number of the innermost statement in which the text at `start` stands, or None outside of them."""
    within = [number for number, statement in enumerate(listed) if statement.start <= start < statement.end]
    return within[-1] if within else None
