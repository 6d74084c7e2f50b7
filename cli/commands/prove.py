"""Commands that run tests of all kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .. import arguments
from ..group import main

_MUTATED = "kernel", "plan", "spec", "runtime"


@main.command(cls=arguments.Forwarding)
@arguments.OPS
@arguments.ANY_SPECS
@arguments.PACKAGE
@click.option("--device", type=click.Choice(["host", "cuda"]), default="host", show_default=True)
@click.option("--check", is_flag=True, help="Check every memory access: bounds, races, uninitialised reads.")
@arguments.REPRO
@click.pass_obj
def test(extra: list[str], /, **options: Any) -> None:
    """Run the spec-driven tests; arguments after `--` go to pytest."""
    from baracuda.checking.verify import run

    raise SystemExit(run(**options, extra=extra))


@main.command()
@click.argument("file", type=arguments.FILE)
@arguments.ANY_SPECS
@arguments.PACKAGE
@click.option("--device", type=click.Choice(["cuda", "host", "check"]), help="Default: where it failed, if available.")
@arguments.JSON
def repro(**options: Any) -> None:
    """Rerun a failure saved by `--repro` of `test` or `compare`; exit 1 while it fails."""
    from ..prove.repro import repro

    arguments.end(repro(**options))


@main.command()
@arguments.OPS
@arguments.ANY_SPECS
@arguments.PACKAGE
@click.option("--count", type=click.IntRange(1), default=2000, show_default=True, help="Problems per op.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed.")
@click.option("--shard", "part", default="1/1", show_default=True, help="I/N: the I-th of N equal shares.")
@click.option("--state", type=arguments.FILE, help="Record progress here and resume from it.")
@click.option("--device", type=click.Choice(["cuda", "host"]), help="Default: the GPU, if there is one.")
@click.option("--repeats", type=click.IntRange(1), help="Runs with the same bits; default: 100, on the host 2.")
@click.option("--limit", type=click.IntRange(1), default=1 << 20, show_default=True, help="Elements per problem.")
@click.option("--search", type=click.IntRange(0), default=0, show_default=True, help="Steps towards larger errors.")
@arguments.WORKERS
@arguments.GPUS
@arguments.JOBS
@arguments.SPEEDUP
@click.option("--only", type=click.IntRange(0), metavar="INDEX", help="Judge only this problem and describe it.")
@arguments.REPRO
@arguments.JSON
@click.option("--report", is_flag=True, help="Do not run: the arguments are state files; write a report.")
@click.option("--out", type=arguments.FILE, help="Output file of --report; default: stdout.")
def compare(ops: tuple[str, ...], report: bool, out: Path | None, **options: Any) -> None:
    """Compare plans with torch in float64 on random problems; exit 1 if any error exceeds its bound."""
    from ..prove.compare import compare, write_report

    if report:
        write_report([Path(name) for name in ops], out)
    else:
        arguments.end(compare(ops=ops, **options))


@main.command()
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option("--count", type=click.IntRange(1), default=2000, show_default=True, help="Specs, or cases per TARGET.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed.")
@click.option("--state", type=arguments.FILE, help="Record progress here and resume from it.")
@arguments.WORKERS
@arguments.JOBS
@click.option("--only", type=click.IntRange(0), metavar="INDEX", help="Judge only this case and describe it.")
@arguments.JSON
@click.option("--faults", is_flag=True, help="Inject faults into caches instead; random ones --count times.")
@click.option("--report", is_flag=True, help="Do not run: the arguments are state files; write a report.")
@click.option("--out", type=arguments.FILE, help="Output file of --report; default: stdout.")
def fuzz(targets: tuple[str, ...], faults: bool, report: bool, out: Path | None, **options: Any) -> None:
    """Fuzz with hostile specs, programs, tables, files, cache entries and calls; exit 1 on a violation.

    A TARGET is one of read, validate, generate, list, select, compile, execute, calls, tables, repro and entries;
    default: some of each.
    """
    from ..prove.fuzz import cache_faults, fuzz, write_report

    if report:
        write_report([Path(name) for name in targets], out)
    elif faults:
        arguments.end(cache_faults(options["count"], options["seed"], options["state"], options["as_json"]))
    else:
        arguments.end(fuzz(targets=targets, **options))


@main.command()
@arguments.OPS
@arguments.ANY_SPECS
@arguments.PACKAGE
@click.option("--sample", "count", type=click.IntRange(1), help="Sample this many, from each op and operator.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(_MUTATED), help="Only mutants of these; repeatable.")
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed.")
@click.option("--state", type=arguments.FILE, help="Record progress here and resume from it.")
@arguments.WORKERS
@arguments.JOBS
@click.option("--shard", "part", default="1/1", show_default=True, help="I/N: the I-th of N equal shares.")
@click.option("--at-least", type=click.FloatRange(0, 100), default=95.0, show_default=True, help="Percent to kill.")
@click.option("--table", type=arguments.THERE, help="Plant the defects that STRATUM.yaml files in this folder list.")
@click.option("--stratum", "strata", multiple=True, help="With --table: only these; repeatable.")
@click.option("--only", multiple=True, metavar="ID", help="With --table: only these defects; repeatable.")
@click.option("--out", type=arguments.FILE, help="With --table: write the report here, in Markdown.")
@arguments.JSON
def mutate(
    table: Path | None, strata: tuple[str, ...], only: tuple[str, ...], out: Path | None, **options: Any
) -> None:
    """Mutation testing: plant defects, one at a time, and run the spec-driven tests.

    OP may also be "runtime", what plans share.
    """
    from baracuda.checking.verify import require_tools

    require_tools()  # without them, what follows cannot be imported
    if table is None:
        from ..prove.mutate import mutate

        arguments.end(mutate(**options))
    from ..prove.mutate_table import mutate_table

    shared = {name: options[name] for name in ("ops", "state", "executor", "jobs", "at_least", "as_json")}
    arguments.end(mutate_table(table, strata=strata, only=only, out=out, **shared))


@main.command()
@arguments.OPS
@arguments.ANY_SPECS
@arguments.PACKAGE
@arguments.JOBS
@click.option("--at-least", type=click.FloatRange(0, 100), default=95.0, show_default=True, help="Percent to take.")
@arguments.JSON
def coverage(**options: Any) -> None:
    """Show which branches of kernels and device headers the spec-driven tests do not take; needs g++."""
    from ..prove.coverage import coverage

    arguments.end(coverage(**options))


@main.command()
@arguments.OPS
@arguments.ANY_SPECS
@arguments.PACKAGE
@click.option("--device", type=click.Choice(["host", "cuda"]), default="host", show_default=True)
@click.option("--update", is_flag=True, help="Record what is new; other bits need a higher `numerics` in the spec.")
@arguments.JSON
def golden(**options: Any) -> None:
    """Compare what kernels compute with recorded hashes, bit by bit; exit 1 if an op changed without a new revision."""
    from ..prove.golden import golden

    arguments.end(golden(**options))


@main.command()
@arguments.OPS
@arguments.ANY_SPECS
@arguments.PACKAGE
@click.option("--device", type=click.Choice(["cuda", "host"]), help="Default: the GPU, if there is one.")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), default=10.0, show_default=True, help="How long.")
@click.option("--runs", type=click.IntRange(1), help="Run each kernel so often instead, at every place of its batch.")
@click.option("--threads", type=click.IntRange(1), default=8, show_default=True)
@click.option("--streams", type=click.IntRange(1), default=4, show_default=True, help="Of each thread, on a GPU.")
@arguments.JSON
def soak(**options: Any) -> None:
    """Run kernels under load, at other addresses and places; exit 1 if bits change or memory and handles grow."""
    from ..prove.soak import soak

    arguments.end(soak(**options))


@main.command()
@arguments.OPS
@arguments.ANY_SPECS
@arguments.PACKAGE
@click.option("--tools", default="memcheck,racecheck,initcheck,synccheck", show_default=True)
@click.option("--shard", default="1/1", show_default=True, help="I/N: the I-th of N equal shares.")
@click.option("--state", type=click.Path(path_type=Path), help="Record progress here and resume from it.")
@click.option("--jobs", type=click.IntRange(1), default=4, show_default=True)
@arguments.JSON
def sanitize(**options: Any) -> None:
    """Run each kernel's smallest covering case under compute-sanitizer; needs a GPU."""
    from ..prove.sanitize import sanitize

    arguments.end(sanitize(**options))
