"""CUDA text as tokens, as the compiler sees them, with the place of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .branches import Branches
from .inline_headers import LINE

_TOKEN = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/)
      |(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
      |(?P<number>(?:0[xX][\da-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[uUlLfF]*)
      |(?P<name>[A-Za-z_]\w*)
      |(?P<sign><<=|>>=|\.\.\.|->|::|\+\+|--|<<|>>|[-+*/%&|^<>=!]=|&&|\|\||.)""",
    re.VERBOSE | re.DOTALL,
)
_DIRECTIVE = re.compile(r"[ \t]*#[ \t]*(\w+)((?:[^\n\\]|\\.)*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of text: a "name", "number", "text" (a string or character) or "sign"; `file` and `line` heed #line."""

    kind: str
    text: str
    start: int
    end: int
    file: str
    line: int
    spaced: bool  # with blanks on both sides, as a binary operator has and a template's bracket has not


def tokenize(text: str, path: str, defined: frozenset[str]) -> list[Token]:
    """The tokens of a kernel's lines when `defined` are the macros that are defined; see `Branches`."""
    tokens: list[Token] = []
    branches = Branches(defined)
    for start, line_end, file, number in _lines(text, path):
        if directive := _DIRECTIVE.match(text, start, line_end):
            branches.follow(directive[1], directive[2])
        elif branches.counts:
            tokens += _tokens(text, start, line_end, file, number)
    return tokens


def _lines(text: str, path: str) -> Iterator[tuple[int, int, str, int]]:
    """Runs of text without a directive, and each directive with its continuation lines."""
    start, file, number = 0, path, 1
    while start < len(text):
        if directive := _DIRECTIVE.match(text, start):
            end = directive.end()
        else:
            following = re.compile(r"^[ \t]*#", re.MULTILINE).search(text, start)
            end = following.start() if following else len(text)
        yield start, end, file, number
        number += text.count("\n", start, end)
        if match := LINE.fullmatch(text, start, end):
            file, number = match[2] or file, int(match[1]) - 1
        start = end


def _tokens(text: str, start: int, end: int, file: str, number: int) -> Iterator[Token]:
    at = start
    while at < end:
        match = _TOKEN.match(text, at, end)
        assert match is not None and match.lastgroup is not None
        if match.lastgroup != "blank":
            around = text[at - 1 : at], text[match.end() : match.end() + 1]
            yield Token(match.lastgroup, match[0], at, match.end(), file, number, all(a.isspace() for a in around))
        number += match[0].count("\n")
        at = match.end()
