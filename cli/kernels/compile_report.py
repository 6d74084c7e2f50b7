"""The result of compiling many kernels: a table, a summary, spills and failures."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from baracuda.checking.executors import Pool, pool
from baracuda.checking.listing.variant import Variant
from baracuda.codegen.spec.place import with_field
from baracuda.runtime import CompileError, Resources
from baracuda.runtime.compile.cubin import compile_many, cubin_key
from baracuda.runtime.device import Cubin

from ..terminal import Row, progress, show_table

if TYPE_CHECKING:
    from baracuda.codegen.spec.load import Loaded

_SHOWN = 3  # errors, each of which has several lines


@dataclass(frozen=True, slots=True)
class Compiled:
    """The outcome for one variant."""

    variant: Variant
    outcome: Cubin | CompileError

    @property
    def resources(self) -> Resources | None:
        return self.outcome.resources if isinstance(self.outcome, Cubin) else None


@dataclass(frozen=True, slots=True)
class Report:
    """All outcomes and the wall time in seconds."""

    compiled: list[Compiled]
    seconds: float

    @classmethod
    def of(cls, variants: Sequence[Variant], within: Pool | None = None) -> Report:
        """Compile `variants`, by default in a thread per core, and measure the time."""
        start = time.perf_counter()
        return cls(compile_all(variants, within), time.perf_counter() - start)

    @property
    def failed(self) -> list[CompileError]:
        return [c.outcome for c in self.compiled if isinstance(c.outcome, CompileError)]

    def spilled(self) -> list[Compiled]:
        """Kernels that spill."""
        return [c for c in self.compiled if c.resources and c.resources.spill_bytes]

    def rows(self) -> list[Row]:
        """One row per compiled kernel; times in milliseconds, None if it was cached."""
        return [_row(c.variant, c.resources) for c in self.compiled if c.resources]

    def summary(self) -> dict[str, int | float]:
        """Counts, and times in milliseconds."""
        times = [c.resources.seconds * 1e3 for c in self.compiled if c.resources and c.resources.seconds]
        return {
            "kernels": len(self.compiled),
            "cached": len(self.compiled) - len(times) - len(self.failed),
            "failed": len(self.failed),
            "spilled": len(self.spilled()),
            "wall_ms": self.seconds * 1e3,
            "median_ms": statistics.median(times) if times else 0.0,
        }

    def show(self) -> None:
        """Print the table and the summary."""
        show_table([{**row, "ms": row["ms"] or "cached"} for row in self.rows()])
        click.echo(self)

    def show_failures(self, loaded: Mapping[str, Loaded]) -> None:
        """Print the compiler's first messages on stderr."""
        show_errors(self.failed, loaded)

    def __str__(self) -> str:
        s = self.summary()
        counts = f"{s['kernels']} kernels in {self.seconds:.1f} s"
        median = f"median {s['median_ms']:.0f} ms, " if s["median_ms"] else ""
        return f"{counts}: {median}{s['cached']} cached, {s['spilled']} spilled, {s['failed']} failed"


def show_errors(errors: Sequence[CompileError], loaded: Mapping[str, Loaded]) -> None:
    """Print the first ones on stderr, with the fields of the specs `loaded` that they concern."""
    for error in errors[:_SHOWN]:
        click.echo(with_field(str(error), loaded), err=True)
    if len(errors) > _SHOWN:
        click.echo(f"and {len(errors) - _SHOWN} kernels more", err=True)


def compile_all(variants: Sequence[Variant], within: Pool | None = None) -> list[Compiled]:
    """Compile `variants`, or find them in the cache, with a progress bar; outcomes in the same order."""
    if variants:  # the first import of cuda.core fails in two threads at once, and without NVRTC all would
        cubin_key(variants[0].source, variants[0].arch)
    outcomes: dict[int, Cubin | CompileError] = {}
    with nullcontext(within) if within else pool() as chosen, progress("compiling", len(variants)) as advance:

        def done(index: int, outcome: Cubin | CompileError) -> None:
            outcomes[index] = outcome
            advance()

        compile_many([(v.source, v.arch) for v in variants], on_done=done, executor=chosen.executor)
    return [Compiled(variant, outcomes[index]) for index, variant in enumerate(variants)]


def _row(variant: Variant, resources: Resources) -> Row:
    return {
        "kernel": variant.source.symbol,
        "layout": variant.layout,
        "arch": variant.arch,
        "registers": resources.registers,
        "shared": resources.shared_bytes,
        "stack": resources.stack_bytes,
        "spill": resources.spill_bytes,
        "ms": round(resources.seconds * 1e3, 1) or None,
    }
