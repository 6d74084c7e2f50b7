"""Options shared by commands, their validation, and exit codes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click

from baracuda.checking.audit.limits import AN_EXAMPLE, TARGETS
from baracuda.checking.executors import PROCESSES, THREADS
from baracuda.runtime import BaracudaError

Function = Callable[..., None]
FOLDER = click.Path(path_type=Path, file_okay=False)
THERE = click.Path(path_type=Path, file_okay=False, exists=True)
FILE = click.Path(path_type=Path, dir_okay=False)
SETTINGS = {"max_content_width": 110, "help_option_names": ["-h", "--help"]}


class Command(click.Command):
    """Shows the first clause of its help in listings, without truncation."""

    def get_short_help_str(self, limit: int = 0) -> str:
        return super().get_short_help_str(limit=1000).partition(";")[0].rstrip(".")


class Commands(click.Group):
    """Prints a BaracudaError or OSError as one line; any other exception is a defect and shows a traceback."""

    command_class = Command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BaracudaError as error:
            click.echo(str(error), err=True)
        except BrokenPipeError:  # click exits without a word
            raise
        except OSError as error:
            if error.strerror is None:
                raise
            click.echo(error.strerror if error.filename is None else f"{error.filename}: {error.strerror}", err=True)
        ctx.exit(1)


class Skeletons(click.Choice):  # type: ignore[type-arg] # of click 8.1 it takes none
    """A family that has a skeleton of a spec; which these are is only looked up when it is asked."""

    def __init__(self) -> None:
        self.case_sensitive = True

    @property
    def choices(self) -> tuple[str, ...]:  # type: ignore[override] # click only reads it
        from baracuda.codegen.spec.family import families

        return tuple(name for name, family in families().items() if family.skeleton)


class Forwarding(Command):
    """Puts the arguments after `--` into `ctx.obj`, for another program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        separator = args.index("--") if "--" in args else len(args)
        ctx.obj = args[separator + 1 :]
        return super().parse_args(ctx, args[:separator])


def read_archs(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    archs = read_names(_ctx, _param, value)
    for arch in archs:
        if arch not in TARGETS:
            raise click.BadParameter(f"{arch!r} is not an architecture; known: {', '.join(TARGETS)}; {AN_EXAMPLE}")
    return archs


def read_names(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Those of a repeatable option whose values may be several, parted by commas."""
    return tuple(name for names in value for name in names.split(","))


def read_specs(_ctx: click.Context, _param: click.Parameter, value: Path | None) -> Path:
    from baracuda.codegen.project import specs_folder

    return specs_folder(value)


def complete(function: str) -> Callable[[click.Context, click.Parameter, str], Any]:
    """Complete with a function of `completion`, imported on demand."""

    def completer(ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
        from . import completion

        return getattr(completion, function)(ctx, param, incomplete)

    return completer


if any(name.endswith("GEN_COMPLETE") for name in os.environ):  # patches what click sends to bash
    from . import completion  # noqa: F401

OPS = click.argument("ops", nargs=-1, metavar="[OP]...", shell_complete=complete("ops"))
PLAN = click.argument("plan", shell_complete=complete("plans"))
FIELDS = click.argument("fields", nargs=-1, metavar="FIELD=VALUE...", shell_complete=complete("fields"))
ANY_SPECS = click.option(
    "--specs", type=FOLDER, callback=read_specs, help="Default: ./specs, else the installed ones."
)
SPECS = click.option("--specs", type=FOLDER, default=Path("specs"), show_default=True)
OUT = click.option("--out", type=FOLDER, default=Path("generated"), show_default=True)
TEMPLATES = click.option("--templates", type=THERE, multiple=True, help="Overrides built-in templates; repeatable.")
LAYOUTS = click.option(
    "--layouts",
    metavar="NAMES",
    callback=lambda _ctx, _param, value: tuple(value.split(",")) if value else (),
    shell_complete=complete("layouts"),
    help="Comma-separated layouts; default: all of an op.",
)
PACKAGE = click.option("--package", default="baracuda.generated", show_default=True, help="Package of generated plans.")
REPRO = click.option("--repro", type=FOLDER, metavar="DIR", help="Save failures here, for `baracuda-gen repro`.")
EXECUTOR = click.option(
    "--executor", metavar="WHERE", default=THREADS, show_default=True, help="threads, processes or dask://HOST:PORT."
)
WORKERS = click.option(
    "--executor", metavar="WHERE", default=PROCESSES, show_default=True, help="processes or dask://HOST:PORT."
)
JOBS = click.option("--jobs", type=click.IntRange(1), help="Parallel jobs; default: one per core.")
SPEEDUP = click.option(
    "--speedup", is_flag=True, help="Only show how much faster that is than one job or GPU; twice, with empty caches."
)
GPUS = click.option("--gpus", metavar="NUMBERS", help='A process for each: "all", or numbers such as 0,2.')
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def PROJECT(command: Function) -> Function:
    """The options for a project's folders."""
    return SPECS(OUT(TEMPLATES(command)))


def archs(*default: str) -> Callable[[Function], Function]:
    """The option `--arch`, of one or several."""
    text = f"Repeatable, or comma-separated; default: {', '.join(default)}."
    options: dict[str, Any] = {"callback": read_archs, "shell_complete": complete("archs")}
    return click.option("--arch", "archs", multiple=True, default=default, help=text, **options)


def device(example: str, default: str) -> Callable[[Function], Function]:
    """The option `--device`: a GPU, an architecture or the host device."""
    text = f"{example}, ...; default: {default}."
    return click.option("--device", help=text, shell_complete=complete("devices"))


def end(succeeded: bool) -> NoReturn:
    """End the process: 0 for success, else 1."""
    raise SystemExit(0 if succeeded else 1)
