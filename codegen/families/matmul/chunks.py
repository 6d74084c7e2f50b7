"""Passes over chunks of a dim, which bound what they hand over: sums over that dim add up from chunk to chunk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...program import Const, Line, Name, ProgramError, Reduce
from ...program.tree import Call, Expr, Query, mapped, unused
from ..map.passes import Pass, Walk
from ..map.program import Parts, parts_of, queries_of

_OTHER = "take chunks of another dim"


def asked(cut: Iterable[Pass], chunked: str) -> frozenset[Query]:
    """What passes cannot ask of the space: products have no index, and chunks neither index nor size of their dim."""
    return frozenset(
        query
        for of in cut
        for query in queries_of(of.parts)
        if (of.product is not None and query.what == "index") or (of.loop and query.of == chunked)
    )


def with_arrays(parts: Parts, queries: Iterable[Query]) -> tuple[Parts, tuple[str, ...]]:
    """The parts with a line of its own for each of these, and the names of the lines."""
    names = dict[Expr, str]()
    for query in sorted(queries, key=str):
        names[query] = unused(f"{query.of}_{query.what}", parts.dims)

    def named(expr: Expr) -> Expr:
        return Name(names[expr]) if expr in names else mapped(expr, named)

    made = [Line(name, query, parts.lines[0].number) for query, name in names.items()]
    lines = (*made, *(Line(line.name, named(line.expr), line.number) for line in parts.lines))
    return parts_of(lines, parts.cells, parts.dims), tuple(names.values())


def phases_of(walks: Sequence[Walk], behind: Sequence[Iterable[int]], chunked: str) -> list[int]:
    """When each walk runs: at odd numbers in a loop over chunks, at even ones once; `behind` are those it rests on.

    A loop has ended before anything reads a sum that it adds up.
    """
    phases = list[int]()
    for place, walk in enumerate(walks):
        phase = parity = int(is_chunked(walk, chunked))
        for other in behind[place]:
            is_alike, adds_up = phases[other] % 2 == parity, chunked in walks[other].summed
            phase = max(phase, phases[other] + (2 * adds_up if is_alike else 1))
        phases.append(phase)
    return phases


def is_chunked(walk: Walk, chunked: str) -> bool:
    """Whether a walk runs for each chunk; what is made of no array is made at once."""
    return chunked in walk.cells and not walk.whole


def added_up(of: Pass) -> tuple[Pass, Pass]:
    """A pass that sets sums to zero, and `of`, which only stores sums, adding to them instead."""
    inputs, outputs, zeros = dict(of.spec.inputs), {}, list[Line]()
    lines, values = list[Line](), dict(of.parts.dims)
    for line in of.parts.lines:
        if line.name not in of.spec.outputs:
            lines.append(line)
            continue
        name, tensor = line.name, of.spec.outputs[line.name]
        part: Expr = line.expr
        if isinstance(part, Reduce):
            lines.append(Line(f"{name}_chunk", part, line.number))
            part = Name(f"{name}_chunk")
        lines.append(Line(f"{name}_next", Call("add", (Name(name), part)), line.number))
        inputs[name] = tensor
        outputs[f"{name}_next"] = tensor.model_copy(update={"updates": name})
        zeros.append(Line(name, Const(0.0), line.number))
    none = {"inputs": {}, "outputs": of.spec.outputs}
    cells = tuple(d for d in of.parts.cells if any(d in t.over for t in of.spec.outputs.values()))
    zero = Pass(of.spec.model_copy(update=none), parts_of(tuple(zeros), cells, {}))
    spec = of.spec.model_copy(update={"inputs": inputs, "outputs": outputs})
    return zero, replace(of, spec=spec, parts=parts_of(tuple(lines), of.parts.cells, values))


def check(cut: Iterable[tuple[Walk, Pass]], chunked: str) -> None:
    """Raises ProgramError for what chunks do not bound, or cannot add up."""
    written: dict[str, int] = {}
    for walk, of in cut:
        number = of.parts.lines[0].number
        for line in of.parts.sum_lines if of.loop and chunked in walk.summed else ():
            if isinstance(line.expr, Reduce) and line.expr.kind != "sum":
                raise ProgramError(f"{line.expr.kind} over {chunked} does not add up over chunks; {_OTHER}", number)
        for name, tensor in of.spec.inputs.items():
            if chunked in tensor.over and written.get(name, of.loop) not in (0, of.loop):
                text = f"{name!r} is read again after all chunks of {chunked}, so they do not bound it; {_OTHER}"
                raise ProgramError(text, number)
        written |= dict.fromkeys(of.spec.outputs, of.loop)
