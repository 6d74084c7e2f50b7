"""`check`: all that can be known of specs without a GPU, and whether the generated files are as they say."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import click

from ..generate import compare
from .compile import variants_of
from .compile_report import Report
from .generate import show_changes, summary
from .project import PACKAGE, Project

SPILL_BYTES = 64  # a few registers around a rare path cost nothing; more, and the tile is too large


def check(
    specs: Path,
    out: Path,
    templates: Sequence[Path] = (),
    ops: Sequence[str] = (),
    *,
    archs: Sequence[str] = ("sm_90",),
    package: str = PACKAGE,
) -> bool:
    """Validate, lower, render, compare with `out`, compile the packed kernels; true when nothing is wrong."""
    start = time.perf_counter()
    project = Project.read(specs, templates)
    variants = variants_of(project, ops, archs=archs, layouts=("packed",), package=package)
    changes = compare(project.files, out)
    click.echo(summary(len(project.ops), changes))
    show_changes(changes, out, "would be ")
    report = Report.of(variants)
    click.echo(report)
    report.show_failures()
    spilled = report.spilled(SPILL_BYTES)
    for one in spilled:
        held = one.resources.spill_bytes if one.resources else 0
        what = f"spills {held} bytes, allowed are {SPILL_BYTES}; give the op a smaller tile"
        click.echo(f"{one.variant.source.symbol} ({one.variant.arch}): {what}", err=True)
    click.echo(f"{time.perf_counter() - start:.1f} s")
    return not (changes.any or report.failed or spilled)
