"""`generate`: write the generated files, or list those that are stale."""

from __future__ import annotations

import time
from collections.abc import Sequence
from keyword import iskeyword
from pathlib import Path

import click

from baracuda.codegen.emit.output import Changes, compare, write
from baracuda.codegen.project import OUT, Project
from baracuda.codegen.spec.family import family_of
from baracuda.runtime import SpecError

from ..memo import Question
from ..reading import read_project
from ..terminal import show_json
from .schema import renew
from .settled import Remembered


def generate(
    specs: Path, out: Path, templates: Sequence[Path] = (), *, check: bool = False, as_json: bool = False
) -> bool:
    """Bring `out` up to date with `specs`; with `check`, only report, and return false if anything would change."""
    start = time.perf_counter()
    _check_out(out, specs)
    question = Question(specs, templates, ("generate",))
    remembered = Remembered.read(question.recall())
    changes = remembered and remembered.changes(specs, out)
    if remembered and changes:
        ops, renewed = remembered.ops, list[Path]()
    else:
        project = read_project(specs, templates)
        ops, renewed = len(project.ops), renew(specs, project.schema, check=check)
        changes = (compare if check else write)(project.files, out)
        show_notes(project, changes)
        question.remember(Remembered.of(ops, 0, 0, project.files, specs, renewed=check and bool(renewed)))
    if as_json:
        show_json({"ops": ops, **facts(changes, out, renewed), "seconds": time.perf_counter() - start})
    else:
        show_renewed(renewed, tense := "would be " if check else "")
        show_changes(changes, out, tense)
        click.echo(f"{summary(ops, changes)} in {(time.perf_counter() - start) * 1e3:.0f} ms")
    return not (check and (changes.any or renewed))


def show_notes(project: Project, changes: Changes) -> None:
    """On stderr, what authors of files that changed may want otherwise."""
    for path in changes.written:
        loaded = project.loaded.get(Path(path).stem) if path.endswith(".cu") else None
        if loaded is None or loaded.spec.gradient is not None:  # whose program may be derived
            continue
        for number, text in family_of(loaded.spec).notes(loaded.spec):
            click.echo(loaded.source.said_of_line(("program",), number, f"note: {text}"), err=True)


def _check_out(out: Path, specs: Path) -> None:
    """Raise SpecError for a folder that cannot be a package."""
    name = out.resolve().name
    if not name.isidentifier() or iskeyword(name):
        raise SpecError(f"--out {out}: {name!r} cannot be imported; the folder is a package, call it as in 'my_ops'")
    if name == "baracuda":
        raise SpecError(f"--out {out}: would hide the package {name!r} that all plans import; choose another name")
    if out.resolve() == specs.resolve():
        raise SpecError(f"--out {out}: is the folder of specs; plans go into another one, as in --out {OUT}")


def facts(changes: Changes, out: Path, renewed: Sequence[Path]) -> dict[str, list[str]]:
    """The files by kind of change, for JSON."""
    kinds = {"written": changes.written, "removed": changes.removed, "unchanged": changes.unchanged}
    files = {change: [str(out / path) for path in paths] for change, paths in kinds.items()}
    return {**files, "written": [*map(str, renewed), *files["written"]]}


def show_renewed(renewed: Sequence[Path], tense: str = "") -> None:
    """One line for the schema, if it was stale."""
    for path in renewed:
        click.echo(f"{tense}written: {path}")


def show_changes(changes: Changes, out: Path, tense: str = "") -> None:
    """One line per stale file."""
    for change, paths in (("written", changes.written), ("removed", changes.removed)):
        for path in paths:
            click.echo(f"{tense}{change}: {out / path}")


def summary(ops: int, changes: Changes) -> str:
    """Counts of ops and files."""
    counts = {"written": changes.written, "removed": changes.removed, "unchanged": changes.unchanged}
    files = ", ".join(f"{len(paths)} {change}" for change, paths in counts.items() if paths)
    return f"{ops} op{'s' * (ops != 1)}; files: {files}"
