"""Definitions at namespace scope, and which of them a kernel uses."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from .tokens import Token

_CLOSING = {"(": ")", "[": "]", "{": "}"}
_NOT_NAMES = {"alignas", "__launch_bounds__"}


@dataclass(frozen=True)
class Definition:
    """A function, type or constant. `body` is where its outermost braces begin, or the end without any."""

    name: str
    tokens: Sequence[Token]
    body: int
    is_function: bool


def closing(tokens: Sequence[Token], opening: int) -> int:
    """The index of the bracket that closes the one at `opening`."""
    depth, pair = 0, (tokens[opening].text, _CLOSING[tokens[opening].text])
    for at in range(opening, len(tokens)):
        depth += (tokens[at].text == pair[0]) - (tokens[at].text == pair[1])
        if depth == 0:
            return at
    return len(tokens) - 1


def definitions(tokens: Sequence[Token]) -> Iterator[Definition]:
    """Every definition, those of nested namespaces included; uses of macros and `using namespace` are none."""
    at = 0
    while at < len(tokens):
        text = tokens[at].text
        if text == "namespace":
            at += 3 if tokens[at + 1].text != "{" else 2
        elif text in ("}", ";"):
            at += 1
        elif text.isupper() and tokens[at + 1].text == "(":
            at = closing(tokens, at + 1) + 1
        else:
            end = _end(tokens, at)
            if not (text == "using" and tokens[at + 1].text == "namespace"):
                yield _definition(tokens[at:end])
            at = end


def _end(tokens: Sequence[Token], start: int) -> int:
    """Past the semicolon, or past the body of a function; a type's body has a semicolon behind it."""
    at = start
    while at < len(tokens):
        if tokens[at].text == ";":
            return at + 1
        if tokens[at].text in _CLOSING:
            opened = tokens[at].text
            at = closing(tokens, at)
            if opened == "{" and (at + 1 == len(tokens) or tokens[at + 1].text != ";"):
                return at + 1
        at += 1
    return at


def _definition(tokens: Sequence[Token]) -> Definition:
    start = _after_template(tokens)
    body = next((i for i in range(start, len(tokens)) if tokens[i].text in ("{", ";")), len(tokens))
    head = [t.text for t in tokens[start:body]]
    kinds = [i for i, text in enumerate(head) if text in ("struct", "class", "enum", "using")]
    if kinds and "(" not in head[: kinds[0]]:
        rest = tokens[start + kinds[0] + 1 : body]
        return Definition(_named(rest), tokens, body, False)
    at = 1
    while at < len(head):
        if head[at] == "(" and head[at - 1] not in _NOT_NAMES:
            return Definition(head[at - 1], tokens, body, True)
        at = closing(tokens, start + at) - start + 1 if head[at] == "(" else at + 1
    ends = [i for i, text in enumerate(head) if text in ("=", "[")] or [len(head)]
    return Definition(head[ends[0] - 1] if head else "", tokens, min(start + ends[0], body), False)


def _after_template(tokens: Sequence[Token]) -> int:
    if tokens[0].text != "template":
        return 0
    depth = 0
    for at, token in enumerate(tokens):
        depth += token.text.count("<") - token.text.count(">")
        if at and depth == 0:
            return at + 1
    return len(tokens)


def _named(tokens: Sequence[Token]) -> str:
    at = 0
    while at < len(tokens):
        if tokens[at].text in _NOT_NAMES:
            at = closing(tokens, at + 1)
        elif tokens[at].kind == "name" and tokens[at].text != "class":
            return tokens[at].text
        at += 1
    return ""


def reached(definitions: Sequence[Definition], entries: Collection[str]) -> list[Definition]:
    """The definitions that `entries` name, directly or through others; overloads go together."""
    by_name: dict[str, list[Definition]] = {}
    for definition in definitions:
        by_name.setdefault(definition.name, []).append(definition)
    seen, waiting = set(entries), [*entries]
    while waiting:
        for definition in by_name.get(waiting.pop(), ()):
            named = {t.text for t in definition.tokens if t.kind == "name" and t.text in by_name} - seen
            seen |= named
            waiting += named
    return [definition for definition in definitions if definition.name in seen]
