"""The command that shows what the others do."""

from __future__ import annotations

from typing import Any

import click

from .. import arguments
from ..group import main


@main.command()
@click.option("--rows", type=click.IntRange(1), default=4096, show_default=True)
@click.option("--cols", type=click.IntRange(1), default=4096, show_default=True)
@click.option("--compile/--no-compile", "compile_first", default=True, help="Compile for all architectures first.")
def demo(**options: Any) -> None:
    """Generate, compile, run and check RMSNorm, on a GPU or the CPU."""
    from ..demo.demo import demo

    arguments.end(demo(**options))
