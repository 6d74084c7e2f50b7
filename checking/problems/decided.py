"""Problems in which a program compares a field with a number that equals it, for some element."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from baracuda.codegen.program import Line, parse
from baracuda.codegen.program.evaluate import evaluate
from baracuda.codegen.program.ops import OPS
from baracuda.codegen.program.tree import Call, Expr, Name, reads, walk
from baracuda.codegen.spec.scope import scope_of
from baracuda.codegen.spec.spec import ProgramSpec
from baracuda.runtime import KernelSku

from .cases import could_serve, server
from .problem import Arrays, Problem, ProgramProblem
from .subject import Subject


def decided_problems(subject: Subject, sku: KernelSku, bases: Sequence[Problem]) -> Iterator[tuple[Problem, Arrays]]:
    """For each comparison of a float field with what rests on no array, a problem in which it is such a number.

    Arrays of no axes are such, too, and come with the problem. Random numbers meet none by chance.
    """
    spec, serve = subject.spec, server(subject, sku, bases)
    if not isinstance(spec, ProgramSpec):
        return
    compared = ((kind, *found) for kind, of in spec.by_kind.items() for found in _compared(of))
    for kind, field, lines in compared:
        of_kind = [base for base in bases if base.values.get("kind", "") == kind]
        for base in sorted(of_kind, key=lambda problem: (not problem.several, problem.size)):
            assert isinstance(base, ProgramProblem)
            values = {name: base.values[name] for name, of in spec.descriptor.items() if of.is_number}
            given = {name: array for name, array in base.draw().items() if not array.shape}
            numbers = np.ravel(evaluate(lines, {**values, **given}, base.space)[lines[-1].name])
            case = {**base.case, field: float(numbers[numbers.size // 2])} if numbers.size else {}
            problem = serve(subject, case, sku) if case and could_serve(subject, sku, case) else None
            if problem is not None:
                yield problem, given
                break


def _compared(spec: ProgramSpec) -> Iterator[tuple[str, list[Line]]]:
    """Fields, and the lines that give what they are compared with, which the last of them names."""
    fields = {name for name, of in spec.descriptor.items() if of.type == "float"}
    known = {name for name, of in spec.descriptor.items() if of.is_number}
    known |= {name for name, tensor in spec.inputs.items() if not tensor.dims}
    before: list[Line] = []
    for line in parse(spec.program, scope_of(spec)):
        for field, other in _sides(line.expr):
            if field in fields and reads(other) <= known:
                yield field, [*before, Line("compared", other)]
        if reads(line.expr) <= known:
            known.add(line.name)
            before.append(line)


def _sides(expr: Expr) -> Iterator[tuple[str, Expr]]:
    """Each name that is compared, with the other side."""
    for call in walk(expr):
        if isinstance(call, Call) and OPS[call.op].kind == "bool" and len(call.args) == 2:
            for one, other in (call.args, call.args[::-1]):
                if isinstance(one, Name):
                    yield one.id, other
