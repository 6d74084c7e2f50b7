"""A definition for operators: its tokens, and the expressions, subscripts and loops in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from .scopes import Definition, closing
from .tokens import Token

ASSIGNMENTS = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "^=", "|=", "&=", "<<=", ">>="})
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_ENDS = ASSIGNMENTS | {";", ",", "return"}
_UNTOUCHED = frozenset({"static_assert", "alignas", "asm"})  # the compiler's business, or opaque to it
_FOLLOWS = re.compile(r"[.\[(=<]|->|::|.+=")  # a name that opens an assignment or a call


@dataclass(frozen=True)
class Edit:
    """Replace the text from `start` to `end` by `after`."""

    start: int
    end: int
    after: str


@dataclass(frozen=True)
class Code:
    """The body of a definition. `siblings` are names in its file, `kinds` the structs of the kernel's tensors,
    `narrow` is a type too narrow for an accumulator."""

    text: str
    definition: Definition
    siblings: Sequence[str] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    narrow: str = "bf16"

    @cached_property
    def tokens(self) -> list[Token]:
        """The body's tokens, opening brace or equals sign first."""
        return list(self.definition.tokens[self.definition.body :])

    @cached_property
    def names(self) -> frozenset[str]:
        """All names in the definition."""
        return frozenset(t.text for t in self.definition.tokens if t.kind == "name")

    @cached_property
    def untouched(self) -> frozenset[int]:
        indices: set[int] = set()
        for at, token in enumerate(self.tokens[:-1]):
            if token.text in _UNTOUCHED and self.tokens[at + 1].text == "(":
                indices |= set(range(at, closing(self.tokens, at + 1) + 1))
        return frozenset(indices)

    def each(self) -> Iterator[tuple[int, Token]]:
        """Index and token of all that may be changed, except the first and the last token."""
        for at, token in enumerate(self.tokens):
            if 0 < at < len(self.tokens) - 1 and at not in self.untouched:
                yield at, token

    def cut(self, first: int, last: int) -> str:
        """The text from token `first` to token `last`, inclusive."""
        return self.text[self.tokens[first].start : self.tokens[last].end]

    def edit(self, first: int, last: int, after: str) -> Edit:
        return Edit(self.tokens[first].start, self.tokens[last].end, after)

    def left(self, at: int, stops: frozenset[str]) -> int:
        """Where the operand that ends before token `at` begins: after one of `stops` or the bracket around."""
        return self._reach(at, -1, stops, _CLOSE, _OPEN)

    def right(self, at: int, stops: frozenset[str]) -> int:
        """Where the operand that begins behind token `at` ends."""
        return self._reach(at, 1, stops, _OPEN, _CLOSE)

    def _reach(self, at: int, step: int, stops: frozenset[str], deeper: frozenset[str], outer: frozenset[str]) -> int:
        depth = 0
        while 0 <= at + step < len(self.tokens):
            text = self.tokens[at + step].text
            if depth == 0 and (text in outer or text in stops or text in _ENDS):
                break
            depth += (text in deeper) - (text in outer)
            at += step
        return at

    def conditions(self) -> Iterator[tuple[int, int]]:
        """First and last token of the condition of each `if` and `?`."""
        for at, token in self.each():
            if token.text == "if":
                opening = at + 1 if self.tokens[at + 1].text == "(" else at + 2
                yield opening + 1, closing(self.tokens, opening) - 1
            elif token.text == "?":
                yield self.left(at, frozenset({"?", ":"})), at - 1

    def is_declared(self, at: int) -> bool:
        """Whether the name at `at` is declared rather than used: a type precedes it."""
        before = self.tokens[at - 1]
        if before.text == "," and self.tokens[at + 1].text == "=":
            return True
        if before.kind == "name":
            return before.text not in ("return", "else")
        return before.text in ("*", "&", ">") and not before.spaced

    @cached_property
    def steps(self) -> list[tuple[int, int]]:
        """First and last token of the increment of each `for`."""
        steps = []
        for at, token in enumerate(self.tokens):
            if token.text == "for":
                end = closing(self.tokens, at + 1)
                if semicolons := [i for i in range(at, end) if self.tokens[i].text == ";"]:  # not `for (T a : b)`
                    steps.append((semicolons[-1] + 1, end - 1))
        return steps

    @cached_property
    def statements(self) -> list[tuple[int, int]]:
        """First and last token, semicolon included, of each statement that is an assignment or a call."""
        return list(self._statements())

    def _statements(self) -> Iterator[tuple[int, int]]:
        heads = self.heads
        for at, token in self.each():
            before = self.tokens[at - 1]
            starts = before.text in ("{", "}", ";", "else") or at - 1 in heads.values()
            inside = any(opening < at < end for opening, end in heads.items())
            if token.kind != "name" or not starts or inside or not _FOLLOWS.fullmatch(self.tokens[at + 1].text):
                continue
            end = next(i for i in range(at, len(self.tokens)) if self.tokens[i].text == ";")
            if token.text not in ("if", "for", "while", "return", "struct", "using") and not self._declares(at, end):
                yield at, end

    @cached_property
    def heads(self) -> dict[int, int]:
        """Where the parentheses after each `if`, `for` and `while` open and close."""
        heads = {}
        for at, token in enumerate(self.tokens[:-2]):
            if token.text in ("if", "for", "while"):
                opening = at + 1 if self.tokens[at + 1].text == "(" else at + 2
                heads[opening] = closing(self.tokens, opening)
        return heads

    def _declares(self, first: int, end: int) -> bool:
        """Whether the statement begins with a type: `Pack<T, N> name;`."""
        depth = 0
        for at in range(first, end):
            token = self.tokens[at]
            brackets = 0 if token.spaced else token.text.count("<") - token.text.count(">")
            depth += brackets
            if at > first and depth == 0 and not brackets:
                return token.kind == "name" or (token.text in ("*", "&") and not token.spaced)
        return False
