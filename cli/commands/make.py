"""Commands that write specs and generated files."""

from __future__ import annotations

from typing import Any

import click

from .. import arguments
from ..group import main


@main.command()
@arguments.PROJECT
@click.option("--check", is_flag=True, help="Write nothing; list what would change and exit 1 if anything would.")
@arguments.JSON
def generate(**options: Any) -> None:
    """Write kernels and plans for every spec; remove those of deleted specs."""
    from ..make.generate import generate

    arguments.end(generate(**options))


@main.command()
@click.argument("op")
@click.option("--family", type=arguments.Skeletons(), default="row", show_default=True)
@click.option("--gradient", is_flag=True, help="With a gradient op, derived from the program.")
@click.option("--category", default="custom", show_default=True)
@arguments.SPECS
def new(**options: Any) -> None:
    """Write a commented spec to start a new op from; it generates as it is."""
    from ..make.new import new

    click.echo(new(**options))


@main.command()
@arguments.SPECS
@click.option("--from", "version", type=click.IntRange(1), help="Their language; default: what schema.json there says.")
@click.option("--check", is_flag=True, help="Write nothing; list what would change and exit 1 if anything would.")
def migrate(**options: Any) -> None:
    """Rewrite specs of an earlier version of the language."""
    from ..make.migrate import migrate

    arguments.end(migrate(**options))


@main.command()
@click.option("--out", type=arguments.FILE, help="Default: stdout.")
def schema(**options: Any) -> None:
    """Print the JSON Schema of specs, for editors."""
    from ..make.schema import schema

    schema(**options)
