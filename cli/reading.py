"""Slow first steps of commands, with a word on stderr meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from baracuda.codegen.project import PACKAGE, Project

from .terminal import working

if TYPE_CHECKING:
    from baracuda.checking.listing.variant import Variant


def read_project(specs: Path, templates: Iterable[Path] = ()) -> Project:
    """Check, lower and render all of `specs`."""
    with working("reading specs"):
        return Project.read(specs, templates)


def list_kernels(
    project: Project,
    names: Iterable[str] = (),
    *,
    archs: Sequence[str] | None = None,
    layouts: Sequence[str] = (),
    package: str = PACKAGE,
) -> list[Variant]:
    """Every kernel of the named ops in every layout, or in these, for every architecture that it runs on."""
    from baracuda.checking.listing.variants import ARCHS, variants_of

    with working("listing kernels"):
        return variants_of(project, names, archs=ARCHS if archs is None else archs, layouts=layouts, package=package)
