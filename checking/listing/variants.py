"""The variants of a project's kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product

from baracuda.codegen.emit.declared import argument_of
from baracuda.codegen.emit.plan_classes import rows_of
from baracuda.codegen.lower.op import Op
from baracuda.codegen.project import PACKAGE, Project
from baracuda.codegen.spec.family import families
from baracuda.runtime import KernelSource, Registered, Unsupported

from .planned import planned_variants
from .variant import Variant

ARCHS = ("sm_80", "sm_89", "sm_90")


def sources_of(row: Registered, op: Op) -> dict[str, KernelSource]:
    """What `row` compiles from in each layout, with all optional tensors and every tensor's usual type; dense and
    strided rows as if they were no whole packs, which is what makes most of them that.

    Equal to what a plan asks for, so that both find each other's entries in the cache.
    """
    source, arguments = families()[op.family].source, [argument_of(t) for t in op.tensors]
    return {x: source(row, arguments, x) for x in op.layout_names} if source else {}


def variants_of(
    project: Project,
    names: Iterable[str] = (),
    *,
    archs: Sequence[str] = ARCHS,
    layouts: Sequence[str] = (),
    package: str = PACKAGE,
) -> list[Variant]:
    """Every kernel of the named ops in every layout, or in these, for every architecture that it runs on."""
    ops = project.chosen(names)
    assert_known(layouts, (name for op in ops for name in op.layout_names))
    return [v for op in ops for v in _variants(project, op, archs, layouts or op.layout_names, package)]


def assert_known(layouts: Sequence[str], names: Iterable[str]) -> None:
    """Raise Unsupported for a layout that is none of `names`."""
    available = tuple(dict.fromkeys(names))
    for layout in layouts:
        if layout not in available:
            raise Unsupported(f"no layout {layout!r}; known are {', '.join(available)}")


def _variants(
    project: Project, op: Op, archs: Sequence[str], layouts: Sequence[str], package: str
) -> Iterator[Variant]:
    if families()[op.family].source is None:
        loaded = project.loaded[op.name]
        yield from planned_variants(op, loaded, project.files, package, archs=archs, layouts=layouts)
        return
    rows = rows_of(op, project.files[f"{op.category}/{op.name}.cu"], package)
    _assert_told_apart(rows)
    for row in rows:
        sources = sources_of(row, op)
        for layout, arch in product(layouts, archs):
            if row.sku.fits(arch.rstrip("a")) is None:
                only = row.sku.arch if row.sku.arch.endswith("a") else arch
                yield Variant(row, layout, only, sources[layout])


def _assert_told_apart(rows: Iterable[Registered]) -> None:
    """A symbol does not name its architecture, so SKUs that differ in nothing else would be one kernel."""
    count = Counter(replace(row.sku, arch="-") for row in rows)
    if twins := [str(sku) for sku, n in count.items() if n > 1]:
        raise AssertionError(f"SKUs that differ only in arch: {', '.join(twins)}")
