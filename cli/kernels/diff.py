"""`diff`: which kernels differ from those of a git revision, in their source, their PTX and their machine code."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from baracuda.checking.audit.collect import Job, Outcome, collect
from baracuda.checking.audit.facts import Facts
from baracuda.checking.listing.variant import Variant
from baracuda.checking.listing.variants import variants_of
from baracuda.codegen.emit.generate import lower_all
from baracuda.codegen.project import OUT, PACKAGE, Project, installed
from baracuda.codegen.spec.load import load_folder
from baracuda.codegen.spec.wording import did_you_mean
from baracuda.runtime import KernelSource, SpecError, Unsupported
from baracuda.runtime.compile.cubin import INCLUDE
from baracuda.runtime.compile.headers import header_digest
from baracuda.runtime.compile.line_map import with_line_directives

from ..terminal import Row, progress, show_json, show_table
from .revision import files_at, repository_of

_DIGITS = 12  # of a digest
_NO_CODE = ("source", "ptx")  # what may differ where the machine code is the same
# What a kernel is called by: the SKU says it, too, and other revisions may pass it in another way.
_NAMED = ("BARACUDA_SYMBOL", "BARACUDA_ELEMENT", "BARACUDA_SCHEDULE", "BARACUDA_LAYOUT", "BARACUDA_KERNEL")


@dataclass(frozen=True, slots=True)
class Tree:
    """One of the two sides: folders of specs, of generated files and of headers."""

    specs: Path
    out: Path
    include: Path


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel in one layout for one architecture, on one side."""

    job: Job
    source: str  # digest of the file and of the headers it reaches, defines and flags

    @classmethod
    def of(cls, source: KernelSource, raw: str, arch: str, include: Path) -> Kernel:
        flags = f"{source.path}\0{source.defines}\0{source.contraction}\0{source.flush_subnormals}\0{raw}\0"
        digest = hashlib.sha256(flags.encode() + header_digest(raw, include), usedforsecurity=False)
        return cls(Job(source, arch, include), digest.hexdigest())


Key = tuple[str, str, str, str, str]  # SKU, entry point, layout, architecture, constants
Kernels = dict[Key, Kernel]


def diff(
    revision: str,
    ops: Sequence[str] = (),
    *,
    specs: Path | None = None,
    out: Path = OUT,
    archs: Sequence[str] = ("sm_90",),
    layouts: Sequence[str] = (),
    package: str = PACKAGE,
    machine_code: bool = False,
    as_json: bool = False,
) -> bool:
    """Print a row for each kernel that is not as in `revision`, or, with `machine_code`, only for those of which the
    machine code is not; true when there is none.

    Which kernels there are on a side, its specs say; each is compiled from its generated file and headers as they are
    there. Kernels whose source, headers included, is the same are not compiled. Nothing of the revision is executed.
    """
    repository = repository_of(out)
    out = (out if out.is_dir() else repository / out).resolve()  # from a folder below as from the top
    new = Tree((specs or _specs_in(repository)).resolve(), out, INCLUDE.resolve())
    inside = [path for path in (new.specs, new.out, new.include) if path.is_relative_to(repository)]
    with files_at(repository, revision, inside) as copy:

        def before(path: Path) -> Path:
            return copy / path.relative_to(repository) if path in inside else path

        old = Tree(before(new.specs), before(new.out), before(new.include))
        sides = _kernels(old, new, ops, archs, layouts, package)
        if not any(sides) and not ops:
            raise Unsupported(f"no generated kernels in {out}, nor there in {revision!r}; give their folder with --out")
        rows = list(_compare(*sides))
    count = Counter(str(row["what"]) for row in rows)
    listed = [row for row in rows if row["what"] not in ("source only", "PTX only")] if machine_code else rows
    if as_json:
        show_json(listed)
        return not listed
    if listed:
        show_table([{name: _step(value) for name, value in row.items()} for row in listed])
    same = len(sides[1]) - sum(n for change, n in count.items() if change != "removed")
    counts = [f"{same} kernels are as in {revision}", *(f"{n} {what}" for what, n in sorted(count.items()))]
    click.echo(", ".join(counts))
    return not listed


def _specs_in(repository: Path) -> Path:
    specs = repository / "specs"
    return specs if specs.is_dir() else installed("baracuda.specs")


def _kernels(
    old: Tree, new: Tree, ops: Sequence[str], archs: Sequence[str], layouts: Sequence[str], package: str
) -> tuple[Kernels, Kernels]:
    """The kernels of both sides."""
    before, after = _projects(old, new)
    names = {*before.ops, *after.ops}
    for name in ops:
        if name not in names:
            raise Unsupported(f"no op {name!r} in {new.specs} or its revision; {did_you_mean(name, names)}")

    def listed(project: Project) -> list[Variant]:
        chosen = [name for name in ops or project.ops if name in project.ops]
        return variants_of(project, chosen, archs=archs, layouts=layouts, package=package) if chosen else []

    variants = listed(after)
    return _in_tree(variants if before is after else listed(before), old), _in_tree(variants, new)


def _projects(old: Tree, new: Tree) -> tuple[Project, Project]:
    """The projects of both sides: one, if specs are equal or if those of the revision cannot be read any more."""
    after = _project(new.specs)
    if _texts(old.specs) == _texts(new.specs):
        return after, after
    try:
        return _project(old.specs), after
    except SpecError:
        click.echo("the revision's specs cannot be read; today's say which kernels both sides have", err=True)
        return after, after


def _project(specs: Path) -> Project:
    """What specs lower to, without files."""
    loaded = load_folder(specs) if specs.is_dir() else {}
    ops = {str(op.name): op for op in lower_all(loaded.values())}
    return Project(loaded, ops, {f"{op.category}/{op.name}.cu": "" for op in ops.values()})


def _texts(specs: Path) -> dict[str, bytes]:
    return {str(path.relative_to(specs)): path.read_bytes() for path in specs.rglob("*.yaml")}


def _in_tree(variants: Sequence[Variant], tree: Tree) -> Kernels:
    """Of the kernels that there should be those that the generated files have."""
    kernels: Kernels = {}
    texts: dict[Path, tuple[str, str]] = {}
    for variant in variants:
        sku, path = variant.row.sku, tree.out / variant.row.sku.category / f"{variant.row.sku.op}.cu"
        if path not in texts:
            raw = path.read_text(encoding="utf-8") if path.is_file() else ""
            texts[path] = raw, with_line_directives(raw)
        raw, text = texts[path]
        if raw and (source := _in_text(variant.source, raw, text)):
            constants = " ".join(d for d in variant.source.defines if not d.startswith(_NAMED))
            key = str(sku), source.symbol, variant.layout, variant.arch, constants
            kernels[key] = Kernel.of(source, raw, variant.arch, tree.include)
    return kernels


def _in_text(source: KernelSource, raw: str, text: str) -> KernelSource | None:
    """`source` of a generated file. One with a condition around each of its entry points may lack that of `source`."""
    if "#ifdef SKU_" not in raw:
        return replace(source, text=text)
    if f"#ifdef SKU_{source.symbol}\n" not in raw:
        return None
    return replace(source, text=text, defines=(*source.defines, f"SKU_{source.symbol}=1"))


def _compare(old: Kernels, new: Kernels) -> Iterator[Row]:
    keys = [key for key in dict.fromkeys((*new, *old)) if _source(old, key) != _source(new, key)]
    sides = [kernels[key].job for key in keys for kernels in (old, new) if key in kernels]
    facts = iter(_facts(sides))
    for key in keys:
        sku, kernel, layout, arch, constants = key
        before, after = (_compared_facts(kernels[key], next(facts)) if key in kernels else {} for kernels in (old, new))
        yield {
            "sku": sku,
            "kernel": kernel,
            "layout": layout,
            "for": arch,
            "constants": constants,
            "what": _change(before, after),
            **{name: (before.get(name), after.get(name)) for name in after or before},
        }


def _source(kernels: Kernels, key: Key) -> str | None:
    return kernels[key].source if key in kernels else None


def _facts(jobs: Sequence[Job]) -> list[Outcome]:
    outcomes: dict[int, Outcome] = {}
    with progress("comparing", len(jobs)) as advance:

        def done(index: int, outcome: Outcome) -> None:
            outcomes[index] = outcome
            advance()

        collect(jobs, on_done=done)
    return [outcomes[index] for index in range(len(jobs))]


def _compared_facts(kernel: Kernel, outcome: Outcome) -> Row:
    """What is compared; a kernel that does not compile has a source only."""
    facts = outcome if isinstance(outcome, Facts) else None
    return {
        "source": kernel.source[:_DIGITS],
        "ptx": facts and facts.ptx.digest[:_DIGITS],
        "registers": facts and facts.resources.registers,
        "digest": facts and facts.digest[:_DIGITS],
    }


def _change(before: Row, after: Row) -> str:
    if not before or not after:
        return "removed" if before else "added"
    if after["digest"] is None:
        return "does not compile"
    differing = [name for name in after if before[name] != after[name]]
    if any(name not in _NO_CODE for name in differing):
        return "changed"
    return "PTX only" if "ptx" in differing else "source only"


def _step(value: object) -> object:
    """A pair of old and new as text, once when they are equal."""
    if not isinstance(value, tuple):
        return value
    old, new = ("-" if v is None else str(v) for v in value)
    return new if old == new else f"{old} -> {new}"
