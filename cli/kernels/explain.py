"""`explain`: which kernel a plan selects for a problem, and why not the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import MISSING
from dataclasses import fields as fields_of
from typing import Any

import click

from baracuda.checking.audit.limits import AN_EXAMPLE, DEVICES
from baracuda.codegen.project import PACKAGE, plan_names, plans_of
from baracuda.codegen.spec.wording import did_you_mean
from baracuda.runtime import (
    Device,
    InvalidProblem,
    KernelSku,
    Unsupported,
    as_bool,
    as_float,
    as_int,
    as_shape,
    get_device,
)
from baracuda.runtime.devices.architecture import Architecture
from baracuda.runtime.plans.plan import Plan
from baracuda.runtime.plans.selection import Explanation, Verdict

from ..terminal import Row, show_json, show_table

_WORDS = {"true": True, "false": False, "1": True, "0": False}
READ: dict[Any, Callable[[str], Any]] = {
    as_shape: lambda text: tuple(int(n) for n in text.strip("()[]").split(",") if n.strip()),
    as_int: lambda text: int(text, 0),
    as_float: float,
    as_bool: lambda text: _WORDS[text.lower()],
}
WANTED: dict[Any, str] = {as_shape: "extents as 64,64", as_int: "an int", as_float: "a float", as_bool: "true or false"}


def explain(
    plan: str, fields: Iterable[str], device: str | None = None, package: str = PACKAGE, as_json: bool = False
) -> bool:
    """Print how the plan named `plan` selects for fields given as "name=value"; true if a kernel serves it.

    `device` is "host", "cuda:0" or an architecture such as "sm_80"; None is any, as in `select`.
    """
    kind, target = plan_called(plan, package), device_called(device) if device else None
    explanation = kind.explain(descriptor_of(kind, fields), device=target)
    show_json(_facts(explanation, target)) if as_json else show(explanation, target)
    return explanation.chosen is not None


def show(explanation: Explanation, device: Device | None = None) -> None:
    """Print the selected kernel, whether it is portable, and one row per candidate in order of preference."""
    click.echo(explanation.descriptor)
    if chosen := explanation.chosen:
        click.echo(f"{chosen}: {explanation.decided}\n{portability(chosen, device)}\n")
    else:
        click.echo("no kernel takes it\n")
    show_table([_row(verdict, chosen) for verdict in explanation.verdicts])


def is_portable(sku: KernelSku, device: Device | None) -> bool:
    """Whether the kernel was made for another architecture than the device's: sm_80 on sm_90, but not sm_90a."""
    return device is None or device.arch != sku.arch.removesuffix("a")


def portability(sku: KernelSku, device: Device | None) -> str:
    """One line: which architecture the kernel was made for, and where else it runs."""
    if not is_portable(sku, device):
        return f"made for {sku.arch}, which is the device's"
    coverage = f"compiled for {device.arch}" if device else "runs there and on later architectures"
    return f"portable: made for {sku.arch}, {coverage}"


def _row(verdict: Verdict, chosen: KernelSku | None) -> Row:
    sku = verdict.sku
    assert sku is not None
    outcome = "chosen" if sku == chosen else "accepted" if verdict else verdict.reason
    named = f"{sku.schedule} {sku.layout}" if sku.layout else str(sku.schedule)
    return {"": "->" if sku == chosen else "", "kernel": named, "arch": sku.arch, "verdict": outcome}


def _facts(explanation: Explanation, device: Device | None) -> Row:
    verdicts = [{"sku": str(v.sku), "accepted": v.accepted, "reason": v.reason} for v in explanation.verdicts]
    chosen = explanation.chosen
    return {
        "descriptor": str(explanation.descriptor),
        "chosen": chosen and str(chosen),
        "portable": chosen and is_portable(chosen, device),
        "decided": explanation.decided,
        "candidates": verdicts,
    }


def device_called(name: str) -> Device:
    if name == "host" or name.startswith("cuda:"):
        return get_device(name)
    if name not in DEVICES:
        raise Unsupported(f"no device {name!r}; known are host, cuda:N and {', '.join(DEVICES)}; {AN_EXAMPLE}")
    return Architecture(name, name)


def plan_called(name: str, package: str) -> type[Plan[Any]]:
    plans = plan_names(package)
    if name not in plans:
        raise Unsupported(f"no plan {name!r} in {package!r}; {did_you_mean(name, plans)}")
    return getattr(plans_of(package), name)  # type: ignore[no-any-return]


def descriptor_of(plan: type[Plan[Any]], assignments: Iterable[str]) -> Any:
    name, kind = plan.__name__, plan.DESCRIPTOR
    fields = {field.name: field for field in fields_of(kind)}
    values: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise InvalidProblem(f"{name}: {assignment!r} gives no value; write field=value")
        if key not in fields:
            raise InvalidProblem(f"{name}: no field {key!r}; {did_you_mean(key, fields)}")
        values[key] = _value(name, key, text, kind._types.get(key))
    if missing := [n for n, f in fields.items() if n not in values and f.default is MISSING]:
        raise InvalidProblem(f"{name}: needs {', '.join(missing)}; write {missing[0]}=value")
    return kind(**values)


def _value(plan: str, key: str, text: str, convert: Any) -> Any:
    try:
        return READ.get(convert, str)(text)
    except (ValueError, KeyError):
        raise InvalidProblem(f"{plan}: {key!r} must be {WANTED[convert]}, got {text!r}") from None
