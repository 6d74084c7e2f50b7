"""What is compiled: a kernel of the table in one memory layout for one architecture."""

from __future__ import annotations

from dataclasses import dataclass

from baracuda.runtime import KernelSource, Registered


@dataclass(frozen=True, slots=True)
class Variant:
    """A kernel in one memory layout for one architecture."""

    row: Registered
    layout: str
    arch: str
    source: KernelSource
