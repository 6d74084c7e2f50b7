"""The group of all commands: each imports its function when called and passes on its options."""

from __future__ import annotations

import click

from . import arguments


@click.group(cls=arguments.Commands, context_settings=arguments.SETTINGS)
@click.version_option(package_name="baracuda-gen", prog_name="baracuda-gen")
def main() -> None:
    """Generate CUDA kernels, Python plans, tests and documentation from one YAML spec per op."""
