"""Which branches of a source's #if directives a kernel is compiled with."""

from __future__ import annotations

import re
from collections.abc import Collection

_HOST = re.compile(r"BARACUDA_HOST(_\w+)?")
_DEFINED = re.compile(r"(!?)\s*defined\s*\(\s*(\w+)\s*\)")


class Branches:
    """The #if directives around a line, when `defined` are the macros that are defined.

    Where the host device and GPUs are given different code, neither is the kernel's; where only some GPUs are, the
    others' is. Of a condition that asks for anything else, both branches count.
    """

    def __init__(self, defined: Collection[str]) -> None:
        self._defined = defined
        self._around: list[tuple[bool, bool]] = []  # whether the branch counts, and the other one

    @property
    def counts(self) -> bool:
        """Whether the current line is the kernel's."""
        return all(branch for branch, _ in self._around)

    def follow(self, directive: str, condition: str) -> None:
        """Go past a directive."""
        match directive:
            case "ifdef" | "ifndef" | "if":
                self._around.append(self._sides(directive, condition))
            case "else":
                branch, other = self._around.pop()
                self._around.append((other, branch))
            case "endif":
                self._around.pop()

    def _sides(self, directive: str, condition: str) -> tuple[bool, bool]:
        condition = condition.partition("//")[0].strip()
        if directive == "if":
            asked = _DEFINED.match(condition)
            if asked is None:
                return True, True
            directive, rest = ("ifndef" if asked[1] else "ifdef"), condition[asked.end() :]
            if rest:
                some_gpus = directive == "ifndef" and _HOST.fullmatch(asked[2])
                return not some_gpus, True
            condition = asked[2]
        if _HOST.fullmatch(condition):
            return False, False
        holds = (condition in self._defined) == (directive == "ifdef")
        return holds, not holds
