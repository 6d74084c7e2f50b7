"""What a caller requires of a kernel; selection honours it or raises with the reason."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from ..errors import InvalidProblem
from ..values import as_bool, as_int, as_names, kind_of, one_line, short_repr, some_of, text_of
from .sku import RUNGS, BackendKind, KernelSku, MathPrecision, parse_schedule

_ARCH = re.compile(r"sm_[0-9]{1,4}a?")


@dataclass(frozen=True, slots=True)
class PlanPreference:
    """`rungs` are fields of PrecisionGuarantee that must hold; `archs` are the allowed SKU architectures (None: any);
    `schedules` are the allowed schedules or tiles as they print (None: any); `numerics` is the only allowed revision of
    the bits that kernels compute (None: any); `math_precision` is the only one allowed (None: any but `tf32`, which
    must be asked for); `waives` are guarantees that a kernel may lack for the sake of its speed.

    `archs`, `schedules` or `tuned=False` disable measured choices.
    """

    max_workspace_bytes: int = sys.maxsize
    allow_sm90a: bool = True
    prefer_backend: BackendKind | str | None = None
    rungs: frozenset[str] = frozenset()
    archs: frozenset[str] | None = None
    schedules: frozenset[str] | None = None
    tuned: bool = True
    numerics: int | None = None
    math_precision: MathPrecision | str | None = None
    waives: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for name, convert in _TYPES.items():
            if (value := getattr(self, name)) is not None or name in _ALWAYS:
                object.__setattr__(self, name, convert(name, value))
        for name in ("rungs", "waives"):
            if unknown := getattr(self, name) - set(RUNGS):
                raise InvalidProblem(f"unknown {name} {short_repr(sorted(unknown))}; known are {', '.join(RUNGS)}")
        if strange := sorted(arch for arch in self.archs or () if not _ARCH.fullmatch(arch)):
            raise InvalidProblem(f"unknown archs {short_repr(strange)}; an arch is written as sm_80 or sm_90a")
        for schedule in sorted(self.schedules or ()):
            parse_schedule(schedule)
        for name in ("archs", "schedules"):
            if getattr(self, name) == frozenset():
                raise InvalidProblem(f"{name} names none, and so allows no kernel; pass None for any")

    @property
    def pins(self) -> bool:
        """Whether it restricts the choice of kernels, which disables measured choices."""
        return self.archs is not None or self.schedules is not None or not self.tuned

    def refuses(self, sku: KernelSku, workspace: Callable[[], int]) -> str | None:
        """Why this preference excludes `sku`, whose bytes of workspace are computed if there is a limit, or None."""
        if missing := self.rungs - sku.precision_guarantee.rungs:
            return f"does not promise {', '.join(sorted(missing))}"
        if self.numerics not in (None, revision := sku.precision_guarantee.numerics):
            return f"computes bits of revision {revision}, numerics allows {self.numerics} only"
        if reason := self._refuses_math(sku):
            return reason
        if kept := sku.asked.get("waives", frozenset()) - self.waives:
            return f"lacks {', '.join(sorted(kept))} for the sake of speed, which waives must allow"
        if not self.allow_sm90a and sku.arch == "sm_90a":
            return "is for sm_90a, allow_sm90a is False"
        if self.archs is not None and sku.arch not in self.archs:
            return f"is for {sku.arch}, archs allows {some_of(self.archs)}"
        if self.schedules is not None and str(sku.schedule) not in self.schedules:
            return f"has schedule {sku.schedule}, schedules allows {some_of(self.schedules)}"
        if self.max_workspace_bytes < sys.maxsize and (needed := workspace()) > self.max_workspace_bytes:
            return f"needs a workspace of {needed} bytes, max_workspace_bytes is {self.max_workspace_bytes}"
        return None

    def _refuses_math(self, sku: KernelSku) -> str | None:
        math, asked = sku.precision_guarantee.math_precision, self.math_precision
        if asked is None and "math_precision" in sku.asked:
            return f"rounds factors to {math}, which math_precision must ask for"
        if asked not in (None, math):
            return f"multiplies factors as {math}, math_precision allows {asked} only"
        return None

    @classmethod
    def validated(cls, value: PlanPreference | None) -> PlanPreference:
        """The preference of a call, by default the empty one; raises InvalidProblem for anything else."""
        if value is None:
            return DEFAULT
        if not issubclass(type(value), cls):
            raise InvalidProblem(f"preference must be a PlanPreference or None, got {short_repr(value)}")
        return value if type(value) is cls else cls._rebuilt(value)

    @classmethod
    def _rebuilt(cls, value: object) -> PlanPreference:
        """A preference with the fields of a derived class's instance, which may not have checked them."""
        try:
            return cls(*[getattr(value, name) for name in cls.__dataclass_fields__])
        except InvalidProblem:
            raise
        except Exception as error:
            raise InvalidProblem(f"preference of type {kind_of(value)} cannot be read ({one_line(error)})") from error


def _one_of(kind: type[StrEnum], none: str, name: str, value: object) -> StrEnum:
    """The member of `kind` that `value` names; `none` says what None stands for."""
    try:
        return kind(text_of(value) or "")
    except ValueError:
        known = f"{', '.join(kind)}, or {none}"
        raise InvalidProblem(f"unknown {name} {short_repr(value)}; known are {known}") from None


def _bytes(name: str, value: object) -> int:
    if (count := as_int(name, value)) < 0:
        raise InvalidProblem(f"{name!r} must be at least 0, got {count}")
    return count


def _numerics(name: str, value: object) -> int:
    if (revision := as_int(name, value)) < 1:
        raise InvalidProblem(f"{name!r} must be at least 1, got {revision}")
    return revision


_TYPES: dict[str, Callable[[str, Any], Any]] = {
    "max_workspace_bytes": _bytes,
    "allow_sm90a": as_bool,
    "prefer_backend": partial(_one_of, BackendKind, "None for any"),
    "rungs": as_names,
    "archs": as_names,
    "schedules": as_names,
    "tuned": as_bool,
    "numerics": _numerics,
    "math_precision": partial(_one_of, MathPrecision, "None"),
    "waives": as_names,
}
_ALWAYS = ("max_workspace_bytes", "allow_sm90a", "rungs", "tuned", "waives")  # the others may be None
DEFAULT = PlanPreference()
