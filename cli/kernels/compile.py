"""`compile`: compile all kernels of some ops in parallel and report their resources."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from baracuda.checking.executors import THREADS, pool
from baracuda.checking.listing.variants import ARCHS
from baracuda.codegen.project import PACKAGE

from ..reading import list_kernels, read_project
from ..speedup import empty_cache, show_speedup
from ..terminal import show_json
from .compile_report import Report


def compile(
    ops: Sequence[str],
    specs: Path,
    templates: Sequence[Path] = (),
    *,
    archs: Sequence[str] = ARCHS,
    layouts: Sequence[str] = (),
    package: str = PACKAGE,
    executor: str = THREADS,
    jobs: int | None = None,
    cold: bool = False,
    speedup: bool = False,
    as_json: bool = False,
) -> bool:
    """Compile in an executor with `jobs` workers and print resources; true if all kernels compile.

    `layouts` may be empty, for all of each op. With `speedup`, print how much faster several workers are than one.
    """
    project = read_project(specs, templates)
    variants = list_kernels(project, ops, archs=archs, layouts=layouts, package=package)
    if speedup:
        show_speedup(lambda within: Report.of(variants, within), executor, jobs, as_json=as_json)
        return True
    with empty_cache() if cold else nullcontext(), pool(executor, jobs) as within:
        report = Report.of(variants, within)
    if as_json:
        show_json({**report.summary(), "table": report.rows()})
    else:
        report.show()
    report.show_failures(project.loaded)
    return not report.failed
