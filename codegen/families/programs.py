"""What families have in common whose kernels are made from a program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..program import Line, ProgramError, parse
from ..program.tree import Query, Read
from ..spec.family import Denied, Family
from ..spec.promises import BATCH, RUNGS, behind, denied
from ..spec.scope import scope_of


class ProgramFamily(Family):
    """A family of programs. Each says what a batch is, and what its schedules compute."""

    @staticmethod
    def lines(spec: Any) -> tuple[Line, ...]:
        return parse(spec.program, scope_of(spec))

    def scheduled(self, spec: Any) -> tuple[Line, ...]:
        """The program's lines as kernels compute them; raises ProgramError for what cannot be scheduled."""
        return parse(spec.program, scope_of(spec))

    def batch_dim(self, spec: Any) -> str:
        """The dim that counts what is independent, or ""."""
        raise NotImplementedError

    def rests_on_batch(self, spec: Any) -> Iterator[Denied]:
        """The outputs that schedules make of a whole batch, whatever the program says."""
        raise NotImplementedError

    def denied(self, spec: Any) -> Iterator[Denied]:
        yield from denied(spec, self.scheduled(spec))
        yield from self.rests_on_batch(spec)

    def cannot_promise(self, spec: Any) -> set[tuple[str, str]]:
        try:
            found = ((*self.denied(of), *self.has_a_price(of), *self._unlikely(of)) for of in spec.by_kind.values())
            return {(name, rung) for of in found for name, rung, _ in of}
        except ProgramError:  # reported where the program is
            return {(name, rung) for name in spec.outputs for rung in RUNGS}

    def _unlikely(self, spec: Any) -> Iterator[Denied]:
        """What a program that reads how large the batch is, or an element's place in it, is not expected to keep."""
        lines = {line.name: line for line in parse(spec.program, scope_of(spec))}
        batch = self.batch_dim(spec)
        for name, output in spec.outputs.items():
            products = any("*" in entry for entry in output.dims)
            queries = {Query("size", batch), Query("index", batch)}
            parts = [*behind(name, lines)]
            elsewhere = any(isinstance(part, Read) and batch in part.computed for part in parts)
            if products or elsewhere or queries.intersection(parts):
                yield name, BATCH, f"{batch} is read"
