"""`pack`: compile kernels into a folder or a wheel that is run without a compiler."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click

from baracuda.checking.executors import THREADS, pool
from baracuda.codegen.project import PACKAGE, Project
from baracuda.runtime import CompileError, InvalidProblem, Unsupported
from baracuda.runtime.compile.cubin import compile_many, compile_ptx
from baracuda.runtime.device import Cubin
from baracuda.runtime.packs.layout import MANIFEST, SIGNATURE
from baracuda.runtime.packs.signature import signature

from ..kernels.compile_report import show_errors
from ..reading import list_kernels, read_project
from ..terminal import progress, show_json, working
from .files import files_of, own_version, refuse_other, write_folder
from .hub import METADATA, hub_files, refuse_name
from .problems import Problem, read_problems
from .wanted import Wanted, by_key
from .wheel import module_of, write_wheel

_MB = 1e6
LICENCE = "Apache-2.0"  # of this project's kernels and headers
Compiled = list[tuple[Wanted, Cubin]]


def pack(
    ops: Sequence[str],
    specs: Path,
    templates: Sequence[Path] = (),
    *,
    out: Path,
    archs: Sequence[str],
    layouts: Sequence[str] = (),
    problem: Sequence[str] = (),
    problems: Path | None = None,
    package: str = PACKAGE,
    ptx: bool = False,
    wheel: bool = False,
    hub: bool = False,
    sign: Path | None = None,
    name: str = "baracuda-pack",
    licence: str = LICENCE,
    executor: str = THREADS,
    jobs: int | None = None,
    as_json: bool = False,
) -> bool:
    """Write a pack to `out`, or a wheel into it; true if every kernel compiles, else nothing is written."""
    start = time.perf_counter()
    targets = list(dict.fromkeys(arch.removesuffix("a") for arch in archs))  # a GPU of sm_90 runs code for both
    _refuse_early(out, name, wheel=wheel, hub=hub, sign=sign)
    wanted = _of_ops(ops, read_project(specs, templates), targets, layouts, package) if ops else []
    read = read_problems(problem, problems, package)
    wanted += _of_problems(read, targets)
    if not wanted:
        raise InvalidProblem("nothing to pack; name ops with --op, or problems with --problems or --problem")
    kernels = by_key(wanted)
    compiled, errors = _compiled(list(kernels.values()), executor, jobs)
    if errors:
        show_errors(errors, {})
        return False
    if ptx:
        compiled += _with_ptx(compiled, targets, jobs)
    files = files_of(compiled, licence)
    if sign:
        files[SIGNATURE] = signature(files[MANIFEST], sign)
    place = out
    if wheel:
        place = write_wheel(out, name, files, licence)
    elif hub:
        write_folder(out, hub_files(name, files, licence), METADATA)
    else:
        write_folder(out, files)
    _show(place, files, len(compiled), time.perf_counter() - start, as_json)
    return True


def _refuse_early(out: Path, name: str, *, wheel: bool, hub: bool, sign: Path | None) -> None:
    """Raise what would only be found out after all has been compiled."""
    if wheel and hub:
        raise InvalidProblem("--wheel and --hub are two forms of a pack; name one of them")
    own_version()
    if sign:
        signature(b"", sign)
    if wheel:
        module_of(name)
    elif hub:
        refuse_name(name)
        refuse_other(out, METADATA)
    else:
        refuse_other(out)


def _of_ops(
    ops: Sequence[str], project: Project, archs: Sequence[str], layouts: Sequence[str], package: str
) -> list[Wanted]:
    return [Wanted.of(v) for v in list_kernels(project, ops, archs=archs, layouts=layouts, package=package)]


def _of_problems(problems: Sequence[Problem], archs: Sequence[str]) -> Iterator[Wanted]:
    """What they need; one that no architecture serves is an error, one that some do not is a line on stderr."""
    with working("selecting kernels"):
        for problem in problems:
            refused: dict[str, Unsupported] = {}
            for arch in archs:
                try:
                    yield from problem.wanted(arch)
                except Unsupported as error:
                    refused[arch] = error
            if len(refused) == len(archs):
                raise next(iter(refused.values()))
            if refused:
                click.echo(f"no kernel for {', '.join(refused)}: {problem.line}", err=True)


def _compiled(
    kernels: Sequence[Wanted], executor: str, jobs: int | None
) -> tuple[Compiled, list[CompileError]]:
    outcomes: dict[int, Cubin | CompileError] = {}
    with pool(executor, jobs) as within, progress("compiling", len(kernels)) as advance:

        def done(index: int, outcome: Cubin | CompileError) -> None:
            outcomes[index] = outcome
            advance()

        compile_many([(kernel.source, kernel.arch) for kernel in kernels], on_done=done, executor=within.executor)
    found = [(kernel, outcomes[index]) for index, kernel in enumerate(kernels)]
    errors = [outcome for _, outcome in found if isinstance(outcome, CompileError)]
    return [(kernel, cubin) for kernel, cubin in found if isinstance(cubin, Cubin)], errors


def _with_ptx(compiled: Compiled, archs: Sequence[str], jobs: int | None) -> Compiled:
    """PTX of what is compiled for the latest of the architectures, which later ones run, too."""
    latest = max(archs, key=lambda arch: int(arch[3:]))
    portable = [(kernel, cubin) for kernel, cubin in compiled if kernel.arch == latest]

    def made(entry: tuple[Wanted, Cubin]) -> tuple[Wanted, Cubin]:
        kernel, cubin = entry
        text = compile_ptx(kernel.source, latest)
        virtual = replace(kernel, arch=latest.replace("sm_", "compute_"))
        return virtual, replace(cubin, image=text.encode() + b"\0")  # as the driver takes text

    with pool(jobs=jobs) as within, working("writing PTX"):
        return list(within.executor.map(made, portable))


def _show(place: Path, files: Mapping[str, bytes], kernels: int, seconds: float, as_json: bool) -> None:
    size = place.stat().st_size if place.is_file() else sum(map(len, files.values()))
    facts = {"pack": str(place), "kernels": kernels, "files": len(files), "megabytes": size / _MB, "seconds": seconds}
    if as_json:
        show_json({**facts, MANIFEST: files[MANIFEST].decode()})
    else:
        click.echo(f"{place}: {kernels} kernels, {size / _MB:.1f} MB, in {seconds:.1f} s")
