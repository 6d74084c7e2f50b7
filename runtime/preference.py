"""What a caller asks of a kernel beyond its answer; selection honours it or says why it cannot."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from dataclasses import dataclass

from .errors import InvalidProblem
from .sku import RUNGS, BackendKind, KernelSku

_ARCH = re.compile(r"sm_\d+a?")


def names_in(what: str, given: Collection[str]) -> frozenset[str]:
    """The names as a set; a string would be taken for the names of its letters."""
    several = isinstance(given, Collection) and not isinstance(given, str | bytes)
    if not several or not all(isinstance(name, str) for name in given):
        raise InvalidProblem(f"{what} must be a collection of names, got {given!r}")
    return frozenset(given)


@dataclass(frozen=True, slots=True)
class PlanPreference:
    """`rungs` are fields of PrecisionGuarantee that must hold; `archs` the SKU architectures allowed (None: any).

    Of several kernels, `schedules` allows those whose schedules or tiles print so (None: any). Either of these, or
    `tuned=False`, leaves measured tables aside.
    """

    max_workspace_bytes: int = sys.maxsize
    allow_sm90a: bool = True
    prefer_backend: BackendKind | str | None = None
    rungs: frozenset[str] = frozenset()
    archs: frozenset[str] | None = None
    schedules: frozenset[str] | None = None
    tuned: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "rungs", names_in("rungs", self.rungs))
        if unknown := self.rungs - set(RUNGS):
            raise InvalidProblem(f"unknown rungs {sorted(unknown)}; known are {', '.join(RUNGS)}")
        if self.archs is not None:
            object.__setattr__(self, "archs", names_in("archs", self.archs))
            if strange := sorted(arch for arch in self.archs if not _ARCH.fullmatch(arch)):
                raise InvalidProblem(f"unknown archs {strange}; an arch is written as sm_80 or sm_90a")
            if not self.archs:
                raise InvalidProblem("archs names none, and so allows no kernel; pass None for any")
        if self.schedules is not None:
            object.__setattr__(self, "schedules", names_in("schedules", self.schedules))

    @property
    def pins(self) -> bool:
        """Whether it says which kernels to choose from, so that measured tables have no say."""
        return self.archs is not None or self.schedules is not None or not self.tuned

    def refuses(self, sku: KernelSku, workspace_bytes: int) -> str | None:
        """Why this preference rules `sku` out, or None."""
        if workspace_bytes > self.max_workspace_bytes:
            return f"needs a workspace of {workspace_bytes} bytes, max_workspace_bytes is {self.max_workspace_bytes}"
        if missing := self.rungs - sku.precision_guarantee.rungs:
            return f"does not promise {', '.join(sorted(missing))}"
        if self.prefer_backend is not None and self.prefer_backend != sku.backend:
            return f"is a {sku.backend} kernel, prefer_backend is {str(self.prefer_backend)!r}"
        if not self.allow_sm90a and sku.arch == "sm_90a":
            return "is for sm_90a, allow_sm90a is False"
        if self.archs is not None and sku.arch not in self.archs:
            return f"is for {sku.arch}, archs allows {', '.join(sorted(self.archs))}"
        if self.schedules is not None and str(sku.schedule) not in self.schedules:
            return f"has schedule {sku.schedule}, schedules allows {', '.join(sorted(self.schedules)) or 'none'}"
        return None


DEFAULT = PlanPreference()
