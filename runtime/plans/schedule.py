"""The configuration of a map or body kernel: threads per block, and named numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ..errors import InvalidProblem
from ..values import short_repr

_TEXT = re.compile(r"t(\d+)((?:\.[a-z_]+\d+)*)")
_NUMBER = re.compile(r"\.([a-z_]+)(\d+)")


@dataclass(frozen=True, slots=True)
class Schedule:
    """`numbers` are compile-time constants, including `threads`; names are letters and underscores."""

    threads: int
    numbers: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, threads: int, /, **numbers: int) -> Schedule:
        """The schedule with `threads` and these numbers, in the given order."""
        return cls(threads, tuple(numbers.items()))

    @property
    def constants(self) -> tuple[tuple[str, int], ...]:
        """The numbers that kernels are compiled with."""
        return ("THREADS", self.threads), *((name.upper(), value) for name, value in self.numbers)

    @property
    def tag(self) -> str:
        """A part of entry points' names."""
        return str(self).replace(".", "_")

    def __getitem__(self, name: str) -> int:
        return dict(self.numbers)[name]

    def __str__(self) -> str:
        return f"t{self.threads}" + "".join(f".{name}{value}" for name, value in self.numbers)

    @classmethod
    @lru_cache(maxsize=1024)
    def parse(cls, text: str) -> Schedule:
        """The schedule that prints as `text`."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise InvalidProblem(f"{short_repr(text)} is not a schedule; expected t128.block_q64")
        return cls(int(match[1]), tuple((name, int(value)) for name, value in _NUMBER.findall(match[2])))
