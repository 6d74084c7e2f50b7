"""The command line, `baracuda-gen`: each command hands its arguments to a function of `commands`.

Commands import what they run only when they run, so that `--help` and `generate` stay quick.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from .commands.arguments import (
    ANY_SPECS,
    FOLDER,
    JSON,
    OPS,
    OUT,
    PACKAGE,
    SETTINGS,
    SPECS,
    Commands,
    Forwarding,
    archs,
    end,
    read_layouts,
)
from .families import FAMILIES


@click.group(cls=Commands, context_settings=SETTINGS)
@click.version_option(package_name="baracuda-gen", prog_name="baracuda-gen")
def main() -> None:
    """Turn one YAML spec per operation into a CUDA kernel, its plan class, tests and documentation."""


@main.command()
@SPECS
@OUT
@click.option("--templates", type=FOLDER, multiple=True, help="Looked in before our own; may be repeated.")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 and list what would change.")
def generate(specs: Path, out: Path, templates: tuple[Path, ...], check: bool) -> None:
    """Write the kernels and plans of every spec; remove those of specs that are gone."""
    from .commands.generate import generate

    end(generate(specs, out, templates, check=check) or not check)


@main.command()
@OPS
@SPECS
@OUT
@archs("sm_90")
@PACKAGE
def check(ops: tuple[str, ...], specs: Path, out: Path, archs: tuple[str, ...], package: str) -> None:
    """Validate specs, compare the generated files, compile the kernels; needs no GPU."""
    from .commands.check import check

    end(check(specs, out, ops, archs=archs, package=package))


@main.command()
@OPS
@ANY_SPECS
@archs("sm_80", "sm_89", "sm_90")
@click.option("--layouts", default="packed,strided", show_default=True, callback=read_layouts)
@click.option("--jobs", type=click.IntRange(1), help="How many at a time; by default one a core.")
@click.option("--cold", is_flag=True, help="Use an empty cache and throw it away.")
@PACKAGE
@JSON
def compile(
    ops: tuple[str, ...], specs: Path | None, archs: tuple[str, ...], layouts: tuple[str, ...], jobs: int | None,
    cold: bool, package: str, as_json: bool,
) -> None:  # fmt: skip
    """Compile kernels with NVRTC, optional tensors included, and list what each occupies."""
    from .commands.compile_report import compile

    done = compile(ops, specs, archs=archs, layouts=layouts, package=package, jobs=jobs, cold=cold, as_json=as_json)
    end(done)


@main.command("list")
@click.option("--op")
@click.option("--dtype")
@PACKAGE
@JSON
def list_(op: str | None, dtype: str | None, package: str, as_json: bool) -> None:
    """List kernels in order of preference."""
    from .commands.catalog import listing
    from .commands.terminal import show_json, show_table

    (show_json if as_json else show_table)(listing(package, op=op, dtype=dtype))


@main.command()
@click.argument("name", metavar="SKU|OP")
@ANY_SPECS
@PACKAGE
@click.option("--source", is_flag=True, help="Print the CUDA text as well.")
@JSON
def show(name: str, specs: Path | None, package: str, source: bool, as_json: bool) -> None:
    """Show where a kernel comes from, what it reads and writes, and what it occupies."""
    from .commands.catalog import show

    show(name, specs, package, source=source, as_json=as_json)


@main.command()
@click.argument("plan")
@click.argument("fields", nargs=-1, metavar="FIELD=VALUE...")
@click.option("--device", help="sm_80, host, cuda:0, ...; by default any.")
@PACKAGE
def explain(plan: str, fields: tuple[str, ...], device: str | None, package: str) -> None:
    """Say which kernel PLAN takes for a problem, and why not the others; exit 1 when it takes none."""
    from .commands.explain import explain

    explanation = explain(plan, fields, device, package)
    click.echo(explanation)
    end(explanation.chosen is not None)


@main.command()
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write here instead of to stdout.")
def schema(out: Path | None) -> None:
    """Print the JSON Schema of specs, for editors."""
    from .spec import OpSpec

    text = json.dumps(OpSpec.model_json_schema(), indent=2)
    out.write_text(text + "\n", encoding="utf-8") if out else click.echo(text)


@main.command()
@JSON
def doctor(as_json: bool) -> None:
    """Say what this machine can do; exit 1 when something necessary is missing."""
    from .commands.doctor import doctor

    end(doctor(as_json=as_json))


@main.command()
@click.argument("op")
@click.option("--family", type=click.Choice(list(FAMILIES)), required=True)
@click.option("--category", default="custom", show_default=True)
@SPECS
def new(op: str, family: str, category: str, specs: Path) -> None:
    """Write a commented spec of a new op, which generates as it is."""
    from .commands.new import new

    click.echo(new(op, family, category, specs))


@main.command(cls=Forwarding)
@OPS
@ANY_SPECS
@PACKAGE
@click.option("--device", type=click.Choice(["host", "cuda"]), default="host", show_default=True)
@click.pass_obj
def test(extra: list[str], ops: tuple[str, ...], specs: Path | None, package: str, device: str) -> None:
    """Run the tests that follow from specs; what comes after `--` goes to pytest."""
    from .commands.project import specs_folder
    from .verify import run

    raise SystemExit(run(specs_folder(specs), package, ops, device, extra))


@main.command()
@click.option("--rows", type=click.IntRange(1), default=4096, show_default=True)
@click.option("--cols", type=click.IntRange(1), default=4096, show_default=True)
@click.option("--no-compile", is_flag=True, help="Leave out compiling every kernel for every architecture.")
def demo(rows: int, cols: int, no_compile: bool) -> None:
    """RMSNorm from its specs to judged results, on a GPU or without one."""
    from .commands.demo import demo

    end(demo(rows, cols, compile_first=not no_compile))
