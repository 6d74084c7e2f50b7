"""Operators on CUDA text: comparisons, guards, arithmetic, constants, indices, barriers, reduction steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from .code import ASSIGNMENTS, Code, Edit
from .scopes import closing

Operator = Callable[[Code], Iterator[Edit]]

_COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
_ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "/", "<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "&"}
_ASSIGNED = {"+=": ("-=", "="), "-=": ("+=", "="), "*=": ("/=",), "/=": ("*=",), "^=": ("|=",)}
_EITHER = frozenset({"?", ":", "||"})
_NUMBER = re.compile(r"(0[xX][\da-fA-F]+|[\d.]+(?:[eE][+-]?\d+)?)(\w*)")


def comparison(code: Code) -> Iterator[Edit]:
    """`<` for `<=`; equal for unequal."""
    for at, token in code.each():
        if token.spaced and token.text in _COMPARISONS:
            yield code.edit(at, at, _COMPARISONS[token.text])


def connective(code: Code) -> Iterator[Edit]:
    """`and` for `or`, a `not` or an operand dropped."""
    for at, token in code.each():
        if token.text == "!":
            yield code.edit(at, at, "")
        elif token.text in ("&&", "||"):
            yield code.edit(at, at, "||" if token.text == "&&" else "&&")
            stops = _EITHER | {"&&"} if token.text == "&&" else _EITHER
            neutral = "true" if token.text == "&&" else "false"
            yield code.edit(code.left(at, stops), at - 1, neutral)
            yield code.edit(at + 1, code.right(at, stops), neutral)


def guard(code: Code) -> Iterator[Edit]:
    """A condition that is always or never true."""
    for first, last in code.conditions():
        if code.cut(first, last) not in ("true", "false"):
            yield code.edit(first, last, "true")
            yield code.edit(first, last, "false")


def arithmetic(code: Code) -> Iterator[Edit]:
    """Plus for minus, times for divided by, the quotient for the remainder; a sign dropped."""
    for at, token in code.each():
        if token.spaced and token.text in _ARITHMETIC:
            yield code.edit(at, at, _ARITHMETIC[token.text])
        elif token.text == "-":
            before = code.tokens[at - 1]
            if before.text == "return" or (before.kind == "sign" and before.text not in (")", "]")):
                yield code.edit(at, at, "")


def constant(code: Code) -> Iterator[Edit]:
    """Half of a power of two, else the next integer; a shifted mask; a sixteenth more of a fraction; the other bool; an
    array one shorter."""
    for at, token in code.each():
        if token.kind == "number" and code.tokens[at - 1].text == "[" and code.is_declared(at - 2):
            yield code.edit(at, at, str(int(token.text) - 1))
        elif token.kind == "number":
            yield code.edit(at, at, another(token.text))
        elif token.text in ("true", "false"):
            yield code.edit(at, at, "false" if token.text == "true" else "true")


def another(number: str) -> str:
    """A literal that differs from `number` slightly, but enough to matter."""
    match = _NUMBER.fullmatch(number)
    assert match is not None, number
    digits, suffix = match.groups()
    if digits[:2] in ("0x", "0X"):
        return f"{int(digits, 16) >> 1:#x}{suffix}"
    if not digits.isdigit():
        return f"{float(digits) * 1.0625 or 1.0!r}{suffix}"
    value = int(digits)
    return f"{value // 2 if value >= 4 and value & (value - 1) == 0 else value + 1}{suffix}"


def index(code: Code) -> Iterator[Edit]:
    """The next element."""
    for at, token in code.each():
        if token.text != "[" or not (code.tokens[at - 1].kind == "name" or code.tokens[at - 1].text == "]"):
            continue
        base, last = at - 1, closing(code.tokens, at) - 1
        while code.tokens[base].text == "]":
            base = next(i for i in range(base, -1, -1) if closing_is(code, i, base)) - 1
        if not code.is_declared(base) and code.tokens[at + 1 : last + 1] and code.tokens[last].kind != "number":
            yield code.edit(at + 1, last, f"{code.cut(at + 1, last)} + 1")


def closing_is(code: Code, opening: int, end: int) -> bool:
    """Whether the bracket at `opening` is closed at `end`."""
    return code.tokens[opening].text == "[" and closing(code.tokens, opening) == end


def assignment(code: Code) -> Iterator[Edit]:
    """`-=` or `=` for `+=`; the steps of loops stay."""
    in_steps = {i for first, last in code.steps for i in range(first, last + 1)}
    for at, token in code.each():
        for other in _ASSIGNED.get(token.text, ()) if at not in in_steps else ():
            yield code.edit(at, at, other)


def step(code: Code) -> Iterator[Edit]:
    """Loops that take two steps at a time, or end an iteration early."""
    for first, last in code.steps:
        end = first - 2
        at = next((i for i in range(end, 0, -1) if code.tokens[i].text in (";", "<")), 0)
        if code.tokens[at].text == "<" and code.tokens[at].spaced:
            yield code.edit(at, at, "+ 1 <")
        for at in range(first, last + 1):
            if code.tokens[at].text == "++":
                name = at + 1 if at < last and code.tokens[at + 1].kind == "name" else at - 1
                yield code.edit(min(at, name), max(at, name), f"{code.tokens[name].text} += 2")
            elif code.tokens[at].text in ASSIGNMENTS - {"="}:
                end = code.right(at, frozenset())
                yield code.edit(at + 1, end, f"2 * ({code.cut(at + 1, end)})")


def statement(code: Code) -> Iterator[Edit]:
    """An assignment or a call dropped."""
    for first, last in code.statements:
        yield code.edit(first, last - 1, "")


def accumulator(code: Code) -> Iterator[Edit]:
    """A sum rounded at each step to a narrower type."""
    tokens, names = code.definition.tokens, set()
    for at, token in enumerate(tokens[1:-1], 1):
        if token.text in ("acc_t", "A") and tokens[at - 1].text != "const" and tokens[at + 1].kind == "name":
            names.add(tokens[at + 1].text)
    for first, last in code.statements:
        at = next((i for i in range(first, last) if code.tokens[i].text in ASSIGNMENTS), last)
        if code.tokens[first].text not in names or at == last:
            continue
        target, value, sign = code.cut(first, at - 1), code.cut(at + 1, last - 1), code.tokens[at].text
        summed = value if sign == "=" else f"{target} {sign[:-1]} ({value})"
        yield code.edit(at, last - 1, f"= decltype({target} + 0)({code.narrow}({summed}))")


def width(code: Code) -> Iterator[Edit]:
    """Offsets in memory in 32 bits."""
    head = code.definition.tokens[: code.definition.body]
    for before, here, after, behind in zip(head, head[1:], head[2:], head[3:], strict=False):
        if [before.text, here.text, behind.text] == ["long", "long", "("] and after.text == code.definition.name:
            yield Edit(before.start, here.end, "int")
    in_heads = {i for opening, end in code.heads.items() for i in range(opening, end)}
    for at, _ in code.each():
        declared = [t.text for t in (*code.tokens[at : at + 2], *code.tokens[at + 3 : at + 4])]
        if declared == ["long", "long", "="] and code.tokens[at - 1].text != "const" and at not in in_heads:
            yield code.edit(at, at + 1, "int")
