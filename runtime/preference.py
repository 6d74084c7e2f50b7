"""What a caller asks of a kernel beyond its answer; selection honours it or says why it cannot."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from .errors import InvalidProblem
from .sku import RUNGS, BackendKind, KernelSku


@dataclass(frozen=True, slots=True)
class PlanPreference:
    """`rungs` are fields of PrecisionGuarantee that must hold; `archs` the SKU architectures allowed (None: any)."""

    max_workspace_bytes: int = sys.maxsize
    allow_sm90a: bool = True
    prefer_backend: BackendKind | str | None = None
    rungs: frozenset[str] = frozenset()
    archs: frozenset[str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rungs", frozenset(self.rungs))
        if unknown := self.rungs - set(RUNGS):
            raise InvalidProblem(f"unknown rungs {sorted(unknown)}; known are {', '.join(RUNGS)}")
        if self.archs is not None:
            object.__setattr__(self, "archs", frozenset(self.archs))

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
        return None


DEFAULT = PlanPreference()
