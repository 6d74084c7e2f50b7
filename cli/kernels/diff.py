"""`diff`: which row kernels differ from those of a git revision, in their source, their PTX and their machine code."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import click

from baracuda.checking.audit.collect import Job, Outcome, collect
from baracuda.checking.audit.facts import Facts
from baracuda.checking.listing.variants import assert_known
from baracuda.codegen.project import OUT, PACKAGE
from baracuda.codegen.spec.wording import did_you_mean
from baracuda.runtime import KernelSource, RowPlan, Unsupported
from baracuda.runtime.compile.cubin import INCLUDE
from baracuda.runtime.compile.headers import header_digest

from ..terminal import Row, progress, show_json, show_table
from .generated_table import other_ops, read_table
from .revision import files_at, repository_of

_DIGITS = 12  # of a digest


@dataclass(frozen=True, slots=True)
class Kernel:
    """One SKU in one layout for one architecture, in one of the two trees."""

    job: Job
    source: str  # digest of the file and of the headers it reaches, defines and flags

    @classmethod
    def of(cls, source: KernelSource, raw: str, arch: str, include: Path) -> Kernel:
        flags = f"{source.path}\0{source.defines}\0{source.contraction}\0{source.flush_subnormals}\0{raw}\0"
        digest = hashlib.sha256(flags.encode() + header_digest(raw, include), usedforsecurity=False)
        return cls(Job(source, arch, include), digest.hexdigest())


Kernels = dict[tuple[str, str, str], Kernel]  # (SKU, layout, architecture)


def diff(
    revision: str,
    ops: Sequence[str] = (),
    *,
    out: Path = OUT,
    archs: Sequence[str] = ("sm_90",),
    layouts: Sequence[str] = (),
    package: str = PACKAGE,
    as_json: bool = False,
) -> bool:
    """Print a row for each kernel of `out` that is not as in `revision`; true when there is none.

    Only kernels of the row family are compared: asking for another op is refused, and who asks for none is told on
    stderr which are left out. Kernels whose source, headers included, is the same are not compiled. The old generated
    files are compared as they were committed; nothing of the old revision is executed.
    """
    assert_known(layouts, RowPlan.LAYOUTS)
    repository = repository_of(out)
    out = (out if out.is_dir() else repository / out).resolve()  # from a folder below as from the top
    include = INCLUDE.resolve()
    own_headers = include.is_relative_to(repository)
    with files_at(repository, revision, [out, include] if own_headers else [out]) as old_tree:
        headers = old_tree / include.relative_to(repository) if own_headers else include
        old = kernels_in(old_tree / out.relative_to(repository), package, archs, layouts or RowPlan.LAYOUTS, headers)
        new = kernels_in(out, package, archs, layouts or RowPlan.LAYOUTS, INCLUDE)
        others = {**other_ops(old_tree / out.relative_to(repository)), **other_ops(out)}
        known = {key[0].split("/")[1] for key in (*old, *new)}
        if not known and not others:
            raise Unsupported(f"no generated kernels in {out}, nor there in {revision!r}; give their folder with --out")
        for op in ops:
            if op not in known and op in others:
                raise Unsupported(f"{op!r} is of family {others[op]}; `diff` compares kernels of family row")
            if op not in known:
                where = f"in {out} or its revision {revision!r}"
                raise Unsupported(f"no op {op!r} {where}; {did_you_mean(op, {*known, *others})}")
        rows = list(_compare(_only(old, ops), _only(new, ops)))
    if left_out := sorted({*others} - known) if not ops else []:
        click.echo(f"only kernels of family row are compared, not those of {', '.join(left_out)}", err=True)
    if as_json:
        show_json(rows)
    elif rows:
        show_table([{name: _step(value) for name, value in row.items()} for row in rows])
    else:
        click.echo(f"{len(_only(new, ops))} kernels are as in {revision}")
    return not rows


def kernels_in(folder: Path, package: str, archs: Sequence[str], layouts: Sequence[str], include: Path) -> Kernels:
    """The kernels that a folder of generated files registers."""
    found: Kernels = {}
    for held in read_table(folder, package):
        sku, sources = held.row.sku, held.sources()
        for layout, arch in product(layouts, archs):
            if sku.fits(arch.rstrip("a")) is None:
                only = sku.arch if sku.arch.endswith("a") else arch
                found[str(sku), layout, only] = Kernel.of(sources[layout], held.row.source.raw, only, include)
    return found


def _only(kernels: Kernels, ops: Sequence[str]) -> Kernels:
    return {key: kernel for key, kernel in kernels.items() if not ops or key[0].split("/")[1] in ops}


def _compare(old: Kernels, new: Kernels) -> Iterator[Row]:
    keys = [key for key in dict.fromkeys((*new, *old)) if _source(old, key) != _source(new, key)]
    sides = [kernels[key].job for key in keys for kernels in (old, new) if key in kernels]
    facts = iter(_facts(sides))
    for key in keys:
        sku, layout, arch = key
        before, after = (_shown(kernels[key], next(facts)) if key in kernels else {} for kernels in (old, new))
        yield {
            "sku": sku,
            "layout": layout,
            "for": arch,
            "what": _what(before, after),
            **{name: (before.get(name), after.get(name)) for name in after or before},
        }


def _source(kernels: Kernels, key: tuple[str, str, str]) -> str | None:
    return kernels[key].source if key in kernels else None


def _facts(jobs: Sequence[Job]) -> list[Outcome]:
    outcomes: dict[int, Outcome] = {}
    with progress("comparing", len(jobs)) as advance:

        def done(index: int, outcome: Outcome) -> None:
            outcomes[index] = outcome
            advance()

        collect(jobs, on_done=done)
    return [outcomes[index] for index in range(len(jobs))]


def _shown(kernel: Kernel, outcome: Outcome) -> Row:
    """What is compared; a kernel that does not compile has a source only."""
    facts = outcome if isinstance(outcome, Facts) else None
    return {
        "source": kernel.source[:_DIGITS],
        "ptx": facts and facts.ptx.digest[:_DIGITS],
        "registers": facts and facts.resources.registers,
        "digest": facts and facts.digest[:_DIGITS],
    }


def _what(before: Row, after: Row) -> str:
    if not before or not after:
        return "removed" if before else "added"
    if after["digest"] is None:
        return "does not compile"
    same = all(before[name] == after[name] for name in after if name != "source")
    return "source only" if same else "changed"


def _step(value: object) -> object:
    """A pair of old and new as text, once when they are equal."""
    if not isinstance(value, tuple):
        return value
    old, new = ("-" if v is None else str(v) for v in value)
    return new if old == new else f"{old} -> {new}"
