"""`compile`: compile all kernels of some ops in parallel and report their resources."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from baracuda.checking.executors import THREADS
from baracuda.checking.listing.variants import ARCHS
from baracuda.codegen.project import PACKAGE

from ..reading import list_kernels, read_project
from ..terminal import show_json
from .compile_report import Report


@contextmanager
def empty_cache() -> Iterator[None]:
    """Use a temporary, empty cache in the meantime."""
    name, before = "BARACUDA_CACHE_DIR", os.environ.get("BARACUDA_CACHE_DIR")
    with tempfile.TemporaryDirectory(prefix="baracuda-cold-") as folder:
        os.environ[name] = folder
        try:
            yield
        finally:
            os.environ.pop(name)
            os.environ.update({} if before is None else {name: before})


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
    as_json: bool = False,
) -> bool:
    """Compile in an executor with `jobs` workers and print resources; true if all kernels compile.

    `layouts` may be empty, for all of each op.
    """
    project = read_project(specs, templates)
    variants = list_kernels(project, ops, archs=archs, layouts=layouts, package=package)
    with empty_cache() if cold else nullcontext():
        report = Report.of(variants, executor=executor, jobs=jobs)
    if as_json:
        show_json({**report.summary(), "table": report.rows()})
    else:
        report.show()
    report.show_failures(project.loaded)
    return not report.failed
