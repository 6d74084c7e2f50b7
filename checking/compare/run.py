"""Judges many problems in parallel processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..workers import Answer, Crew, Question
from .judge import Outcome
from .state import Key, outcome_of


def run(
    work: Sequence[Key],
    setup: Mapping[str, Any],
    workers: int,
    report: Callable[[Outcome], None],
    variables: Mapping[str, str],
) -> None:
    """Judge all of `work`; `setup` is the worker module's setup, `variables` its environment."""

    def judged(question: Question, answer: Answer | None, death: str) -> bool:
        outcome = Outcome(**question, failure=death, fatal=True) if answer is None else outcome_of(answer)
        report(outcome)
        return not outcome.fatal

    crew = Crew("baracuda.checking.compare.worker", setup, judged, variables)
    crew.work(({"op": op, "index": index} for op, index in work), min(workers, len(work)))
