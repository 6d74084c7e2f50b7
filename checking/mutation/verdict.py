"""What becomes of a mutant, and how a list of stages comes to say so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass

from .forked import Died, apart
from .stages import Stage

KILLED, SURVIVED, SAME, STILLBORN = "killed", "survived", "same code", "does not compile"
SECONDS = 120.0  # that all stages of a mutant may take


@dataclass(frozen=True)
class Verdict:
    """One of the words above; if killed, the stage that objected and what it said."""

    what: str
    stage: str = ""
    said: str = ""


def first_objection(stages: Iterable[Stage]) -> Verdict:
    """Run `stages` until one objects."""
    for stage in stages:
        try:
            stage.run()
        except Exception as error:  # what a defect leads to is not known beforehand
            return Verdict(KILLED, stage.name, in_one_line(error))
    return Verdict(SURVIVED)


def in_one_line(error: Exception) -> str:
    """Class and message of an error, cut where it gets long."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def judged_apart(judge: Callable[[], Verdict]) -> Verdict:
    """The verdict of `judge` in a process of its own; a mutant that ends or holds up that process is killed."""
    try:
        return Verdict(*apart(lambda: astuple(judge()), SECONDS))
    except Died as error:
        return Verdict(KILLED, "process", str(error))
