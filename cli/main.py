"""The command line, `baracuda-gen`: each command imports a function and hands it its arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from . import arguments


@click.group(cls=arguments.Commands, context_settings=arguments.SETTINGS)
@click.version_option(package_name="baracuda-gen", prog_name="baracuda-gen")
def main() -> None:
    """Turn one YAML spec per operation into a CUDA kernel, its plan class, tests and documentation."""


@main.command()
@arguments.PROJECT
@click.option("--check", is_flag=True, help="Write nothing; exit 1 and list what would change.")
@arguments.JSON
def generate(**given: Any) -> None:
    """Write the kernels and plans of every spec; remove those of specs that are gone."""
    from .make.generate import generate

    arguments.end(generate(**given))


@main.command()
@arguments.OPS
@arguments.PROJECT
@arguments.archs("sm_90")
@click.option("--all-archs", is_flag=True, help="All that specs may name and NVRTC compiles for.")
@arguments.LAYOUTS
@arguments.PACKAGE
@arguments.JSON
def check(**given: Any) -> None:
    """Validate specs, compare the generated files, audit the kernels' binaries; needs no GPU."""
    from .kernels.check import check

    arguments.end(check(**given))


@main.command()
@arguments.OPS
@arguments.ANY_SPECS
@arguments.TEMPLATES
@arguments.archs("sm_80", "sm_89", "sm_90")
@arguments.LAYOUTS
@click.option("--jobs", type=click.IntRange(1), help="How many at a time; by default one a core.")
@click.option("--cold", is_flag=True, help="Use an empty cache and throw it away.")
@arguments.PACKAGE
@arguments.JSON
def compile(**given: Any) -> None:
    """Compile kernels with NVRTC, optional tensors included, and list what each occupies."""
    from .kernels.compile import compile

    arguments.end(compile(**given))


@main.command("list")
@click.option("--op", shell_complete=arguments.complete("ops"))
@click.option("--dtype", shell_complete=arguments.complete("elements"))
@click.option("--resources", is_flag=True, help="With what each occupies in each layout; compiles what it must.")
@arguments.archs("sm_90")
@arguments.ANY_SPECS
@arguments.PACKAGE
@arguments.JSON
def list_(**given: Any) -> None:
    """List kernels in order of preference."""
    from .kernels.catalog import show_list

    show_list(**given)


@main.command()
@click.argument("revision", metavar="REV")
@arguments.OPS
@arguments.OUT
@arguments.archs("sm_90")
@arguments.LAYOUTS
@arguments.PACKAGE
@arguments.JSON
def diff(**given: Any) -> None:
    """List the kernels that differ from those of a git revision; exit 1 when there are any."""
    from .kernels.diff import diff

    arguments.end(diff(**given))


@main.command()
@click.argument("name", metavar="SKU|OP", shell_complete=arguments.complete("ops"))
@arguments.ANY_SPECS
@arguments.PACKAGE
@click.option("--source", is_flag=True, help="Print the CUDA text as well.")
@arguments.JSON
def show(**given: Any) -> None:
    """Show where a kernel comes from, what it reads and writes, and what it occupies."""
    from .kernels.catalog import show

    show(**given)


@main.command()
@arguments.PLAN
@arguments.FIELDS
@arguments.device("sm_80, host, cuda:0", "any")
@arguments.PACKAGE
@arguments.JSON
def explain(**given: Any) -> None:
    """Say which kernel PLAN takes for a problem, and why not the others; exit 1 when it takes none."""
    from .kernels.explain import explain

    arguments.end(explain(**given))


@main.command("why-miss")
@arguments.PLAN
@arguments.FIELDS
@arguments.device("sm_80, cuda:0", "the first GPU")
@arguments.PACKAGE
@arguments.JSON
def why_miss(**given: Any) -> None:
    """Say which kernels of a problem the cache has, and what has changed where it misses; exit 1 when it does."""
    from .kernels.why_miss import why_miss

    arguments.end(why_miss(**given))


@main.command()
@click.option("--out", type=arguments.FILE, help="By default stdout.")
def schema(**given: Any) -> None:
    """Print the JSON Schema of specs, for editors."""
    from .make.schema import schema

    schema(**given)


@main.command()
@arguments.JSON
def doctor(**given: Any) -> None:
    """Say what this machine can do; exit 1 when something necessary is missing."""
    from .tools.doctor import doctor

    arguments.end(doctor(**given))


@main.command()
@click.argument("what", type=click.Choice(["show", "verify", "prune"]), default="show")
@click.option("--remove", is_flag=True, help="With verify: remove what is damaged.")
@click.option("--size", "megabytes", type=click.FloatRange(0), help="With prune: MB to keep of each kind; else 1074.")
@click.option("--days", type=click.FloatRange(0), help="With prune: since the last use; by default 90.")
@arguments.JSON
def cache(**given: Any) -> None:
    """Show what is kept between processes, verify it, or prune it; exit 1 when verify finds damage."""
    from .tools.cache import cache

    arguments.end(cache(**given))


@main.command()
@click.argument("op")
@click.option("--family", type=click.Choice(["row"]), default="row", show_default=True)
@click.option("--category", default="custom", show_default=True)
@arguments.SPECS
def new(**given: Any) -> None:
    """Write a commented spec of a new op, which generates as it is."""
    from .make.new import new

    click.echo(new(**given))


@main.command(cls=arguments.Forwarding)
@arguments.OPS
@arguments.ANY_SPECS
@arguments.PACKAGE
@click.option("--device", type=click.Choice(["host", "cuda"]), default="host", show_default=True)
@click.option("--check", is_flag=True, help="Look at every access to memory: bounds, races, unwritten memory.")
@arguments.REPRO
@click.pass_obj
def test(extra: list[str], /, **given: Any) -> None:
    """Run the tests that follow from specs; what comes after `--` goes to pytest."""
    from baracuda.checking.verify import run

    raise SystemExit(run(**given, extra=extra))


@main.command()
@click.option("--rows", type=click.IntRange(1), default=4096, show_default=True)
@click.option("--cols", type=click.IntRange(1), default=4096, show_default=True)
@click.option("--compile/--no-compile", "compile_first", default=True, help="For all architectures.")
def demo(**given: Any) -> None:
    """RMSNorm from its specs to judged results, on a GPU or without one."""
    from .demo.demo import demo

    arguments.end(demo(**given))


@main.command()
@arguments.OPS
@arguments.ANY_SPECS
@arguments.PACKAGE
@click.option("--tools", default="memcheck,racecheck,initcheck,synccheck", show_default=True)
@click.option("--shard", default="1/1", show_default=True, help="I/N: the I-th of N equal parts of the work.")
@click.option("--state", type=click.Path(path_type=Path), help="Remember here what is done; continue after it.")
@click.option("--jobs", type=click.IntRange(1), default=4, show_default=True)
@arguments.JSON
def sanitize(**given: Any) -> None:
    """Run each SKU's smallest covering case on the GPU under compute-sanitizer."""
    from .prove.sanitize import sanitize

    arguments.end(sanitize(**given))


@main.command()
@arguments.OPS
@arguments.ANY_SPECS
@arguments.PACKAGE
@click.option("--sample", "count", type=click.IntRange(1), help="Only so many, some of each op and operator.")
@click.option("--seed", type=int, default=0, show_default=True, help="Which ones are drawn.")
@click.option("--state", type=arguments.FILE, help="Remember here what is judged; continue after it.")
@click.option("--jobs", type=click.IntRange(1), help="How many at a time; by default one a core.")
@click.option("--shard", "part", default="1/1", show_default=True, help="I/N: the I-th of N equal parts of the work.")
@click.option("--at-least", type=click.FloatRange(0, 100), default=95.0, show_default=True, help="Percent killed.")
@arguments.JSON
def mutate(**given: Any) -> None:
    """Put defects into kernels and plans, one at a time, and see whether the tests that follow from specs object."""
    from .prove.mutate import mutate

    arguments.end(mutate(**given))


@main.command()
@arguments.OPS
@arguments.ANY_SPECS
@arguments.PACKAGE
@click.option("--count", type=click.IntRange(1), default=2000, show_default=True, help="Problems of each op.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Which ones are drawn.")
@click.option("--shard", "part", default="1/1", show_default=True, help="I/N: the I-th of N equal parts of the work.")
@click.option("--state", type=arguments.FILE, help="Remember here what is judged; continue after it.")
@click.option("--device", type=click.Choice(["cuda", "host"]), help="By default the GPU, if there is one.")
@click.option("--repeats", type=click.IntRange(1), help="Runs with the same bits; by default 100, on the host 2.")
@click.option("--limit", type=click.IntRange(1), default=1 << 20, show_default=True, help="Elements of a problem.")
@click.option("--jobs", type=click.IntRange(1), help="How many at a time; by default one a core.")
@click.option("--only", type=click.IntRange(0), metavar="INDEX", help="Judge this one problem and say what it is.")
@arguments.REPRO
@arguments.JSON
@click.option("--report", is_flag=True, help="Judge nothing: the arguments are state files, make a page of them.")
@click.option("--out", type=arguments.FILE, help="Where the page goes; by default stdout.")
def compare(ops: tuple[str, ...], report: bool, out: Path | None, **given: Any) -> None:
    """Judge plans on random problems by what torch computes in float64; exit 1 when any is outside its bound."""
    from .prove.compare import compare, write_report

    if report:
        write_report([Path(name) for name in ops], out)
    else:
        arguments.end(compare(ops=ops, **given))


@main.command()
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option("--count", type=click.IntRange(1), default=2000, show_default=True, help="Specs, or cases of a TARGET.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Which ones are drawn.")
@click.option("--state", type=arguments.FILE, help="Remember here what is judged; continue after it.")
@click.option("--jobs", type=click.IntRange(1), help="How many at a time; by default one a core.")
@click.option("--only", type=click.IntRange(0), metavar="INDEX", help="Judge this one case and say what it is.")
@arguments.JSON
@click.option("--faults", is_flag=True, help="Instead, damage caches in each way there is; drawn faults --count times.")
@click.option("--report", is_flag=True, help="Judge nothing: the arguments are state files, make a page of them.")
@click.option("--out", type=arguments.FILE, help="Where the page goes; by default stdout.")
def fuzz(targets: tuple[str, ...], faults: bool, report: bool, out: Path | None, **given: Any) -> None:
    """Try hostile specs, programs, tables, files, cache entries and calls; exit 1 when any does what it may not.

    A TARGET is one of read, generate, list, select, compile, execute, calls, tables, repro and entries; by default some
    of each.
    """
    from .prove.fuzz import cache_faults, fuzz, write_report

    if report:
        write_report([Path(name) for name in targets], out)
    elif faults:
        arguments.end(cache_faults(given["count"], given["seed"], given["state"], given["as_json"]))
    else:
        arguments.end(fuzz(targets=targets, **given))


@main.command()
@click.argument("file", type=arguments.FILE)
@arguments.ANY_SPECS
@arguments.PACKAGE
@click.option("--device", type=click.Choice(["cuda", "host", "check"]), help="By default as it failed, if it is there.")
@arguments.JSON
def repro(**given: Any) -> None:
    """Try a failing case again that `--repro` of `test` or `compare` has kept; exit 1 while it fails."""
    from .prove.repro import repro

    arguments.end(repro(**given))


@main.command()
@arguments.OPS
@arguments.ANY_SPECS
@arguments.PACKAGE
@click.option("--peers", metavar="NAMES", help="Only these, with commas; by default all that can be imported.")
@click.option("--case", metavar="TEXT", help="Only cases with this in their name.")
@click.option("--sweep", is_flag=True, help="RMSNorm by the length of its rows, or another op on rows.")
@click.option("--state", type=arguments.FILE, help="Remember here what is measured; continue after it.")
@arguments.JSON
@click.option("--csv", type=arguments.FILE, help="Write a line for each contestant and case.")
@click.option("--plot", type=arguments.FILE, help="Draw a roofline, or the sweep: an .svg or .png.")
@click.option("--host", is_flag=True, help="What a launch costs the host, by route.")
@click.option("--compile", "compiling", is_flag=True, help="What compilation takes, cold and warm.")
@click.option("--report", is_flag=True, help="Measure nothing: the arguments are state files, make a page of them.")
@click.option("--out", type=arguments.FILE, help="Where the page goes; by default stdout.")
def bench(
    ops: tuple[str, ...], host: bool, compiling: bool, report: bool, out: Path | None, **given: Any
) -> None:
    """Time plans and their peers on a GPU, in turns and with a cold cache; exit 1 when a plan could not be timed."""
    from .measure.bench import bench, show_apart, write_report

    if report:
        write_report([Path(name) for name in ops], out, given["csv"], given["plot"], given["sweep"])
    elif host or compiling:
        show_apart(host=host, compiling=compiling, as_json=given["as_json"])
    else:
        arguments.end(bench(ops=ops, **given))


@main.command()
@arguments.OPS
@arguments.SPECS
@arguments.PACKAGE
@click.option("--case", metavar="TEXT", help="Only cases with this in their name.")
@click.option("--dtypes", metavar="NAMES", help="These element types, with commas; by default the cases' own.")
@click.option("--sweep", is_flag=True, help="By the length of rows, of ops on rows.")
@click.option("--margin", type=click.FloatRange(0), default=0.03, show_default=True, help="The least gain that counts.")
@click.option("--state", type=arguments.FILE, help="Remember here what is measured; continue after it.")
@click.option("--dry-run", is_flag=True, help="Measure and show, but leave the tables as they are.")
@arguments.JSON
def tune(**given: Any) -> None:
    """Time the kernels that may serve each case on this GPU and keep what beats the rule of selection, as data beside
    the specs; exit 1 when a plan could not be timed."""
    from .measure.tune import tune

    arguments.end(tune(**given))


@main.command()
@arguments.ANY_SPECS
@click.option("--out", type=arguments.FOLDER, default=Path("site"), show_default=True, help="Where the pages go.")
@arguments.PACKAGE
@click.option("--root", type=arguments.FOLDER, default=Path(), help="Of README.md and docs; by default this folder.")
@click.option("--resources", is_flag=True, help="Compile what is not in the cache, to say what kernels occupy.")
@arguments.archs("sm_90")
@click.option("--accuracy", type=arguments.FILE, multiple=True, help="State files of `compare`: histograms of errors.")
@click.option("--speed", type=arguments.FILE, multiple=True, help="State files of `bench`: rooflines.")
@click.option("--sweep", "sweeps", type=arguments.FILE, multiple=True, help="State files of `bench --sweep`.")
@click.option("--markdown", type=arguments.FOLDER, help="Keep the Markdown and mkdocs.yml there.")
def site(**given: Any) -> None:
    """Write the catalogue: a page for each op, to read in a browser without a network."""
    from .tools.site import site

    arguments.end(site(**given))
