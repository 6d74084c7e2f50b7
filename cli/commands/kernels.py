"""Commands that list, compile, check and compare kernels."""

from __future__ import annotations

from typing import Any

import click

from .. import arguments
from ..group import main


@main.command("list")
@arguments.OPS
@click.option("--dtype", shell_complete=arguments.complete("elements"), help="Element type; default: all.")
@click.option("--resources", is_flag=True, help="Add resources per layout; compiles what is not cached.")
@arguments.archs("sm_90")
@arguments.ANY_SPECS
@arguments.PACKAGE
@arguments.JSON
def list_(**options: Any) -> None:
    """List kernels in order of preference."""
    from ..kernels.catalog import show_list

    show_list(**options)


@main.command()
@click.argument("name", metavar="SKU|OP", shell_complete=arguments.complete("ops"))
@arguments.ANY_SPECS
@arguments.PACKAGE
@click.option("--source", is_flag=True, help="Also print the CUDA source.")
@arguments.JSON
def show(**options: Any) -> None:
    """Show a kernel's source location, memory traffic and resources."""
    from ..kernels.catalog import show

    show(**options)


@main.command()
@arguments.PLAN
@arguments.FIELDS
@arguments.device("sm_80, host, cuda:0", "any")
@arguments.PACKAGE
@arguments.JSON
def explain(**options: Any) -> None:
    """Show which kernel PLAN selects for a problem, and why not the others; exit 1 if none serves it."""
    from ..kernels.explain import explain

    arguments.end(explain(**options))


@main.command()
@arguments.OPS
@arguments.PROJECT
@arguments.archs("sm_90")
@click.option("--all-archs", is_flag=True, help="Every architecture that specs may name and NVRTC supports.")
@arguments.LAYOUTS
@arguments.PACKAGE
@click.option("--all", "all_kernels", is_flag=True, help="Audit every kernel, not a sample of each op's.")
@arguments.EXECUTOR
@arguments.JOBS
@arguments.SPEEDUP
@arguments.JSON
def check(**options: Any) -> None:
    """Validate specs, compare generated files and audit binaries; needs no GPU."""
    from ..kernels.check import check

    arguments.end(check(**options))


@main.command()
@arguments.OPS
@arguments.ANY_SPECS
@arguments.TEMPLATES
@arguments.archs("sm_80", "sm_89", "sm_90")
@arguments.LAYOUTS
@arguments.EXECUTOR
@arguments.JOBS
@click.option("--cold", is_flag=True, help="Use a temporary, empty cache.")
@arguments.SPEEDUP
@arguments.PACKAGE
@arguments.JSON
def compile(**options: Any) -> None:
    """Compile kernels with NVRTC, with all optional tensors, and list registers, shared memory and spills."""
    from ..kernels.compile import compile

    arguments.end(compile(**options))


@main.command()
@click.argument("revision", metavar="REV")
@arguments.OPS
@click.option("--specs", type=arguments.FOLDER, help="By default those of the repository, or else the installed ones.")
@arguments.OUT
@arguments.archs("sm_90")
@arguments.LAYOUTS
@arguments.PACKAGE
@click.option("--machine-code", is_flag=True, help="List only kernels whose machine code is not the same.")
@arguments.JSON
def diff(**options: Any) -> None:
    """List kernels that differ from those of a git revision; exit 1 if there are any."""
    from ..kernels.diff import diff

    arguments.end(diff(**options))


@main.command("why-miss")
@arguments.PLAN
@arguments.FIELDS
@arguments.device("sm_80, cuda:0", "the first GPU")
@arguments.PACKAGE
@arguments.JSON
def why_miss(**options: Any) -> None:
    """Show which of a problem's kernels are cached, and why the others are not; exit 1 on a miss."""
    from ..kernels.why_miss import why_miss

    arguments.end(why_miss(**options))
