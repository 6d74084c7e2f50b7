"""Shell completion: ops, plans, descriptor fields and their values, architectures, devices, layouts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from click import Context, Parameter
from click.shell_completion import BashComplete, CompletionItem, add_completion_class

import baracuda.runtime as rt
from baracuda.checking.audit.limits import DEVICES, TARGETS
from baracuda.codegen.project import PACKAGE, named, plan_names, specs_folder
from baracuda.runtime import BaracudaError, ElementKind, as_bool

from .kernels.explain import WANTED, plan_called

_BOOLS = ("true", "false")


@add_completion_class
class Bash(BashComplete):
    """Adds no space after `FIELD=`, and rejoins `--option = value`, which bash splits."""

    source_template = BashComplete.source_template.replace(
        "COMPREPLY+=($value)", "COMPREPLY+=($value)\n            [[ $value == *= ]] && compopt -o nospace"
    )

    def get_completion_args(self) -> tuple[list[str], str]:
        words, incomplete = super().get_completion_args()
        read = [word for before, word in pairwise(["", *words]) if word != "=" or not before.startswith("--")]
        return read, incomplete


def ops(ctx: Context, _param: Parameter, incomplete: str) -> list[str]:
    """Ops that have a spec."""
    folder = specs_folder(ctx.params.get("specs")).expanduser()  # which the shell does later
    return _starting(incomplete, named(folder))


def plans(ctx: Context, _param: Parameter, incomplete: str) -> list[str]:
    """Plans of the package."""
    try:
        return _starting(incomplete, plan_names(ctx.params.get("package") or PACKAGE))
    except BaracudaError:
        return []


def fields(ctx: Context, _param: Parameter, incomplete: str) -> list[CompletionItem]:
    """`FIELD=` for the fields not given yet, or the values of one; bash splits FIELD, = and value."""
    entered = list(ctx.params.get("fields") or ())
    try:
        plan = plan_called(ctx.params["plan"], ctx.params.get("package") or PACKAGE)
    except (BaracudaError, KeyError):
        return []
    kind: Any = plan.DESCRIPTOR
    names = [field.name for field in dataclasses.fields(kind)]
    values: dict[str, Iterable[str]] = {name: _BOOLS for name in names if kind._types.get(name) is as_bool}
    values["element"] = dict.fromkeys(row.sku.element.value for row in plan.kernels())
    name, equals, value = incomplete.partition("=")
    if equals:
        return [CompletionItem(f"{name}={choice}") for choice in _starting(value, values.get(name, ()))]
    opened = entered[-2:-1] if entered[-1:] == ["="] else [name for name in entered[-1:] if name in names]
    if opened:
        return [CompletionItem(choice) for choice in _starting(incomplete, values.get(opened[0], ()))]
    missing = [name for name in names if name not in {text.partition("=")[0] for text in entered}]
    hints = {name: WANTED.get(kind._types.get(name)) for name in missing}
    return [CompletionItem(f"{name}=", help=hints[name]) for name in _starting(incomplete, missing)]


def archs(_ctx: Context, _param: Parameter, incomplete: str) -> list[str]:
    return _starting(incomplete, TARGETS)


def devices(_ctx: Context, _param: Parameter, incomplete: str) -> list[str]:
    return _starting(incomplete, ("host", "cuda:0", *DEVICES))


def elements(_ctx: Context, _param: Parameter, incomplete: str) -> list[str]:
    return _starting(incomplete, tuple(ElementKind))


def layouts(_ctx: Context, _param: Parameter, incomplete: str) -> list[str]:
    """The next item of a comma-separated list."""
    before, comma, last = incomplete.rpartition(",")
    plans = (kind for kind in vars(rt).values() if isinstance(kind, type) and issubclass(kind, rt.Plan))
    names = sorted({name for plan in plans for name in vars(plan).get("LAYOUTS", ())})
    return [f"{before}{comma}{name}" for name in _starting(last, names) if name not in before.split(",")]


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return [str(name) for name in names if name.startswith(incomplete)]
