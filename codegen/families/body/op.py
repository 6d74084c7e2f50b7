"""The model of the body family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from baracuda.runtime import BodyKernel, Box, KernelSku, Schedule
from baracuda.runtime.compile.line_map import Place
from baracuda.runtime.plans.formula import written_out

from ...lower.op import Op, Scalar
from ...text import Name


@dataclass(frozen=True, slots=True)
class Setting:
    """A constant of the kernel that the descriptor decides: the value of `formula`."""

    name: Name
    boolean: bool  # else a whole number
    formula: str


@dataclass(frozen=True, slots=True)
class Scratch:
    """An array of the workspace."""

    name: Name
    dtype: str
    size: str  # the formula of how many elements


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table of schedules."""

    arch: Name
    elements: tuple[Name, ...]
    schedule: Schedule
    layout: str  # the only one it works on, or ""
    math: str  # what factors are rounded to: "acc", "T" or "tf32x3"
    first: bool  # whether it comes before those that are made for the device's own architecture
    fits: str  # the formula of which problems it serves, or ""


@dataclass(frozen=True, slots=True)
class Maps:
    """The tensor maps of an architecture."""

    arch: Name
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class Header:
    """What the kernels of an architecture are in."""

    arch: Name | None  # None: of all others
    path: str
    lines: tuple[tuple[Place, str], ...]  # of a header of the project's own, which becomes part of the source


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyOp(Op):
    """An op with hand-written kernels."""

    headers: tuple[Header, ...]  # by architecture; the last one is portable
    bodies: tuple[str, ...]  # architectures with a header of their own
    scalars: tuple[Scalar, ...]
    settings: tuple[Setting, ...]
    terms: tuple[tuple[Name, str], ...]  # names of what formulas share
    layouts: tuple[tuple[Name, tuple[tuple[Name, int], ...]], ...]
    workspace: tuple[Scratch, ...]
    kernels: tuple[BodyKernel, ...]
    rows: tuple[Row, ...]
    shapes: tuple[tuple[Name, tuple[str, ...]], ...]  # the formulas of those that an argument may have
    maps: tuple[Maps, ...]

    @property
    def layout_names(self) -> tuple[Name, ...]:
        return tuple(name for name, _ in self.layouts)

    @property
    def own_headers(self) -> Mapping[str, Sequence[tuple[Place, str]]]:
        return {header.path: header.lines for header in self.headers if header.lines}

    def serves(self, sku: KernelSku) -> str:
        for row in self.rows:
            same = row.arch == sku.arch and row.schedule == sku.schedule and row.layout == (sku.layout or "")
            if same and str(sku.element) in row.elements and row.fits:
                return written_out(row.fits, dict(self.terms))
        return ""
