"""A reproducible sample of mutants: some of each op and operator."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from baracuda.runtime import InvalidProblem

from .mutants.kernels import OF_TREES, Mutant

_WORTH = 8  # mutants per kernel or plan at least: each is first tested unchanged


def sample(mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """`count` of `mutants`, spread evenly over ops, what is changed, and operators.

    A small sample takes one kernel or plan per op, of another kind from op to op.
    """
    ops = sorted({m.op for m in mutants})
    chosen = {target for turn, op in enumerate(ops) for target in _targets(mutants, op, turn + seed, count // len(ops))}
    drawn = [m for m in mutants if (m.op, m.target) in chosen]
    drawn.sort(key=lambda m: hashlib.sha256(f"{seed} {m.id}".encode()).digest())
    of_operators = _in_turns(drawn, lambda m: (m.op, m.kind, m.operator))
    of_kinds = _in_turns(of_operators, lambda m: (m.op, m.kind))
    return _in_turns(of_kinds, lambda m: m.op)[:count]


def _in_turns(mutants: Sequence[Mutant], kind: Callable[[Mutant], object]) -> list[Mutant]:
    """The first of each kind, then the second of each, and so on."""
    counts: dict[object, int] = {}
    turns = []
    for place, mutant in enumerate(mutants):
        counts[kind(mutant)] = counts.get(kind(mutant), 0) + 1
        turns.append((counts[kind(mutant)], place))
    return [mutants[place] for _, place in sorted(turns)]


def _targets(mutants: Sequence[Mutant], op: str, turn: int, count: int) -> list[tuple[str, str]]:
    targets = list(dict.fromkeys((m.op, m.target) for m in mutants if m.op == op and m.target not in OF_TREES))
    first = turn % max(1, len(targets))
    return [*((op, target) for target in OF_TREES), *[*targets[first:], *targets[:first]][: max(1, count // _WORTH)]]


def shard(mutants: Sequence[Mutant], part: str) -> list[Mutant]:
    """The I-th of N parts, for "I/N"; the targets stay together."""
    index, _, count = part.partition("/")
    if not (index.isdigit() and count.isdigit() and 1 <= int(index) <= int(count)):
        raise InvalidProblem(f"--shard is I/N with 1 <= I <= N, got {part!r}")
    start, end = (len(mutants) * (int(index) - 1 + i) // int(count) for i in range(2))
    return list(mutants[start:end])
