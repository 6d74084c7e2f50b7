"""All mutants of kernels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from zlib import crc32

from baracuda.runtime import ElementKind, KernelSku, Registered

from ...problems.subject import Subject
from . import name_operators, operators, semantic_operators
from .code import Code, Edit
from .operators import Operator
from .scopes import Definition
from .targets import pasted, reached_by, representatives
from .tokens import Token

KERNEL_OPERATORS: dict[str, Operator] = {
    function.__name__: function
    for function in (
        semantic_operators.ordering,  # before others that make the same changes
        semantic_operators.phase,
        semantic_operators.exchange,
        semantic_operators.term,
        semantic_operators.factor,
        semantic_operators.identity,
        semantic_operators.partial,
        operators.comparison,
        operators.connective,
        operators.guard,
        operators.arithmetic,
        operators.constant,
        operators.index,
        operators.assignment,
        operators.step,
        operators.statement,
        operators.accumulator,
        operators.width,
        name_operators.tensor,
        name_operators.offset,
        name_operators.sibling,
        name_operators.twin,
        name_operators.function,
    )
}
KINDS = KERNEL, PLAN, SPEC, RUNTIME = "kernel", "plan", "spec", "runtime"  # what is changed
OF_TREES = frozenset({SPEC, RUNTIME})  # that change other files than they are judged by
_NARROW = {ElementKind.F16: "f16", ElementKind.F64: "float"}  # a type that a sum of such elements does not fit in


@dataclass(frozen=True)
class Mutant:
    """One defect: `before` at `start` of the text becomes `after`. `target` is a kernel's symbol, or the kind."""

    op: str
    target: str
    operator: str
    file: str
    line: int
    code: str  # the line as it is
    start: int
    before: str
    after: str
    use: str = ""  # "2 of 3" where a template prints the line three times; the number of a spec's schedule

    @property
    def id(self) -> str:
        """Depends on the mutant alone, so it is the same in every run."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:12]

    @property
    def change(self) -> str:
        """The change in one line: "before -> after"."""
        return " ".join(f"{self.before or 'nothing'} -> {self.after or 'nothing'}".split())

    @property
    def kind(self) -> str:
        """One of KINDS."""
        return self.target if self.target in KINDS else KERNEL

    def apply(self, text: str) -> str:
        assert text.startswith(self.before, self.start), f"{self.file}:{self.line} is no longer {self.before!r}"
        return text[: self.start] + self.after + text[self.start + len(self.before) :]


def of_kernels(subject: Subject, family: Sequence[Subject]) -> Iterator[Mutant]:
    """Every mutant of the kernels of an op; `family` are all ops of its family.

    A line of this op alone is mutated in each representative. A line that ops share, from a header or a template, is
    mutated once per kind of kernel, in one of these ops.
    """
    op, lines = subject.spec.op, {other.spec.op: _lines(other) for other in sorted(family, key=lambda s: s.spec.op)}
    for place, row in enumerate(representatives(subject)):
        for mutant in of_kernel(subject, row):
            sharing = [other for other in lines if mutant.code in lines[other]]
            turn = sharing.index(op) + crc32(mutant.code.encode())
            if (place - turn) % len(sharing) == 0:
                yield mutant


@cache
def _lines(subject: Subject) -> frozenset[str]:
    """The lines of code that the kernels of an op use."""
    used = {id(reached_by(subject, row)): row for row in representatives(subject)}  # one kernel for each of the same
    lines: set[str] = set()
    for row in used.values():
        text, definitions = pasted(row), reached_by(subject, row)
        starts = {_start_of(text, token.start) for definition in definitions for token in definition.tokens}
        lines |= {_line_at(text, start) for start in starts}
    return frozenset(lines)


def _line_at(text: str, start: int) -> str:
    return text[_start_of(text, start) : text.find("\n", start)].strip()


def of_kernel(subject: Subject, row: Registered) -> Iterator[Mutant]:
    """Every mutant of a kernel."""
    sku, text, used = row.sku, pasted(row), reached_by(subject, row)
    own = [d for d in used if not d.tokens[0].file.startswith("baracuda/")]
    siblings = list(dict.fromkeys(t.text for d in own for t in d.tokens if t.kind == "name"))
    kinds = _kinds(next((d for d in own if d.name == "kernel_args"), None))
    uses = _uses(text, used)
    seen: set[Edit] = set()
    for definition in used:
        code = Code(text, definition, siblings, kinds, _NARROW.get(sku.element, "bf16"))
        places = {t.start: t for t in definition.tokens}
        for name, operator in KERNEL_OPERATORS.items():
            for edit in operator(code):
                if edit not in seen:
                    seen.add(edit)
                    at = places[edit.start]
                    yield _mutant(sku, name, text, at, edit, uses[at.file, at.line])


def _mutant(sku: KernelSku, operator: str, text: str, at: Token, edit: Edit, starts: list[int]) -> Mutant:
    line, before = _line_at(text, edit.start), text[edit.start : edit.end]
    use = f"{starts.index(_start_of(text, edit.start)) + 1} of {len(starts)}"
    return Mutant(sku.op, sku.symbol, operator, at.file, at.line, line, edit.start, before, edit.after, use)


def _uses(text: str, used: Sequence[Definition]) -> dict[tuple[str, int], list[int]]:
    """Where in `text` each line of a template or header begins, once for each time it is there."""
    starts: dict[tuple[str, int], list[int]] = {}
    for token in (token for definition in used for token in definition.tokens):
        start = _start_of(text, token.start)
        if start not in (line_starts := starts.setdefault((token.file, token.line), [])):
            line_starts.append(start)
    return starts


def _start_of(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _kinds(struct: Definition | None) -> dict[str, str]:
    """The struct of each tensor, by the names of the kernel's argument struct."""
    kinds = {}
    kind = ""
    for token, behind in zip(struct.tokens, struct.tokens[1:], strict=False) if struct else ():
        if token.text.startswith("Per"):
            kind = token.text
        elif kind and token.kind == "name" and behind.text == ";":
            kinds[token.text], kind = kind, ""
    return kinds


def digest_of(*folders: Path) -> str:
    """Changes with every source file below `folders`."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(p for p in folder.rglob("*") if p.suffix in (".py", ".cuh", ".cpp", ".h", ".yaml")):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]
