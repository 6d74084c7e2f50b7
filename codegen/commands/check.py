"""`check`: all that can be known of specs without a GPU: their files are as they say, their binaries as promised."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import click

from baracuda.runtime.cubin import supported_archs

from ..audit.limits import ARCHS
from ..generate import compare
from ..tuned import stale
from .audit_report import Audit
from .compile import LAYOUTS, variants_of
from .generate import show_changes, summary
from .project import PACKAGE, Project


def check(
    specs: Path,
    out: Path,
    templates: Sequence[Path] = (),
    ops: Sequence[str] = (),
    *,
    archs: Sequence[str] = ("sm_90",),
    all_archs: bool = False,
    layouts: Sequence[str] = LAYOUTS,
    package: str = PACKAGE,
) -> bool:
    """Validate, lower, render, compare with `out`, audit the kernels; true when nothing is wrong."""
    start = time.perf_counter()
    project = Project.read(specs, templates)
    chosen = every_arch() if all_archs else tuple(archs)
    variants = variants_of(project, ops, archs=chosen, layouts=layouts, package=package)
    changes = compare(project.files, out)
    click.echo(summary(len(project.ops), changes))
    show_changes(changes, out, "would be ")
    for op in project.chosen(ops):
        for line in stale(op.name, dict(op.tuned), project.files[f"{op.category}/{op.name}.cu"]):
            click.echo(f"warning: {line}")
    audit = Audit.of(variants, project.ops)
    audit.show()
    click.echo(f"{time.perf_counter() - start:.1f} s")
    return not (changes.any or audit.failed or audit.violations)


def every_arch() -> tuple[str, ...]:
    """The architectures that a spec may name and the installed NVRTC compiles for.

    Without those that end in a letter: kernels that need one are compiled for it when the plain one is asked for.
    """
    supported = supported_archs()
    return tuple(arch for arch in ARCHS if arch in supported)
