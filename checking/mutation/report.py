"""The report of a run: a row per op and operator, and every survivor with its place, change and reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from .mutants.kernels import Mutant
from .survivors import Declared, reason_of
from .verdict import KILLED, SAME, STILLBORN, SURVIVED, Outcome

DECLARED = "declared"
_UNKNOWN = "no test fails"


@dataclass(frozen=True)
class Report:
    """Mutants, their outcomes, and the declared survivors."""

    mutants: Sequence[Mutant]
    outcomes: Mapping[str, Outcome]
    declared: Sequence[Declared]

    def fate(self, mutant: Mutant) -> str:
        verdict = self.outcomes[mutant.id].verdict.what
        return DECLARED if verdict == SURVIVED and reason_of(mutant, self.declared) else verdict

    @cached_property
    def survivors(self) -> list[Mutant]:
        """Mutants that no test catches, declared ones included."""
        return [m for m in self.mutants if self.outcomes[m.id].verdict.what == SURVIVED]

    @cached_property
    def score(self) -> float | None:
        """Percent killed of those killed or undeclared survivors; None without either."""
        return _score(Counter(map(self.fate, self.mutants)))

    def by(self, name: str, key: Callable[[Mutant], str]) -> list[dict[str, object]]:
        """A row for each `key`, headed `name`."""
        fates: dict[str, Counter[str]] = {}
        for mutant in self.mutants:
            fates.setdefault(key(mutant), Counter())[self.fate(mutant)] += 1
        return [{name: group, **_row(counts)} for group, counts in fates.items()]

    def killers(self) -> list[dict[str, object]]:
        """How many mutants each stage killed."""
        stages = Counter(o.verdict.stage for m in self.mutants if (o := self.outcomes[m.id]).verdict.what == KILLED)
        return [{"killed by": stage, "mutants": count} for stage, count in stages.most_common()]

    def listed(self) -> list[dict[str, object]]:
        """The survivors, those without a reason first."""
        rows: list[dict[str, object]] = []
        for mutant in sorted(self.survivors, key=lambda m: (bool(reason_of(m, self.declared)), m.file, m.line)):
            place = f"{mutant.file}:{mutant.line}"
            reason = reason_of(mutant, self.declared) or _UNKNOWN
            row = {"survivor": place, "use": mutant.use, "target": _target(mutant), "operator": mutant.operator}
            rows.append({**row, "change": mutant.change, "line": mutant.code, "reason": reason})
        return rows


def _target(mutant: Mutant) -> str:
    return mutant.target if mutant.target.startswith(mutant.op) else f"{mutant.op} {mutant.target}"


def _row(counts: Counter[str]) -> dict[str, object]:
    totals = {"mutants": counts.total(), SAME: counts[SAME], "not compiled": counts[STILLBORN]}
    rest = {DECLARED: counts[DECLARED], KILLED: counts[KILLED], SURVIVED: counts[SURVIVED]}
    return {**totals, **rest, "score": percent(_score(counts))}


def percent(score: float | None) -> str:
    return "-" if score is None else f"{score:.1f} %"


def _score(counts: Counter[str]) -> float | None:
    judged = counts[KILLED] + counts[SURVIVED]
    return 100 * counts[KILLED] / judged if judged else None
