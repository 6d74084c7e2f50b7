"""All mutants of kernels, and the SKUs that represent an op."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from zlib import crc32

from baracuda.runtime import REGISTRY, ElementKind, KernelSku, Registered, SourceFile

from . import name_operators, operators
from .code import Code, Edit
from .inline_headers import with_headers
from .operators import Operator
from .scopes import Definition, definitions, reached
from .tokens import Token, tokenize

KERNEL_OPERATORS: dict[str, Operator] = {
    function.__name__: function
    for function in (
        operators.comparison,
        operators.connective,
        operators.guard,
        operators.arithmetic,
        operators.constant,
        operators.index,
        operators.assignment,
        operators.step,
        operators.statement,
        operators.barrier,
        operators.accumulator,
        operators.width,
        name_operators.tensor,
        name_operators.offset,
        name_operators.sibling,
        name_operators.twin,
        name_operators.function,
    )
}
PLAN = "plan"
_NARROW = {ElementKind.F16: "f16", ElementKind.F64: "float"}  # a type that a sum of such elements does not fit in


@dataclass(frozen=True)
class Mutant:
    """One defect: `before` at `start` of the text becomes `after`. `target` is a kernel's symbol, or PLAN."""

    op: str
    target: str
    operator: str
    file: str
    line: int
    code: str  # the line as it is
    start: int
    before: str
    after: str
    use: str = ""  # "2 of 3" where a template prints the line three times

    @property
    def id(self) -> str:
        """Depends on the mutant alone, so it is the same in every run."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:12]

    @property
    def change(self) -> str:
        """The change in one line: "before -> after"."""
        return " ".join(f"{self.before or 'nothing'} -> {self.after or 'nothing'}".split())

    def apply(self, text: str) -> str:
        assert text.startswith(self.before, self.start), f"{self.file}:{self.line} is no longer {self.before!r}"
        return text[: self.start] + self.after + text[self.start + len(self.before) :]


@cache
def pasted(source: SourceFile) -> str:
    """The kernel's source with the project's headers inlined."""
    return with_headers(source.text, source.path)


def representatives(op: str) -> list[Registered]:
    """Three kernels of `op` that cover the branches of its source.

    A tile of rows within a warp in f32, one of rows of several warps in a 16-bit type, and a wide one in f64; another
    element type where the op lacks these.
    """
    rows = REGISTRY.candidates(op)
    halves = (ElementKind.BF16, ElementKind.F16) if len(op) % 2 else (ElementKind.F16, ElementKind.BF16)
    choices = {"warp": (ElementKind.F32,), "block": halves, "wide": (ElementKind.F64,)}
    chosen = []
    for kind, elements in choices.items():
        of_kind = [row for row in rows if _kind(row.sku) == kind]
        fit = [row for element in elements for row in of_kind if row.sku.element == element]
        chosen += (fit or of_kind)[:1]
    return chosen


def _kind(sku: KernelSku) -> str:
    return "wide" if sku.tile.wide else "warp" if sku.tile.lanes <= 32 else "block"


def of_kernels(op: str, ops: Sequence[str]) -> Iterator[Mutant]:
    """Every mutant of the kernels of `op`; `ops` are all ops.

    A line of this op alone is mutated in each representative. A line that ops share, from a header or a template, is
    mutated once per kind of kernel, in one of these ops.
    """
    rows, lines = representatives(op), {other: _lines(other) for other in sorted(ops)}
    for place, row in enumerate(rows):
        for mutant in _of_kernel(row, pasted(row.source)):
            sharing = [other for other in lines if mutant.code in lines[other]]
            turn = sharing.index(op) + crc32(mutant.code.encode())
            if (place - turn) % len(sharing) == 0:
                yield mutant


@cache
def _lines(op: str) -> frozenset[str]:
    """The lines of code that the kernels of `op` use."""
    lines: set[str] = set()
    for row in representatives(op):
        text = pasted(row.source)
        lines |= {_line_at(text, token.start) for definition in reached_by(row, text) for token in definition.tokens}
    return frozenset(lines)


def _line_at(text: str, start: int) -> str:
    return text[_start_of(text, start) : text.find("\n", start)].strip()


def reached_by(row: Registered, text: str) -> list[Definition]:
    """The definitions in the pasted `text` that the kernel of `row` uses."""
    defined = {"BARACUDA_CLUSTER"} if row.sku.tile.cluster > 1 else set()
    return reached(list(definitions(tokenize(text, row.source.path, frozenset(defined)))), "BARACUDA_SYMBOL")


def _of_kernel(row: Registered, text: str) -> Iterator[Mutant]:
    sku, used = row.sku, reached_by(row, text)
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
