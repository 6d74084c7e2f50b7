"""What became of the defects of a table: a row for each stratum, what caught them, and every survivor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from .report import percent
from .table import Defect
from .verdict import KILLED, SAME, STILLBORN, SURVIVED, Outcome

_WORDS = {KILLED: "caught", SURVIVED: "survived", SAME: "equivalent", STILLBORN: "not compiled"}
_ALL = "all"
Row = dict[str, object]


@dataclass(frozen=True)
class TableReport:
    """Defects, and the outcomes by id of those that were judged."""

    defects: Sequence[Defect]
    outcomes: Mapping[str, Outcome]

    @cached_property
    def judged(self) -> list[Defect]:
        """The defects that have an outcome."""
        return [defect for defect in self.defects if defect.id in self.outcomes]

    @cached_property
    def score(self) -> float | None:
        """Caught, in percent of all that are judged and compile; None when there are none."""
        return _score(Counter(map(self._word, self.judged)))

    def strata(self) -> list[Row]:
        """A row for each stratum, and one for all."""
        return [self._row("stratum", name, lambda d: d.stratum) for name in self._values(lambda d: d.stratum)]

    def commands(self) -> list[Row]:
        """How many defects each command and check caught first."""
        stages = [self.outcomes[d.id].verdict.stage for d in self.judged if self._word(d) == "caught"]
        counts = Counter(stage.partition("[")[0] for stage in stages)
        return [{"caught by": stage, "defects": count} for stage, count in counts.most_common()]

    def listed(self) -> list[Row]:
        """Every judged defect that nothing caught."""
        left = [defect for defect in self.judged if self._word(defect) != "caught"]
        return [{"defect": d.id, "stratum": d.stratum, "verdict": self._word(d), "wrong": d.wrong} for d in left]

    def objections(self) -> list[Row]:
        """The cases that object to the unchanged tree, and so do not count."""
        cases = dict.fromkeys(case for defect in self.judged for case in self.outcomes[defect.id].unsound)
        return [{"case": case} for case in cases]

    def markdown(self, title: str, notes: Sequence[str] = ()) -> str:
        """The whole report as a page."""
        caught = f"{percent(self.score)} of {len(self.judged)} defects are caught, of {len(self.defects)} in the table."
        parts = [f"# {title}", caught, *notes, _table(self.strata()), _table(self.commands())]
        sections = {"Not caught": self.listed(), "Cases that object to the unchanged tree": self.objections()}
        parts += [f"## {name}\n\n{_table(rows)}" for name, rows in sections.items() if rows]
        return "\n\n".join(parts) + "\n"

    def _word(self, defect: Defect) -> str:
        return _WORDS[self.outcomes[defect.id].verdict.what]

    def _values(self, key: Callable[[Defect], str]) -> list[str]:
        return [*dict.fromkeys(map(key, self.defects)), _ALL]

    def _row(self, name: str, value: str, key: Callable[[Defect], str]) -> Row:
        chosen = [defect for defect in self.judged if value in (_ALL, key(defect))]
        counts = Counter(map(self._word, chosen))
        row: Row = {name: value, "defects": len(chosen), "semantic": sum(defect.semantic for defect in chosen)}
        return row | {word: counts[word] for word in _WORDS.values()} | {"score": percent(_score(counts))}


def _score(counts: Counter[str]) -> float | None:
    """An equivalent defect that should not be one counts as none; one that does not compile is no defect."""
    judged = counts["caught"] + counts["survived"]
    return 100 * counts["caught"] / judged if judged else None


def _table(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *([*map(str, row.values())] for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in lines)
