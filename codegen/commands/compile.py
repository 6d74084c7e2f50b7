"""`compile`: every kernel of some ops to machine code, many at a time, and what each occupies."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product

from baracuda.runtime import (
    Argument,
    CompileError,
    Direction,
    ElementKind,
    KernelSource,
    Registered,
    Resources,
    RowPlan,
    SourceFile,
    row_kernels,
)
from baracuda.runtime.cubin import Cubin, compile_many

from ..model import Op
from .project import PACKAGE, Project
from .terminal import Row, progress

ARCHS = ("sm_80", "sm_89", "sm_90")
LAYOUTS = RowPlan.LAYOUTS


@dataclass(frozen=True, slots=True)
class Variant:
    """A kernel in one memory layout for one architecture."""

    row: Registered
    layout: str
    arch: str
    source: KernelSource


@dataclass(frozen=True, slots=True)
class Compiled:
    """What became of a variant."""

    variant: Variant
    outcome: Cubin | CompileError

    @property
    def resources(self) -> Resources | None:
        return self.outcome.resources if isinstance(self.outcome, Cubin) else None


def rows_of(op: Op, text: str, package: str = PACKAGE) -> tuple[Registered, ...]:
    """The rows that `op`, generated as `text` into `package`, adds to the kernel table, without importing it."""
    file = SourceFile(f"{package}.{op.category}", f"{op.name}.cu", op.contraction, op.flush_subnormals)
    vars(file)["text"] = text  # where the cached property keeps what it has read
    table = row_kernels(
        file,
        category=op.category,
        op=op.name,
        direction=Direction(op.direction),
        arch=op.arch,
        rungs=op.held_everywhere,
        tiles={ElementKind(element): tiles for element, tiles in op.tiles},
    )
    return tuple(table)


def sources_of(row: Registered, op: Op) -> dict[str, KernelSource]:
    """What `row` compiles from in each layout, optional tensors being there and all of their usual element types.

    Equal to what a plan asks for, so that both find each other's entries in the cache.
    """
    held = [Argument(t.name, t.role, t.over, t.dtypes).elements(row.sku.element)[0] for t in op.chosen]
    fixed = [f"BARACUDA_HAS_{t.name.upper()}=1" for t in op.flags]
    fixed += [f"{t.macro}={kind.row.cuda}" for t, kind in zip(op.chosen, held, strict=True)]
    file, symbol = row.source, row.sku.symbol
    sources = {}
    for layout in LAYOUTS:
        defines = (f"SKU_{symbol}=1", f"BARACUDA_LAYOUT={layout.upper()}", *fixed)
        sources[layout] = KernelSource(
            file.path, file.text, symbol, defines, file.contraction, file.flush_subnormals
        )
    return sources


def variants_of(
    project: Project,
    names: Iterable[str] = (),
    *,
    archs: Sequence[str] = ARCHS,
    layouts: Sequence[str] = LAYOUTS,
    package: str = PACKAGE,
) -> list[Variant]:
    """Every kernel of the named ops in every layout, for every architecture that it runs on."""
    found = []
    for op in project.chosen(names):
        rows = rows_of(op, project.files[f"{op.category}/{op.name}.cu"], package)
        _assert_told_apart(rows)
        for row in rows:
            sources = sources_of(row, op)
            for layout, arch in product(layouts, archs):
                if row.sku.fits(arch.rstrip("a")) is None:
                    only = row.sku.arch if row.sku.arch.endswith("a") else arch
                    found.append(Variant(row, layout, only, sources[layout]))
    return found


def _assert_told_apart(rows: Iterable[Registered]) -> None:
    """A symbol does not name its architecture, so SKUs that differ in nothing else would be one kernel."""
    count = Counter(replace(row.sku, arch="-") for row in rows)
    if twins := [str(sku) for sku, n in count.items() if n > 1]:
        raise AssertionError(f"SKUs that differ only in arch: {', '.join(twins)}")


def compile_all(variants: Sequence[Variant], *, workers: int | None = None) -> list[Compiled]:
    """Compile, or find in the cache, all of `variants`, with a progress bar; the outcomes in the same order."""
    outcomes: dict[int, Cubin | CompileError] = {}
    with progress("compiling", len(variants)) as advance:

        def done(index: int, outcome: Cubin | CompileError) -> None:
            outcomes[index] = outcome
            advance()

        compile_many([(v.source, v.arch) for v in variants], on_done=done, workers=workers)
    return [Compiled(variant, outcomes[index]) for index, variant in enumerate(variants)]


@contextmanager
def empty_cache() -> Iterator[None]:
    """Compile into a temporary folder meanwhile, so that nothing is found and nothing is kept."""
    name, before = "BARACUDA_CACHE_DIR", os.environ.get("BARACUDA_CACHE_DIR")
    with tempfile.TemporaryDirectory(prefix="baracuda-cold-") as folder:
        os.environ[name] = folder
        try:
            yield
        finally:
            os.environ.pop(name)
            os.environ.update({} if before is None else {name: before})


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was compiled, and how long that took on the wall, in seconds."""

    compiled: list[Compiled]
    seconds: float

    @classmethod
    def of(cls, variants: Sequence[Variant], *, workers: int | None = None) -> Report:
        """Compile `variants` and keep the time."""
        start = time.perf_counter()
        return cls(compile_all(variants, workers=workers), time.perf_counter() - start)

    @property
    def failed(self) -> list[CompileError]:
        return [c.outcome for c in self.compiled if isinstance(c.outcome, CompileError)]

    def spilled(self, allowed: int = 0) -> list[Compiled]:
        """Kernels that spill more than `allowed` bytes."""
        return [c for c in self.compiled if c.resources and c.resources.spill_bytes > allowed]

    def rows(self) -> list[Row]:
        """A table of the kernels that compiled; times in milliseconds, None for those that came from the cache."""
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

    def __str__(self) -> str:
        s = self.summary()
        counts = f"{s['kernels']} kernels in {self.seconds:.1f} s"
        median = f"median {s['median_ms']:.0f} ms, " if s["median_ms"] else ""
        return f"{counts}: {median}{s['cached']} cached, {s['spilled']} spilled, {s['failed']} failed"


def _row(variant: Variant, held: Resources) -> Row:
    return {
        "kernel": variant.source.symbol,
        "layout": variant.layout,
        "arch": variant.arch,
        "registers": held.registers,
        "shared": held.shared_bytes,
        "stack": held.stack_bytes,
        "spill": held.spill_bytes,
        "ms": round(held.seconds * 1e3, 1) or None,
    }
