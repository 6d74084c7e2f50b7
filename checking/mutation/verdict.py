"""Verdicts on mutants, from running stages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass

from .forked import Died, apart
from .stages import Stage

KILLED, SURVIVED, SAME, STILLBORN = "killed", "survived", "same code", "does not compile"
SECONDS = 900.0  # for all stages of a mutant: one that takes longer does not end


@dataclass(frozen=True)
class Verdict:
    """One of the words above; if killed, the stage that failed and its message."""

    what: str
    stage: str = ""
    said: str = ""


@dataclass(frozen=True)
class Outcome:
    """A mutant's verdict, the seconds it took, and the cases that do not count, since they object without it, too."""

    id: str
    verdict: Verdict
    seconds: float
    unsound: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "unsound", tuple(self.unsound))  # files have lists


def first_objection(stages: Iterable[Stage]) -> Verdict:
    """Run `stages` until one fails."""
    for stage in stages:
        try:
            stage.judge()
        except Exception as error:  # a defect may raise anything
            return Verdict(KILLED, stage.name, in_one_line(error))
    return Verdict(SURVIVED)


def in_one_line(error: Exception) -> str:
    """Class and message of an error, in at most 300 characters."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def judged_apart(judge: Callable[[], Verdict]) -> Verdict:
    """The verdict of `judge`, run in a forked child; a crash or a hang counts as killed."""
    try:
        return Verdict(*apart(lambda: astuple(judge()), SECONDS))
    except Died as error:
        return Verdict(KILLED, "process", str(error))
