"""Inline PTX of device headers as calls of C++ functions, one for each instruction.

`asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));` becomes `{ ::baracuda_ptx::cvt_rn_f16_f32(bits, value); }`,
operands in PTX order. The functions are the table in include/baracuda_host/ptx.h; an instruction that it lacks does not
compile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count

from ..errors import CompileError

_ASM = re.compile(r"\basm\b(?:\s+volatile\b)?\s*\(")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_OPERAND = re.compile(r'\s*((?:"[^"]*"\s*)+)\((.*)\)\s*', re.DOTALL)
_SHAPE = re.compile(r"_m(\d+)n(\d+)k(\d+)")
_TOKEN = re.compile(r"%%[\w.]+|%\d+|%=|[{}\[\],|]|[^\s{}\[\],|%]+")
_TYPES = {"r": "unsigned", "l": "unsigned long long", "h": "unsigned short", "f": "float", "d": "double"}
_SPECIAL = {
    "%%tid.x": "::baracuda_host::thread_index().x",
    "%%ctaid.x": "::baracuda_host::block_index().x",
    "%%laneid": "unsigned(::baracuda_host::lane())",
    "%%cluster_ctarank": "::baracuda_host::cluster_rank()",
}


def with_functions(text: str) -> str:
    """Preprocessed C++ with a block of calls in place of each `asm`; raises CompileError for one it cannot read."""
    parts, at, number = [], 0, count()
    while match := _ASM.search(text, at):
        end = _closing(text, match.end() - 1)
        inside = text[match.end() : end]
        semicolon = text.index(";", end)
        lines = "\n" * text[match.start() : semicolon].count("\n")  # those after it keep their numbers
        parts += [text[at : match.start()], _block(inside, next(number)), lines]
        at = semicolon + 1
    return "".join([*parts, text[at:]])


def _closing(text: str, opening: int) -> int:
    """Where the parenthesis at `opening` closes."""
    depth = 0
    for match in re.finditer(r'"(?:[^"\\]|\\.)*"|[()]', text[opening:]):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if depth == 0:
            return opening + match.start()
    raise CompileError(f"asm without a closing parenthesis: {text[opening : opening + 80]!r}")


def _split(text: str, separator: str) -> Iterator[str]:
    """The parts of `text` between separators outside of parentheses and strings."""
    depth, start = 0, 0
    for match in re.finditer(rf'"(?:[^"\\]|\\.)*"|[(){separator}\[\]]|[{{}}]', text):
        if match[0] in "([{":
            depth += 1
        elif match[0] in ")]}":
            depth -= 1
        elif match[0] == separator and depth == 0:
            yield text[start : match.start()]
            start = match.end()
    yield text[start:]


def _block(inside: str, number: int) -> str:
    """The calls for what stands between the parentheses of an `asm`."""
    inside = re.sub(r'^# \d+ ".*$', "", inside, flags=re.MULTILINE)  # the preprocessor's notes of lines
    template, written, read = [*_split(inside, ":"), "", ""][:3]
    code = "".join(_STRING.findall(template)).encode().decode("unicode_escape").strip()
    operands = [_operand(part) for part in [*_split(written, ","), *_split(read, ",")] if part.strip()]
    if code.startswith("{"):
        code = code[1:].removesuffix("}")
    statements = filter(None, map(str.strip, re.split(r"[;\n]", code.replace("%=", str(number)))))
    calls = [_statement(statement, operands) for statement in statements]
    return "{ " + " ".join(calls) + " }"


def _operand(text: str) -> tuple[str, str]:
    """How a call passes an operand, and how it is written to or read from within a list."""
    match = _OPERAND.fullmatch(text)
    constraint = "".join(_STRING.findall(match[1])) if match else ""
    kind, written, expression = constraint[-1:], constraint[:-1], match[2] if match else ""
    if written not in ("", "=", "+") or kind not in (*_TYPES, "n"):
        raise CompileError(f"asm operand {text.strip()!r}: needs a constraint of r, l, h, f, d or n")
    if kind == "n":
        return f"({expression})", f"({expression})"
    if written:
        place = f"reinterpret_cast<{_TYPES[kind]}&>({expression})"
        return place, f"&{place}"
    return f"({_TYPES[kind]})({expression})", f"::baracuda_ptx::place<{_TYPES[kind]}>({expression})"


def _statement(text: str, operands: list[tuple[str, str]]) -> str:
    if text.startswith(".reg .pred "):
        return "".join(f"bool ptx_{name.strip()} = false; " for name in text.removeprefix(".reg .pred").split(","))
    if text.endswith(":"):
        return text
    condition = ""
    if guard := re.match(r"@(!?)(\w+)\s+", text):
        condition, text = f"if ({guard[1]}ptx_{guard[2]}) ", text[guard.end() :]
    opcode, _, rest = text.partition(" ")
    if opcode == "bra":
        return f"{condition}goto {rest.strip()};"
    name = re.sub(r"[.:]+", "_", opcode)
    shape = _SHAPE.search(name)
    if shape:
        name = f"{_SHAPE.sub('', name)}<{shape[1]}, {shape[2]}, {shape[3]}>"
    return f"{condition}::baracuda_ptx::{name}({', '.join(_arguments(rest, operands))});"


def _arguments(text: str, operands: list[tuple[str, str]]) -> Iterator[str]:
    """A call's arguments: of `[address, {x, y}]` both, of a list in braces a Registers, of `_` none."""
    listed: list[str] | None = None
    for token in _TOKEN.findall(text):
        if token == "{":
            listed = []
        elif token == "}":
            yield f"::baracuda_ptx::registers({', '.join(listed or [])})"
            listed = None
        elif token in "[],|_":
            continue
        elif token.startswith("%%"):
            if token not in _SPECIAL:
                raise CompileError(f"inline PTX with {token[1:]}: the host device has no such special register")
            yield _SPECIAL[token]
        elif token.startswith("%"):
            if int(token[1:]) >= len(operands):
                raise CompileError(f"inline PTX {text!r}: there is no operand {token}")
            alone, within = operands[int(token[1:])]
            if listed is None:
                yield alone
            else:
                listed.append(within)
        else:
            yield f"ptx_{token}" if token[0].isalpha() else token
