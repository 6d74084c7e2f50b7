"""The command line, `baracuda-gen`: each command imports its function when called and passes on its options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from . import arguments

_MUTATED = "kernel", "plan", "spec", "runtime"


@click.group(cls=arguments.Commands, context_settings=arguments.SETTINGS)
@click.version_option(package_name="baracuda-gen", prog_name="baracuda-gen")
def main() -> None:
    """Generate CUDA kernels, Python plans, tests and documentation from one YAML spec per op."""


@main.command()
@arguments.PROJECT
@click.option("--check", is_flag=True, help="Write nothing; list what would change and exit 1 if anything would.")
@arguments.JSON
def generate(**options: Any) -> None:
    """Write kernels and plans for every spec; remove those of deleted specs."""
    from .make.generate import generate

    arguments.end(generate(**options))


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
    from .kernels.check import check

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
    from .kernels.compile import compile

    arguments.end(compile(**options))


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
    from .packs.pack import pack

    arguments.end(pack(**options))


@main.command(cls=arguments.Forwarding)
@click.option("--out", type=arguments.FILE, default=Path("problems.txt"), show_default=True, help="Replaced.")
@click.pass_obj
def record(program: list[str], /, **options: Any) -> None:
    """Run the program after `--` and write the problems that its plans are given, for `pack --problems`."""
    from .packs.record import record

    raise SystemExit(record(program, **options))


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
    from .kernels.catalog import show_list

    show_list(**options)


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
    from .kernels.diff import diff

    arguments.end(diff(**options))


@main.command()
@click.argument("name", metavar="SKU|OP", shell_complete=arguments.complete("ops"))
@arguments.ANY_SPECS
@arguments.PACKAGE
@click.option("--source", is_flag=True, help="Also print the CUDA source.")
@arguments.JSON
def show(**options: Any) -> None:
    """Show a kernel's source location, memory traffic and resources."""
    from .kernels.catalog import show

    show(**options)


@main.command()
@arguments.PLAN
@arguments.FIELDS
@arguments.device("sm_80, host, cuda:0", "any")
@arguments.PACKAGE
@arguments.JSON
def explain(**options: Any) -> None:
    """Show which kernel PLAN selects for a problem, and why not the others; exit 1 if none serves it."""
    from .kernels.explain import explain

    arguments.end(explain(**options))


@main.command("why-miss")
@arguments.PLAN
@arguments.FIELDS
@arguments.device("sm_80, cuda:0", "the first GPU")
@arguments.PACKAGE
@arguments.JSON
def why_miss(**options: Any) -> None:
    """Show which of a problem's kernels are cached, and why the others are not; exit 1 on a miss."""
    from .kernels.why_miss import why_miss

    arguments.end(why_miss(**options))


@main.command()
@click.option("--out", type=arguments.FILE, help="Default: stdout.")
def schema(**options: Any) -> None:
    """Print the JSON Schema of specs, for editors."""
    from .make.schema import schema

    schema(**options)


@main.command()
@arguments.SPECS
@click.option("--from", "version", type=click.IntRange(1), help="Their language; default: what schema.json there says.")
@click.option("--check", is_flag=True, help="Write nothing; list what would change and exit 1 if anything would.")
def migrate(**options: Any) -> None:
    """Rewrite specs of an earlier version of the language."""
    from .make.migrate import migrate

    arguments.end(migrate(**options))


@main.command()
@arguments.JSON
def doctor(**options: Any) -> None:
    """Report what this machine can do; exit 1 if something required is missing."""
    from .tools.doctor import doctor

    arguments.end(doctor(**options))


@main.command()
@click.argument("what", type=click.Choice(["show", "verify", "prune"]), default="show")
@click.option("--remove", is_flag=True, help="With verify: delete damaged entries.")
@click.option("--size", "megabytes", type=click.FloatRange(0), help="With prune: MB to keep per kind; default: 1074.")
@click.option("--days", type=click.FloatRange(0), help="With prune: days since the last use; default: 90.")
@arguments.JSON
def cache(**options: Any) -> None:
    """Show, verify or prune the cache; exit 1 if verify finds damage."""
    from .tools.cache import cache

    arguments.end(cache(**options))


@main.command()
@click.argument("op")
@click.option("--family", type=arguments.Skeletons(), default="row", show_default=True)
@click.option("--gradient", is_flag=True, help="With a gradient op, derived from the program.")
@click.option("--category", default="custom", show_default=True)
@arguments.SPECS
def new(**options: Any) -> None:
    """Write a commented spec to start a new op from; it generates as it is."""
    from .make.new import new

    click.echo(new(**options))


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
@arguments.OPS
@arguments.ANY_SPECS
@arguments.PACKAGE
@click.option("--device", type=click.Choice(["host", "cuda"]), default="host", show_default=True)
@click.option("--update", is_flag=True, help="Record what is new; other bits need a higher `numerics` in the spec.")
@arguments.JSON
def golden(**options: Any) -> None:
    """Compare what kernels compute with recorded hashes, bit by bit; exit 1 if an op changed without a new revision."""
    from .prove.golden import golden

    arguments.end(golden(**options))


@main.command()
@arguments.OPS
@arguments.ANY_SPECS
@arguments.PACKAGE
@arguments.JOBS
@click.option("--at-least", type=click.FloatRange(0, 100), default=95.0, show_default=True, help="Percent to take.")
@arguments.JSON
def coverage(**options: Any) -> None:
    """Show which branches of kernels and device headers the spec-driven tests do not take; needs g++."""
    from .prove.coverage import coverage

    arguments.end(coverage(**options))


@main.command()
@click.option("--rows", type=click.IntRange(1), default=4096, show_default=True)
@click.option("--cols", type=click.IntRange(1), default=4096, show_default=True)
@click.option("--compile/--no-compile", "compile_first", default=True, help="Compile for all architectures first.")
def demo(**options: Any) -> None:
    """Generate, compile, run and check RMSNorm, on a GPU or the CPU."""
    from .demo.demo import demo

    arguments.end(demo(**options))


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
    from .prove.sanitize import sanitize

    arguments.end(sanitize(**options))


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
        from .prove.mutate import mutate

        arguments.end(mutate(**options))
    from .prove.mutate_table import mutate_table

    shared = {name: options[name] for name in ("ops", "state", "executor", "jobs", "at_least", "as_json")}
    arguments.end(mutate_table(table, strata=strata, only=only, out=out, **shared))


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
@click.option("--only", type=click.IntRange(0), metavar="INDEX", help="Judge only this problem and describe it.")
@arguments.REPRO
@arguments.JSON
@click.option("--report", is_flag=True, help="Do not run: the arguments are state files; write a report.")
@click.option("--out", type=arguments.FILE, help="Output file of --report; default: stdout.")
def compare(ops: tuple[str, ...], report: bool, out: Path | None, **options: Any) -> None:
    """Compare plans with torch in float64 on random problems; exit 1 if any error exceeds its bound."""
    from .prove.compare import compare, write_report

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
    from .prove.fuzz import cache_faults, fuzz, write_report

    if report:
        write_report([Path(name) for name in targets], out)
    elif faults:
        arguments.end(cache_faults(options["count"], options["seed"], options["state"], options["as_json"]))
    else:
        arguments.end(fuzz(targets=targets, **options))


@main.command()
@click.argument("file", type=arguments.FILE)
@arguments.ANY_SPECS
@arguments.PACKAGE
@click.option("--device", type=click.Choice(["cuda", "host", "check"]), help="Default: where it failed, if available.")
@arguments.JSON
def repro(**options: Any) -> None:
    """Rerun a failure saved by `--repro` of `test` or `compare`; exit 1 while it fails."""
    from .prove.repro import repro

    arguments.end(repro(**options))


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
@click.option("--compile", "compiling", is_flag=True, help="Measure compilation, cold and warm.")
@click.option("--report", is_flag=True, help="Do not measure: the arguments are state files; write a report.")
@click.option("--out", type=arguments.FILE, help="Output file of --report; default: stdout.")
def bench(ops: tuple[str, ...], host: bool, compiling: bool, report: bool, out: Path | None, **options: Any) -> None:
    """Time plans and other libraries on a GPU, interleaved, with a cold L2; exit 1 if a plan could not be timed."""
    from .measure.bench import bench, show_apart, write_report

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
@click.option("--state", type=arguments.FILE, help="Record measurements here and resume from them.")
@click.option("--dry-run", is_flag=True, help="Measure and show, but save nothing.")
@arguments.JSON
def tune(**options: Any) -> None:
    """Time all kernels that serve a case on this GPU and save those that beat the default selection, next to the
    specs; exit 1 if a plan could not be timed."""
    from .measure.tune import tune

    arguments.end(tune(**options))


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
    from .tools.site import site

    arguments.end(site(**options))
