"""How a kernel is broken on purpose, and what must be said of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from host.jobs import Job


@dataclass(frozen=True)
class Edit:
    pattern: str
    replacement: str
    times: int = 1

    def apply(self, text: str) -> str:
        """`text` with the edit made as often as it must be; AssertionError if it cannot."""
        edited, times = re.subn(self.pattern, self.replacement, text, flags=re.MULTILINE)
        assert times == self.times, f"{self.pattern!r} is found {times} times, must be {self.times}: write it anew"
        return edited


@dataclass(frozen=True)
class Defect:
    """A launch of a kernel with `edits` made in its text, and a pattern of what check mode says first.

    In `finding`, <remark> stands for the place of the line with that remark behind it.
    """

    job: Callable[[], Job]
    finding: str
    edits: tuple[Edit, ...]

    @property
    def text(self) -> str:
        """The kernel's text with the defect in it."""
        text = self.job().text
        for edit in self.edits:
            text = edit.apply(text)
        return text

    @property
    def expected(self) -> str:
        """The finding as a pattern, with its places filled in."""
        file, lines = self.job().file, self.text.splitlines()

        def place(match: re.Match[str]) -> str:
            (line,) = (number for number, text in enumerate(lines, 1) if text.endswith(f"// {match[1]}"))
            return r"([\w.]+:\d+ <- )*" + re.escape(f"{file}:{line}")

        return re.sub(r"<(?!-)([^>]+)>", place, self.finding)


def without(remark: str) -> Edit:
    """Empties the line with `remark`."""
    return Edit(rf"^.*// {re.escape(remark)}$", "")


def replaced(old: str, new: str, times: int = 1) -> Edit:
    """Plain text instead of plain text."""
    return Edit(re.escape(old), new.replace("\\", r"\\"), times)


def broken(job: Callable[[], Job], finding: str, *edits: Edit) -> Defect:
    return Defect(job, finding, edits)


# Parts of findings.
RACE = r"race \((read after write|write after read|write after write)\)"
NO_BARRIER = "of the block, no barrier in between at"
IN_FLIGHT = r"while a cp.async of thread \d+ may be writing there at"
UNORDERED = r"with block \d+, not ordered by a fence and an atomic at"
