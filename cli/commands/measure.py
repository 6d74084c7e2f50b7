"""Commands that time kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .. import arguments
from ..group import main


@main.command()
@arguments.OPS
@arguments.ANY_SPECS
@arguments.PACKAGE
@click.option("--peers", metavar="NAMES", help="Comma-separated peers; default: all that can be imported.")
@click.option("--case", metavar="TEXT", help="Only cases whose name contains this.")
@click.option("--sweep", is_flag=True, help="Sweep row lengths, of RMSNorm or another row op.")
@arguments.WORKERS
@arguments.GPUS
@click.option("--state", type=arguments.FILE, help="Record measurements here and resume from them.")
@arguments.JSON
@click.option("--csv", type=arguments.FILE, help="Write one line per contestant and case.")
@click.option("--plot", type=arguments.FILE, help="Plot a roofline, or the sweep, as .svg or .png.")
@click.option("--host", is_flag=True, help="Measure host time per launch, by route.")
@click.option("--compile", "compiling", is_flag=True, help="Measure compilation, cold and warm, and first calls.")
@click.option("--report", is_flag=True, help="Do not measure: the arguments are state files; write a report.")
@click.option("--out", type=arguments.FILE, help="Output file of --report; default: stdout.")
def bench(ops: tuple[str, ...], host: bool, compiling: bool, report: bool, out: Path | None, **options: Any) -> None:
    """Time plans and other libraries on a GPU, interleaved, with a cold L2; exit 1 if a plan could not be timed."""
    from ..measure.bench import bench, show_apart, write_report

    if report:
        write_report([Path(name) for name in ops], out, options["csv"], options["plot"], options["sweep"])
    elif host or compiling:
        show_apart(host=host, compiling=compiling, as_json=options["as_json"])
    else:
        arguments.end(bench(ops=ops, **options))


@main.command()
@arguments.OPS
@arguments.SPECS
@arguments.PACKAGE
@click.option("--case", metavar="TEXT", help="Only cases whose name contains this.")
@click.option("--dtypes", metavar="NAMES", help="Comma-separated element types; default: those of the cases.")
@click.option("--sweep", is_flag=True, help="Sweep row lengths, for row ops.")
@click.option("--margin", type=click.FloatRange(0), default=0.03, show_default=True, help="Minimum gain.")
@arguments.WORKERS
@arguments.GPUS
@arguments.SPEEDUP
@click.option("--state", type=arguments.FILE, help="Record measurements here and resume from them.")
@click.option("--dry-run", is_flag=True, help="Measure and show, but save nothing.")
@arguments.JSON
def tune(**options: Any) -> None:
    """Time all kernels that serve a case on this GPU and save those that beat the default selection, next to the
    specs; exit 1 if a plan could not be timed."""
    from ..measure.tune import tune

    arguments.end(tune(**options))
