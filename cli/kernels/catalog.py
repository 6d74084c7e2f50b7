"""`list` and `show`: the kernel table of a package, and details of one kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import click
from rich.syntax import Syntax

from baracuda.checking.listing.variant import Variant
from baracuda.codegen.lower.op import Op, Tensor
from baracuda.codegen.project import PACKAGE, installed, kernels_of
from baracuda.codegen.spec.place import with_field
from baracuda.codegen.spec.wording import did_you_mean
from baracuda.runtime import CompileError, ElementKind, KernelSku, Registered, Schedule, Tile, Unsupported
from baracuda.runtime.cache.root import cache_root
from baracuda.runtime.compile.cubin import cubin_key
from baracuda.runtime.compile.cubin_store import cubin_store
from baracuda.runtime.plans.sku import RUNGS

from ..reading import list_kernels, read_project
from ..terminal import Row, console, show_json, show_table
from .audit_report import Audit, facts_row


def chosen_kernels(package: str = PACKAGE, *, ops: Sequence[str] = (), dtype: str | None = None) -> list[Registered]:
    """The kernels of `package`, in order of preference; Unsupported for an unknown op or dtype."""
    kernels = kernels_of(package)
    known = {row.sku.op for row in kernels}
    for op in ops:
        if op not in known:
            raise Unsupported(f"no op {op!r} in {package!r}; {did_you_mean(op, known)}")
    element = None if dtype is None else ElementKind(dtype)
    return [k for k in kernels if (not ops or k.sku.op in ops) and element in (None, k.sku.element)]


def show_list(
    specs: Path,
    *,
    package: str = PACKAGE,
    ops: Sequence[str] = (),
    dtype: str | None = None,
    resources: bool = False,
    archs: Sequence[str] = ("sm_90",),
    as_json: bool = False,
) -> None:
    """Print one row per kernel of `package`; with `resources`, one per kernel, layout and architecture."""
    kernels = chosen_kernels(package, ops=ops, dtype=dtype)
    described: Callable[[KernelSku], Row] = sku_facts if as_json else _row
    if resources:
        audited = _audited(kernels, specs, archs, package)
        rows: list[Row] = [{**described(v.row.sku), "arrays": v.layout, "for": v.arch, **facts} for v, facts in audited]
    else:
        rows = [described(k.sku) for k in kernels]
    (show_json if as_json else show_table)(rows)


def sku_facts(sku: KernelSku) -> Row:
    """A SKU as data: its name, all its fields, and the longest row it takes."""
    parts = {field.name: getattr(sku, field.name) for field in fields(sku)}
    parts["precision_guarantee"] = asdict(sku.precision_guarantee)
    parts["schedule"] = str(sku.schedule)
    return {"sku": str(sku), **parts, "columns": _columns(sku)}


def _audited(
    kernels: Sequence[Registered], specs: Path, archs: Sequence[str], package: str
) -> Iterator[tuple[Variant, Row]]:
    """Resources of each kernel for each layout; raises the first CompileError."""
    project = read_project(specs)
    ops: dict[str, Op] = {op.name: op for op in project.chosen(dict.fromkeys(k.sku.op for k in kernels))}
    skus = {k.sku for k in kernels}
    variants = [v for v in list_kernels(project, ops, archs=archs, package=package) if v.row.sku in skus]
    for variant, facts in ((a.variant, a.outcome) for a in Audit.of(variants, ops).audited):
        if isinstance(facts, CompileError):
            raise CompileError(with_field(str(facts), project.loaded))
        yield variant, facts_row(facts)


def _row(sku: KernelSku) -> Row:
    return {
        "op": sku.op,
        "direction": sku.direction.value,
        "element": sku.element.value,
        "tile": str(sku.schedule),
        "arch": sku.arch,
        "columns": _columns(sku),
        "guarantee": [rung for rung in RUNGS if rung in sku.precision_guarantee.rungs],
    }


def _columns(sku: KernelSku) -> str | None:
    """The longest row of a row kernel."""
    if not isinstance(sku.schedule, Tile):
        return None
    return "any" if sku.schedule.wide else f"<= {sku.schedule.columns(sku.element.row.bytes)}"


def show(
    name: str,
    specs: Path,
    *,
    package: str = PACKAGE,
    source: bool = False,
    as_json: bool = False,
) -> None:
    """Print the kernels that `name` stands for: a SKU, a symbol or an op."""
    kernels = kernels_of(package)
    chosen = [k for k in kernels if name in (str(k.sku), k.sku.symbol, k.sku.op)]
    if not chosen:
        names = {text for k in kernels for text in (k.sku.op, k.sku.symbol, *([str(k.sku)] * ("/" in name)))}
        raise Unsupported(f"no SKU, kernel or op {name!r} in {package!r}; {did_you_mean(name, names)}")
    project = read_project(specs)
    (op,) = project.chosen([chosen[0].sku.op])
    variants = list_kernels(project, [op.name], package=package)
    if as_json:
        return show_json([_facts(k, op, variants, source) for k in chosen])
    click.echo(f"{op.doc}\n{op.plan}: {_source_path(chosen[0])}\n")
    for wide in sorted({_is_wide(k.sku) for k in chosen}):
        if any(isinstance(k.sku.schedule, Tile) for k in chosen):
            click.echo("rows longer than the tile:" if wide else "rows that a tile holds:")
        show_table([_traffic(t, op, wide) for t in op.tensors])
        click.echo()
    for kernel in chosen:
        click.echo(str(kernel.sku))
        if rows := list(resources_of(kernel, variants)):
            show_table(rows)
    if source:
        click.echo()
        _print_source(chosen[0].source.raw)


def _is_wide(sku: KernelSku) -> bool:
    return isinstance(sku.schedule, Tile) and sku.schedule.wide


def _facts(kernel: Registered, op: Op, variants: Sequence[Variant], source: bool) -> Row:
    wide = _is_wide(kernel.sku)
    facts = {
        "sku": str(kernel.sku),
        "symbol": kernel.sku.symbol,
        "plan": op.plan,
        "source": str(_source_path(kernel)),
        "traffic": [_traffic(t, op, wide) for t in op.tensors],
        "resources": list(resources_of(kernel, variants)),
    }
    return {**facts, "text": kernel.source.raw} if source else facts


def _source_path(kernel: Registered) -> Path:
    return installed(kernel.source.package) / kernel.source.name


def _traffic(tensor: Tensor, op: Any, wide: bool) -> Row:
    """A tensor's element type and, in the row family, how often it is read and written.

    Tensors that every row reads again (a gain) mostly come from a cache.
    """
    named = {"tensor": tensor.name, "role": tensor.role}
    holds, optional = " or ".join(tensor.dtypes), tensor.optional or None
    per = {"element": "", "row": "", "col": " a row" if wide else " a block"}.get(tensor.over)
    if per is None:
        return {**named, "holds": holds, "optional": optional}
    reads = 0 if tensor.role == "out" else _walks(tensor, op) if wide else 1
    return {
        **named,
        "for each": tensor.over,
        "holds": holds,
        "read": f"{reads}x{per}" if reads else None,
        "written": None if tensor.role == "in" else "1x",
        "optional": optional,
    }


def _walks(tensor: Tensor, op: Any) -> int:
    """How many passes over a long row read `tensor`; column sums take a last pass, strip by strip."""
    passes = op.passes[:-1] if op.column_sums else op.passes
    return max(1, sum(tensor in p.reads for p in passes) + bool(op.column_sums))


def resources_of(kernel: Registered, variants: Sequence[Variant]) -> Iterator[Row]:
    """The assembler's report on each cached variant."""
    several = isinstance(kernel.sku.schedule, Schedule)
    for variant in (v for v in variants if v.row.sku == kernel.sku):
        try:
            cubin = cubin_store(cache_root() / "cubin").get(cubin_key(variant.source, variant.arch))
        except CompileError:  # no NVRTC, so there is no key to look for
            return
        if cubin is not None:
            resources = cubin.resources
            named = {"kernel": variant.source.symbol} if several else {}
            yield {
                "arch": variant.arch,
                "layout": variant.layout,
                **named,
                "registers": resources.registers,
                "shared": resources.shared_bytes,
                "stack": resources.stack_bytes,
                "spill": resources.spill_bytes,
            }


def _print_source(text: str) -> None:
    screen = console()
    if screen.is_terminal:
        screen.print(Syntax(text, "cuda", background_color="default", word_wrap=True))
    else:
        click.echo(text, nl=False)
