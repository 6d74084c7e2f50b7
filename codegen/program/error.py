"""What is wrong with a program."""

from __future__ import annotations


class ProgramError(ValueError):
    """A line of a program that cannot be understood; `number` is its line within the text."""

    def __init__(self, message: str, number: int = 0) -> None:
        super().__init__(message)
        self.number = number
