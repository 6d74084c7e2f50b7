"""Commands about this machine, and the site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .. import arguments
from ..group import main


@main.command()
@arguments.JSON
def doctor(**options: Any) -> None:
    """Report what this machine can do; exit 1 if something required is missing."""
    from ..tools.doctor import doctor

    arguments.end(doctor(**options))


@main.command()
@click.argument("what", type=click.Choice(["show", "verify", "prune"]), default="show")
@click.option("--remove", is_flag=True, help="With verify: delete damaged entries.")
@click.option("--size", "megabytes", type=click.FloatRange(0), help="With prune: MB to keep per kind; default: 1074.")
@click.option("--days", type=click.FloatRange(0), help="With prune: days since the last use; default: 90.")
@arguments.JSON
def cache(**options: Any) -> None:
    """Show, verify or prune the cache; exit 1 if verify finds damage."""
    from ..tools.cache import cache

    arguments.end(cache(**options))


@main.command()
@arguments.ANY_SPECS
@click.option("--out", type=arguments.FOLDER, default=Path("site"), show_default=True, help="Output folder.")
@arguments.PACKAGE
@click.option("--root", type=arguments.FOLDER, default=Path(), help="Folder of README.md and docs; default: this one.")
@click.option("--resources", is_flag=True, help="Compile kernels that are not cached, to show their resources.")
@arguments.archs("sm_90")
@click.option("--accuracy", type=arguments.FILE, multiple=True, help="State files of `compare`, for error histograms.")
@click.option("--speed", type=arguments.FILE, multiple=True, help="State files of `bench`, for rooflines.")
@click.option("--sweep", "sweeps", type=arguments.FILE, multiple=True, help="State files of `bench --sweep`.")
@click.option("--markdown", type=arguments.FOLDER, help="Also write the Markdown and mkdocs.yml here.")
def site(**options: Any) -> None:
    """Write the catalogue: a static site with a page per op."""
    from ..tools.site import site

    arguments.end(site(**options))
