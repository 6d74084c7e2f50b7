"""A tuning trial: the rule's choice against every candidate, and the winner, if any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log

from baracuda.codegen.spec.tuned import batch_of, promised
from baracuda.runtime import BaracudaError, Facts, Measurement

from .candidates import candidates, maker_of
from .case import Case
from .contest import OURS, Measured, contest
from .machine import Machine

RULE = OURS  # what the candidates are held against


@dataclass(frozen=True)
class Trial:
    """The measurements of one case."""

    case: Case
    lines: tuple[Measured, ...]

    @property
    def rule(self) -> Measured:
        """The choice of the rule."""
        return next(m for m in self.lines if m.peer == RULE)

    @property
    def failed(self) -> bool:
        """Whether the trial is void because the rule's choice was not timed."""
        return self.rule.us is None and bool(self.rule.problem)

    @property
    def facts(self) -> Facts:
        """The key of a measurement, without extents that bits must not depend on."""
        same, near = self.case.subject.plan.facts_of(self.case.descriptor)
        blind = batch_of(self.case.spec)
        return Facts(same, {name: value for name, value in near.items() if name not in blind})


def tried(case: Case, machine: Machine) -> list[Measured]:
    """Time the rule's choice and the candidates in turns; one line each, excluded ones included.

    If all are excluded, nothing is timed.
    """
    rule = Measured(case.op, case.label, case.element.value, RULE)
    try:
        by_rule = case.plan(machine.device).sku
        others = candidates(case, by_rule, machine)
    except BaracudaError as error:
        return [replace(rule, problem=f"{type(error).__name__}: {error}".splitlines()[0])]
    makers = {str(c.sku): maker_of(c.plan, machine) for c in others if c.plan is not None}
    lines = contest(case, makers, machine) if makers else [replace(rule, kernel=by_rule.symbol)]
    return lines + [replace(rule, peer=str(c.sku), problem=c.problem) for c in others if c.problem]


def groups(trials: Iterable[Trial]) -> list[list[Trial]]:
    """Trials that one measurement decides: their problems differ only in what no choice may depend on."""
    by_key: dict[object, list[Trial]] = {}
    for trial in trials:
        by_key.setdefault(measurement(trial.case, trial.facts, "", {}, {}).key, []).append(trial)
    return list(by_key.values())


def measurement(
    case: Case, facts: Facts, sku: str, cases: Mapping[str, tuple[float, float]], about: Mapping[str, str]
) -> Measurement:
    """The record of a win of `sku`."""
    return Measurement(case.element.value, facts.same, facts.near, sku, cases, **about)


def objection(line: Measured, rule: Measured, margin: float, *, exact: bool) -> str:
    """Why a candidate may not replace the rule's choice in a case; empty if it may."""
    if line.us is None or rule.us is None or line.high is None or rule.low is None:
        return line.problem or "was not timed"
    if exact and line.error != 0:
        return "has other bits, and the op promises the same on every architecture"
    if line.how != rule.how:
        return f"timed by {line.how}, the rule's choice by {rule.how}"
    if line.us * (1 + margin) > rule.us:
        return "slower" if line.us >= rule.us else f"wins by less than {margin:.0%}"
    return "wins by less than the spread" if line.high >= rule.low else ""


def winner(group: Sequence[Trial], margin: float) -> str | None:
    """The candidate that wins in every case of the group; among several, the one with the largest gain."""
    exact = promised(group[0].case.spec, "bit_stable_across_arch")
    gains: dict[str, list[float]] = {}
    for trial in group:
        for line in trial.lines:
            if line.peer != RULE and line.us and trial.rule.us:
                is_win = not objection(line, trial.rule, margin, exact=exact)
                gains.setdefault(line.peer, []).extend([log(trial.rule.us / line.us)] * is_win)
    won = {peer: sum(of) for peer, of in gains.items() if len(of) == len(group)}
    return max(won, key=lambda peer: won[peer], default=None)


def decided(
    trials: Sequence[Trial], before: Sequence[Measurement], margin: float, about: Mapping[str, str]
) -> list[Measurement]:
    """The table after these trials: winners replace older entries for the same problems, the rest stays."""
    table = {m.key: m for m in before}
    for group in groups(trials):
        first = group[0]
        if any(trial.failed for trial in group):
            continue
        sku = winner(group, margin)
        key = measurement(first.case, first.facts, "", {}, {}).key
        if sku is None:
            table.pop(key, None)
        else:
            times = {trial.case.label: (_us(trial, sku), _us(trial, RULE)) for trial in group}
            table[key] = measurement(first.case, first.facts, sku, times, about)
    return list(table.values())


def _us(trial: Trial, peer: str) -> float:
    return round(next(m.us for m in trial.lines if m.peer == peer and m.us is not None), 3)
