"""PTX text as functions of instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

_COMMENT = re.compile(r"//[^\n]*")
_HEADER = re.compile(r"\.(entry|func)\s+(?:\((?P<result>[^)]*)\)\s*)?(?P<name>[\w$]+)\s*\((?P<params>[^)]*)\)")
_LABEL = re.compile(r"([\w$]+):(?!:)")
_VARIABLE = re.compile(
    r"\.(?P<space>global|const|shared|local|param)\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>[a-z]\d+)\s+"
    r"(?P<name>[\w$]+)(?:\[(?P<count>\d*)\])?(?:\s*=\s*(?P<content>.*))?",
    re.DOTALL,
)
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)", re.DOTALL)
_GUARDED = re.compile(r"@(!?)(%?[\w$]+)\s+(.*)", re.DOTALL)
_OPERAND = re.compile(r"\s*(\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,{\[(]+)\s*(?:,|$)")


class Variable(NamedTuple):
    """A variable of a state space; `length` elements of `itemsize` bytes, of which `content` gives the first."""

    space: str
    name: str
    align: int
    itemsize: int
    length: int
    content: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return self.itemsize * self.length


class Instruction(NamedTuple):
    """An opcode like `("cvt", "rn", "f16", "f32")`, its operands as written, and its guard, "" or like "!%p1"."""

    opcode: tuple[str, ...]
    operands: tuple[str, ...]
    guard: str

    def __str__(self) -> str:
        return f"{'.'.join(self.opcode)} {', '.join(self.operands)}".strip()


@dataclass
class Function:
    """An entry point or a function; labels are indices of instructions."""

    name: str
    results: tuple[Variable, ...]
    params: tuple[Variable, ...]
    registers: dict[str, str] = field(default_factory=dict)  # type by name, or by name without its number
    variables: list[Variable] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Module:
    functions: dict[str, Function]
    variables: list[Variable]


def read_module(text: str) -> Module:
    """The functions and variables of a PTX file."""
    text = _COMMENT.sub("", text)
    functions, outside, at = {}, [], 0
    for header in _HEADER.finditer(text):
        start = text.find("{", header.end())
        semicolon = text.find(";", header.end())
        if start < 0 or 0 <= semicolon < start:  # a declaration
            continue
        end = _closing(text, start)
        outside.append(text[at : header.start()])
        at = end + 1
        params, results = (tuple(_variables((header[part] or "").split(","))) for part in ("params", "result"))
        function = Function(header["name"], results, params)
        _read_body(function, text[start + 1 : end])
        functions[function.name] = function
    statements = "".join([*outside, text[at:]]).split(";")
    return Module(functions, list(_variables(statements)))


def _closing(text: str, start: int) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.start()
    raise ValueError("a brace of the PTX is never closed")


def _variables(statements: list[str]) -> Iterator[Variable]:
    for statement in statements:
        if match := _VARIABLE.search(statement):
            content = tuple(int(number) for number in re.findall(r"-?\d+", match["content"] or ""))
            itemsize = int(match["type"][1:]) // 8
            count = 1 if match["count"] is None else int(match["count"] or 0)
            align = int(match["align"] or itemsize)
            yield Variable(match["space"], match["name"], align, itemsize, count, content)


def _read_body(function: Function, text: str) -> None:
    at = 0
    while at < len(text):
        if text[at].isspace() or text[at] in "{};":
            at += 1
        elif label := _LABEL.match(text, at):
            function.labels[label[1]] = len(function.instructions)
            at = label.end()
        else:
            end = text.index(";", at)
            _read_statement(function, text[at:end].strip())
            at = end + 1


def _read_statement(function: Function, statement: str) -> None:
    if registers := _REGISTERS.match(statement):
        for name in registers[2].split(","):
            function.registers[name.strip().partition("<")[0]] = registers[1]
    elif statement.startswith("."):
        function.variables += _variables([statement])
    else:
        guard = ""
        if guarded := _GUARDED.match(statement):
            guard, statement = guarded[1] + guarded[2], guarded[3]
        opcode, _, operands = statement.replace("\t", " ").replace("\n", " ").partition(" ")
        parts = tuple(match[1].strip() for match in _OPERAND.finditer(operands.strip()))
        function.instructions.append(Instruction(tuple(opcode.replace("::", ":").split(".")), parts, guard))


def listed(operand: str) -> list[str]:
    """The parts of a vector of registers."""
    return [part.strip() for part in operand[1:-1].split(",") if part.strip()]
