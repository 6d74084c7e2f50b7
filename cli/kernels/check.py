"""`check`: everything that can be verified without a GPU: specs, generated files, binaries."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from baracuda.checking.audit.facts import facts_key
from baracuda.checking.audit.limits import ARCHS
from baracuda.checking.executors import THREADS, pool
from baracuda.checking.listing.sample import sample
from baracuda.codegen.emit.output import Changes, compare
from baracuda.codegen.project import PACKAGE
from baracuda.runtime import CompileError, KernelSource
from baracuda.runtime.compile.cubin import cubin_key, supported_archs

from ..make.generate import facts, show_changes, show_renewed, summary
from ..make.schema import renew
from ..make.settled import Remembered
from ..memo import Question
from ..reading import list_kernels, read_project
from ..speedup import show_speedup
from ..terminal import show_json
from .audit_report import Audit

if TYPE_CHECKING:
    from baracuda.codegen.spec.load import Loaded


def check(
    specs: Path,
    out: Path,
    templates: Sequence[Path] = (),
    ops: Sequence[str] = (),
    *,
    archs: Sequence[str] = ("sm_90",),
    all_archs: bool = False,
    layouts: Sequence[str] = (),
    package: str = PACKAGE,
    all_kernels: bool = False,
    executor: str = THREADS,
    jobs: int | None = None,
    speedup: bool = False,
    as_json: bool = False,
) -> bool:
    """Validate, lower, render, compare with `out` and audit a sample of the kernels, or all; true if all is well.

    With `speedup`, only print how much faster several workers audit than one.
    """
    start = time.perf_counter()
    chosen = every_arch() if all_archs else tuple(archs)
    if speedup:
        project = read_project(specs, templates)
        listed = list_kernels(project, ops, archs=chosen, layouts=layouts, package=package)
        kernels_chosen = listed if all_kernels else sample(listed)
        show_speedup(
            lambda within: Audit.of(kernels_chosen, project.ops, within=within), executor, jobs, as_json=as_json
        )
        return True
    parameters = "check", tuple(ops), chosen, tuple(layouts), package, all_kernels
    question = Question(specs, templates, parameters, _compilers(chosen))
    warnings: list[str] = []
    loaded: dict[str, Loaded] = {}
    if remembered := Remembered.read(question.recall()):
        count, audit = remembered.ops, Audit([], [], 0.0, remembered.kernels, remembered.listed)
        changes, renewed = remembered.changes(specs, out), list[Path]()
        if changes is None:
            project = read_project(specs, templates)
            changes, renewed = compare(project.files, out), renew(specs, project.schema, check=True)
        _show_files(count, changes, out, as_json)
    else:
        from baracuda.checking.problems.cases import refuse_bad_cases
        from baracuda.checking.problems.subject import Subject
        from baracuda.codegen.spec.tuned import stale

        project = read_project(specs, templates)
        refuse_bad_cases(Subject(project.loaded[op.name], project.loaded, package) for op in project.chosen(ops))
        variants = list_kernels(project, ops, archs=chosen, layouts=layouts, package=package)
        count, loaded = len(project.ops), project.loaded
        changes, renewed = compare(project.files, out), renew(specs, project.schema, check=True)
        _show_files(count, changes, out, as_json)
        tables = [(op.name, dict(op.tuned), project.files[f"{op.category}/{op.name}.cu"]) for op in project.chosen(ops)]
        warnings = [line for op in tables for line in stale(*op)]
        for line in warnings if not as_json else ():
            click.echo(f"warning: {line}")
        with pool(executor, jobs) as within:
            chosen_variants = variants if all_kernels else sample(variants)
            audit = Audit.of(chosen_variants, project.ops, within=within, listed=len(variants))
        if not (warnings or audit.failed or audit.violations):
            kernels = audit.kernels, len(variants)
            question.remember(Remembered.of(count, *kernels, project.files, specs, renewed=bool(renewed)))
    seconds = time.perf_counter() - start
    if as_json:
        report = {"ops": count, **facts(changes, out, renewed), "warnings": warnings, **audit.facts(loaded)}
        show_json({**report, "seconds": seconds})
    else:
        show_renewed(renewed, "would be ")
        audit.show(loaded)
        click.echo(f"{seconds:.1f} s")
    return not (changes.any or renewed or audit.failed or audit.violations)


def _show_files(ops: int, changes: Changes, out: Path, quiet: bool) -> None:
    """Report stale files in `out`, unless `quiet`."""
    if not quiet:
        click.echo(summary(ops, changes))
        show_changes(changes, out, "would be ")


def _compilers(archs: Sequence[str]) -> tuple[bytes, ...]:
    """Identity of compiler and disassembler; empty where one is missing, which compiling will report."""
    with suppress(CompileError):
        return tuple(facts_key(cubin_key(KernelSource("", "", ""), arch)) for arch in archs)
    return ()


def every_arch() -> tuple[str, ...]:
    """The architectures that a spec may name and the installed NVRTC supports.

    Those with a letter suffix are left out: kernels that need one are compiled for it with the plain architecture.
    """
    supported = supported_archs()
    return tuple(arch for arch in ARCHS if arch in supported)
