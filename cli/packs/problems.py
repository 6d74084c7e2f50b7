"""Problems as lines of text, such as a recorded run has written: which kernels they need on an architecture."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from baracuda.codegen.spec.wording import did_you_mean
from baracuda.runtime import (
    InvalidProblem,
    Kernel,
    KernelSku,
    KernelSource,
    PlanPreference,
    Unsupported,
    as_bool,
    as_int,
)
from baracuda.runtime.devices.architecture import Architecture
from baracuda.runtime.plans.plan import Plan

from ..kernels.explain import READ, WANTED, descriptor_of, plan_called
from .wanted import Wanted

_SELECT, _DTYPES = "select.", "dtypes."
_READ_AS = {"int": as_int, "bool": as_bool}  # the types of a preference that are not text


@dataclass(frozen=True)
class Problem:
    """A plan class and what it is selected and prepared with."""

    line: str
    plan: type[Plan[Any]]
    descriptor: Any
    select: Mapping[str, Any]
    dtypes: Mapping[str, str]

    @classmethod
    def read(cls, line: str, package: str) -> Problem:
        """The problem of a line; plans without a prefix are of `package`. Raises InvalidProblem or Unsupported."""
        try:
            name, *words = shlex.split(line) or [""]
        except ValueError as error:  # a quotation without an end
            raise InvalidProblem(f"{line!r} is no problem ({error}); write PLAN FIELD=VALUE...") from None
        prefix, _, plan = name.rpartition(".")
        kind = plan_called(plan, prefix or package)
        fields = [word for word in words if not word.startswith((_SELECT, _DTYPES))]
        dtypes = dict(_pair(word.removeprefix(_DTYPES)) for word in words if word.startswith(_DTYPES))
        given = dict(_pair(word.removeprefix(_SELECT)) for word in words if word.startswith(_SELECT))
        return cls(line, kind, descriptor_of(kind, fields), _selected(given), dtypes)

    def wanted(self, arch: str) -> list[Wanted]:
        """The kernels that a GPU of `arch` may need for it. Raises Unsupported if there is none."""
        device = _Collecting(arch, arch)
        self.plan.select(self.descriptor, device=device, **self.select).prepare(device, dtypes=self.dtypes)
        rows = [row.sku for row in self.plan.kernels()]
        return [Wanted(_sku_of(source, rows), source, source.arch or arch) for source in device.sources]


@dataclass
class _Collecting(Architecture):
    """Loads nothing, and remembers what it was to load."""

    sources: dict[KernelSource, None] = field(default_factory=dict)

    def load(self, source: KernelSource) -> Kernel:  # type: ignore[override] # others raise
        self.sources[source] = None
        return None  # type: ignore[return-value] # nothing is launched


def read_problems(lines: Iterable[str], file: Path | None, package: str) -> list[Problem]:
    """The problems of some lines and of a file; empty lines and those that begin with # are left out."""
    found = [Problem.read(line, package) for line in lines]
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines() if file else (), 1):
        if line.strip() and not line.startswith("#"):
            try:
                found.append(Problem.read(line, package))
            except (InvalidProblem, Unsupported) as error:
                raise InvalidProblem(f"{file}:{number}: {error}") from None
    return found


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals:
        raise InvalidProblem(f"{word!r} gives no value; write name=value")
    return name, value


def _selected(given: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of `select`: the preference and the layouts."""
    values: dict[str, Any] = {}
    for name, text in given.items():
        if name == "layouts":
            continue
        if name not in PlanPreference.__dataclass_fields__:
            raise InvalidProblem(f"no {_SELECT}{name}; {did_you_mean(name, PlanPreference.__dataclass_fields__)}")
        values[name] = _preferred(name, text)
    layouts = {"layouts": given["layouts"].split(",")} if "layouts" in given else {}
    return {**({"preference": PlanPreference(**values)} if values else {}), **layouts}


def _preferred(name: str, text: str) -> Any:
    kind = str(PlanPreference.__annotations__[name]).removesuffix(" | None")
    if kind in _READ_AS:
        try:
            return READ[_READ_AS[kind]](text)
        except (ValueError, KeyError):
            raise InvalidProblem(f"{_SELECT}{name} must be {WANTED[_READ_AS[kind]]}, got {text!r}") from None
    return text.split(",") if "frozenset" in kind else text


def _sku_of(source: KernelSource, skus: Iterable[KernelSku]) -> KernelSku:
    """The kernel whose symbol a source's begins with, the longest such."""
    named = (sku for sku in skus if f"{source.symbol}_".startswith(f"{sku.symbol}_"))
    return max(named, key=lambda sku: len(sku.symbol))
