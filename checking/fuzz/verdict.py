"""The verdict on a case, and the required form of refusals."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass
from pathlib import Path

from baracuda.runtime import BaracudaError, SpecError

from .generated import hidden_in

ACCEPTED, REFUSED, FAILED = "accepted", "refused", "failed"
_PLACED = re.compile(r"[^\n]*\.(yaml|json):[1-9][0-9]*: .+|tuned/[^\n]*\.json: .+|[^\n]*: holds no spec.*")
_LONGEST_LINE, _LONGEST = 2000, 20000
_SHOWN = 600


@dataclass(frozen=True)
class Verdict:
    """Whether case `index` of a target was accepted, properly refused, or failed, and why."""

    target: str
    index: int
    what: str
    why: str = ""
    seconds: float = 0.0  # of CPU
    megabytes: float = 0.0  # above the process's own


class Fault(Exception):
    """Behaviour that no input may cause."""


def refusal(error: BaseException) -> str:
    """The message of a refusal; raises Fault unless it is one of our errors, short, printable and with its place."""
    if not isinstance(error, BaracudaError):
        raise Fault(f"{described(error)}")
    message = str(error)
    lines = message.split("\n")
    if not message or len(message) > _LONGEST or max(map(len, lines)) > _LONGEST_LINE:
        longest = max(map(len, lines))
        raise Fault(f"a message of {len(message)} characters, its longest line of {longest}: {message[:_SHOWN]!r}")
    if bad := hidden_in(message):
        raise Fault(f"a message with the character {bad!a}: {message[:_SHOWN]!r}")
    if isinstance(error, SpecError) and (unplaced := [line for line in lines if not _PLACED.fullmatch(line)]):
        raise Fault(f"a finding without its place: {unplaced[0][:_SHOWN]!r}")
    return message


def described(error: BaseException) -> str:
    """An unexpected exception, with the innermost line of ours in its traceback."""
    root = Path(__file__).resolve().parents[2]
    places = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).resolve().is_relative_to(root)]
    at = f" ({Path(places[-1].filename).name}:{places[-1].lineno})" if places else ""
    return f"{type(error).__name__}: {str(error)[:_SHOWN]!r}{at}"
