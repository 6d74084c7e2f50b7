"""`demo`: RMSNorm from its specs to checked results, step by step."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path

import click

from baracuda.checking.listing.variants import ARCHS
from baracuda.codegen.emit.output import compare, write
from baracuda.codegen.project import Project, installed
from baracuda.runtime import Unsupported

from ..kernels.compile_report import Report
from ..kernels.explain import device_called, show
from ..make.generate import show_changes, summary
from ..reading import list_kernels, read_project
from ..terminal import Row, show_table, working
from .machines import CudaMachine, Machine, machine
from .rms_norm import Pass, passes
from .verdict import judge

OPS = ("rms_norm", "rms_norm_backward")


def demo(rows: int, cols: int, *, compile_first: bool = True) -> bool:
    """Generate, compile, run on bf16 arrays [rows, cols] and check; true when every bound holds.

    Raises Unsupported without autograd, which the oracle differentiates with.
    """
    if find_spec("autograd") is None:
        raise Unsupported("the demo compares with derivatives by autograd; pip install 'baracuda-gen[test]'")
    project = _generate()
    if compile_first and not _compile(project):
        return False
    target = machine()
    click.echo(f"\nrun: RMSNorm of {rows} x {cols} bf16 with outlier channels, on {_described(target)}")
    with working("running"):
        runs = passes(rows, cols, target)
    for run in runs:
        show(run.plan.explain(run.plan.descriptor, device=target.name), device_called(target.name))
    click.echo("\ncheck: errors against the float64 oracle, and the bounds that the specs declare")
    verdicts = [row for run in runs for row in judge(run, project)]
    show_table([row for row, _ in verdicts])
    _show_times(runs, target)
    return all(within for _, within in verdicts)


def _generate() -> Project:
    start = time.perf_counter()
    project = read_project(installed("baracuda.specs"))
    outcome = _brought_up_to_date(project, installed("baracuda.generated"))
    click.echo(f"generate: {outcome} in {(time.perf_counter() - start) * 1e3:.0f} ms")
    return project


def _brought_up_to_date(project: Project, out: Path) -> str:
    """What was regenerated in a checkout; an installed package is left alone."""
    checkout = (out.resolve().parent / "pyproject.toml").is_file()
    changes = (write if checkout else compare)(project.files, out)
    if not changes.any:
        return f"{len(project.ops)} ops, unchanged"
    if not checkout:
        count = len(changes.written) + len(changes.removed)
        return f"{out} has {count} stale files and is left alone (reinstall the package),"
    show_changes(changes, out)
    return summary(len(project.ops), changes)


def _compile(project: Project) -> bool:
    click.echo(f"\ncompile: every RMSNorm kernel for {', '.join(ARCHS)} (a/b/c where these differ; ms of all)")
    report = Report.of(list_kernels(project, OPS, layouts=("packed",)))
    show_table(_by_kernel(report))
    click.echo(report)
    report.show_failures(project.loaded)
    return not report.failed


def _by_kernel(report: Report) -> list[Row]:
    """One row per kernel; values that differ between architectures are listed in their order, times are summed."""
    by_kernel: dict[str, list[Row]] = {}
    for row in report.rows():
        by_kernel.setdefault(str(row["kernel"]), []).append(row)
    return [{"kernel": name, **{key: _merged(key, rows) for key in _COLUMNS}} for name, rows in by_kernel.items()]


_COLUMNS = ("registers", "shared", "spill", "ms")


def _merged(key: str, rows: list[Row]) -> object:
    values = [row[key] for row in rows]
    if key == "ms":
        times = [value for value in values if isinstance(value, float)]
        return f"{sum(times):.0f}" if times else "cached"
    return "/".join(map(str, dict.fromkeys(values) if len(set(values)) == 1 else values))


def _described(target: Machine) -> str:
    return (
        target.name
        if isinstance(target, CudaMachine)
        else "the host device: the same CUDA source, on the CPU"
    )


def _show_times(runs: list[Pass], target: Machine) -> None:
    if not isinstance(target, CudaMachine):
        times = ", ".join(f"{run.plan.OP} {run.seconds * 1e3:.0f} ms" for run in runs)
        click.echo(f"\ntime on the host device (no benchmark): {times}")
        return
    click.echo("\nspeed: median of runs with a cold L2 cache; each tensor's bytes count once")
    show_table([_speed(run, target) for run in runs])


def _speed(run: Pass, target: CudaMachine) -> Row:
    with working("measuring"):
        copy = run.nbytes / target.copy_seconds(run.nbytes // 2) / 1e9
    speed = run.nbytes / run.seconds / 1e9
    return {
        "op": run.plan.OP,
        "us": run.seconds * 1e6,
        "GB/s": speed,
        "GB/s of a device copy": copy,
        "share": f"{speed / copy:.0%}",
    }
