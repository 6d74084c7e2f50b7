"""Commands that compile ahead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .. import arguments
from ..group import main


@main.command()
@click.option(
    "--op", "ops", multiple=True, callback=arguments.read_names, shell_complete=arguments.complete("ops"),
    help="Every kernel that `compile` lists of it; repeatable, or comma-separated.",
)
@click.option("--problems", type=arguments.FILE, help="Kernels of the problems of this file, as `record` writes it.")
@click.option("--problem", multiple=True, metavar="TEXT", help="Kernels of a problem: PLAN FIELD=VALUE...; repeatable.")
@click.option("--out", type=arguments.FOLDER, required=True, help="The pack's folder; that of the wheel with --wheel.")
@arguments.archs("sm_80", "sm_89", "sm_90")
@arguments.LAYOUTS
@click.option("--ptx", is_flag=True, help="With PTX of the latest architecture, for GPUs that come after it.")
@click.option("--wheel", is_flag=True, help="Write a wheel, which is found where it is installed.")
@click.option("--hub", is_flag=True, help="Write a repository that the package `kernels` loads, with torch.")
@click.option("--name", default="baracuda-pack", show_default=True, help="Name of the wheel or the repository.")
@click.option("--sign", type=arguments.FILE, metavar="KEY", help="Sign it with this private key: Ed25519, in PEM.")
@click.option("--licence", default="Apache-2.0", show_default=True, help="SPDX expression for the kernels.")
@arguments.ANY_SPECS
@arguments.TEMPLATES
@arguments.PACKAGE
@arguments.EXECUTOR
@arguments.JOBS
@arguments.JSON
def pack(**options: Any) -> None:
    """Compile kernels into a folder or a wheel that runs without a compiler; needs no GPU."""
    from ..packs.pack import pack

    arguments.end(pack(**options))


@main.command(cls=arguments.Forwarding)
@click.option("--out", type=arguments.FILE, default=Path("problems.txt"), show_default=True, help="Replaced.")
@click.pass_obj
def record(program: list[str], /, **options: Any) -> None:
    """Run the program after `--` and write the problems that its plans are given, for `pack --problems`."""
    from ..packs.record import record

    raise SystemExit(record(program, **options))
