"""All mutants of a spec: of its formulas, its program and its declarations."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from baracuda.runtime.plans.sku import RUNGS

from .expression_operators import EXPRESSION_OPERATORS
from .kernels import SPEC, Mutant
from .places import line_of, span

# What a plan is generated from; the rest is documentation, or says how the op is tested.
_DATA = "descriptor", "require", "inputs", "outputs", "dims", "program", "reproducibility"
_OF_BODIES = "settings", "layouts", "workspace", "terms", "kernels", "schedules"
_NOT_MUTATED = frozenset({"doc", "test", "type", "numbers", "threads", "arch", "math", "name"})
_WORDS = {
    **{"true": "false", "false": "true", "InvalidProblem": "Unsupported", "Unsupported": "InvalidProblem"},
    **{"T": "acc", "acc": "T", "inner": "any"},
}
Change = tuple[str, int, int, str]  # the operator, where the change begins and ends, what is put there


def of_spec(op: str, path: Path, file: str) -> Iterator[Mutant]:
    """Every mutant of the spec of `op`, which `file` is in reports."""
    text = path.read_text(encoding="utf-8")
    whole = YAML().compose(text)
    root = whole if _value(whole, "op") == op else _section(whole, "backward")
    fields = _fields(whole)
    seen: set[tuple[int, int, str]] = set()
    for key, section in [(key, section) for key, section in root.value if key.value in (*_DATA, *_OF_BODIES)]:
        for operator, start, end, after in _changes(text, section, fields):
            before = text[start:end]
            if (start, end, after) not in seen and before != after:
                seen.add((start, end, after))
                line, code = line_of(text, start)
                use = _schedule(section, start) if key.value == "schedules" else ""
                yield Mutant(op, SPEC, operator, file, line, code, start, before, after, use)


def _section(root: MappingNode, name: str) -> MappingNode:
    (section,) = (section for key, section in root.value if key.value == name)
    assert isinstance(section, MappingNode)
    return section


def _value(root: MappingNode, name: str) -> str:
    return next(str(value.value) for key, value in root.value if key.value == name)


def _schedule(section: SequenceNode, start: int) -> str:
    """Which of the schedules the text at `start` belongs to."""
    return str(next(n for n, entry in enumerate(section.value) if entry.end_mark.index > start))


def _fields(root: MappingNode) -> Mapping[str, str]:
    """For each field of the descriptor the next one of its type."""
    of_types: dict[str, list[str]] = {}
    for name, entry in (field for key, section in root.value if key.value == "descriptor" for field in section.value):
        kind = next((value.value for key, value in getattr(entry, "value", ()) if key.value == "type"), "")
        of_types.setdefault(kind, []).append(name.value)
    return {one: other for names in of_types.values() for one, other in zip(names, names[1:] + names[:1], strict=True)}


def _changes(text: str, node: Node, fields: Mapping[str, str]) -> Iterator[Change]:
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if key.value not in _NOT_MUTATED:
                yield from _changes(text, value, fields)
    elif isinstance(node, SequenceNode):
        yield from _of_list(text, node)
        for item in node.value:
            yield from _changes(text, item, fields)
    elif isinstance(node, ScalarNode):
        yield from _of_scalar(text, node, fields)


def _of_list(text: str, node: SequenceNode) -> Iterator[Change]:
    """An item dropped; of guarantees also one that the op does not give."""
    items = node.value
    if node.flow_style:
        words = [text[item.start_mark.index : item.end_mark.index] for item in items]
        start, end = node.start_mark.index, node.end_mark.index
        for at in range(len(items)):
            yield "dropped", start, end, f"[{', '.join(words[:at] + words[at + 1 :])}]"
        if words and set(words) <= set(RUNGS):
            for rung in (rung for rung in RUNGS if rung not in words):
                yield "claimed", start, end, f"[{', '.join([*words, rung])}]"
    elif len(items) > 1:
        for item in items:
            start = text.rindex("-", 0, item.start_mark.index)
            yield "dropped", start, item.end_mark.index, ""


def _of_scalar(text: str, node: ScalarNode, fields: Mapping[str, str]) -> Iterator[Change]:
    start, end = node.start_mark.index, node.end_mark.index
    if (word := text[start:end]) in _WORDS:
        yield "word", start, end, _WORDS[word]
    elif node.style == "|":
        at = text.index("\n", start) + 1
        for line in text[at:end].splitlines(keepends=True):
            yield from _of_formula(line.strip(), at + len(line) - len(line.lstrip()), fields)
            at += len(line)
    elif node.style in ('"', "'"):
        yield from _of_formula(text[start + 1 : end - 1], start + 1, fields)
    else:
        yield from _of_formula(text[start:end], start, fields)


def _of_formula(formula: str, start: int, fields: Mapping[str, str]) -> Iterator[Change]:
    """What operators make of a formula, or of a line of a program, which begins at `start`."""
    name, sign, _ = formula.partition(" = ")
    begin = len(name + sign) if sign and name.isidentifier() else 0
    inner = f"({formula[begin:]})"  # it may go on over the ends of lines
    try:
        tree = ast.parse(inner, mode="eval")
    except SyntaxError:
        return
    changed = [(name, *change) for name, operator in EXPRESSION_OPERATORS.items() for change in operator(tree)]
    changed += [("name", node, after) for node, after in _other_fields(tree, fields)]
    for operator, node, after in changed:
        first, last = (start + begin + at - 1 for at in span(inner, node))
        yield operator, first, last, after


def _other_fields(tree: ast.AST, fields: Mapping[str, str]) -> Iterator[tuple[ast.AST, str]]:
    """A field for another of its type."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and fields.get(node.id, node.id) != node.id:
            yield node, fields[node.id]
