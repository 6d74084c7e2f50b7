"""Folder of specs -> checked specs: read, validate, check against each other."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from baracuda.runtime import SpecError
from baracuda.runtime.plans.sku import RUNGS

from ..program.functions import Function, Functions
from .backward import completed, within
from .checks import findings
from .default_conditions import implied
from .default_tests import with_flags, with_usual
from .defaults import filled
from .errors import explain
from .family import family_of, model_of
from .functions import functions_of, shipped_functions
from .language import refuse_other_version
from .parts import Context
from .promises import promises_of
from .spec import OpSpec, ProgramSpec
from .tuned import FOLDER, Tables, problems_of, read_tables
from .types import Place
from .wording import did_you_mean
from .yaml_source import YamlSource, read_yaml
from .yaml_text import is_below, report

# A text is checked only once, wherever it is: specs are frozen.
_CHECKED: dict[tuple[str, str, frozenset[tuple[str, Function]]], tuple[Loaded, ...]] = {}
_MOST = 512  # of them
_PRINTABLE = re.compile(r"[A-Za-z0-9_.+ /-]+")


@dataclass(frozen=True)
class Loaded:
    """A spec, its file and its measurements; `display_path` is the file's path in generated headers."""

    spec: OpSpec
    source: YamlSource
    display_path: str
    tuned: Tables = field(default_factory=dict)


def load_spec(path: Path, display_path: str = "", functions: Functions | None = None) -> Loaded:
    """The spec in `path`; raises SpecError with one line per error."""
    return checked(read_yaml(path), display_path or path.name, functions)


def checked(
    source: YamlSource, display_path: str, functions: Functions | None = None, *, rungs: Collection[str] = RUNGS
) -> Loaded:
    """The spec in a file's data, whose programs may call `functions`; raises SpecError with one line per error.

    What it leaves out follows from the rest; outputs whose promises it leaves out promise no more than `rungs`.
    """
    known = shipped_functions() if functions is None else functions
    given, source = source.data, filled(source, display_path)
    try:
        model = model_of(source.data.get("family") if isinstance(source.data, dict) else None)
        spec = model.model_validate(source.data, context=Context(known, source.path.parent))
    except ValidationError as error:
        raise explain(error, source, model) from None
    errors = findings(spec)
    if errors:
        places = [(*_written(given, source, place, below), text) for place, below, text in errors]
        raise report(_finding(source, *place) for place in (_once(places) if "kinds" in source.data else places))
    spec = _with_defaults(spec, rungs)
    if not spec.tests.cases:
        raise source.error(("tests",), _no_cases(spec))
    return Loaded(spec, source, display_path)


def _with_defaults(spec: OpSpec, rungs: Collection[str]) -> OpSpec:
    """A valid spec, with the conditions, promises and tests that it leaves out."""
    require = [*implied(spec), *spec.require]
    promised = {"require": require, "reproducibility": promises_of(spec, rungs)}
    spec = spec.model_copy(update={**promised, "tests": with_flags(spec)})
    if not isinstance(spec, ProgramSpec):
        return spec
    if spec.reference is None and spec.gradient is None and spec.program:
        spec = spec.model_copy(update={"reference": spec.program})
    spec = spec.model_copy(update={"tests": spec.tests.model_copy(update={"batch": family_of(spec).batch_of(spec)})})
    return spec.model_copy(update={"tests": with_usual(spec)})


def _no_cases(spec: OpSpec) -> str:
    """Why there is nothing to test on."""
    of = {dim.of for dim in spec.dims.values()} if isinstance(spec, ProgramSpec) else set()
    fields = [n for n, f in spec.descriptor.items() if f.default is None and not f.same_as and n not in of]
    missing = ", ".join(name for name in fields if name not in spec.tests.defaults)
    given = f"give {missing} in tests.defaults, or " if of and missing else ""
    return f"there is no case to test; {given}list some in tests.cases"


def _written(given: Any, source: YamlSource, place: Place, below: int) -> tuple[Place, int]:
    """Where a line of a kind's program is written, which may be in what all kinds share."""
    if place[:1] != ("kinds",) or len(place) != 3 or not isinstance(given, dict) or "program" not in given:
        return place, below
    key = place[2] if place[2] in given else "program"
    shared = len(given[key].splitlines())
    own = len(source.data["kinds"][place[1]][place[2]].splitlines()) - shared
    return ((key,), below - own) if below > own else (place, below)


def _once(places: list[tuple[Place, int, str]]) -> Iterable[tuple[Place, int, str]]:
    """Each once, though it is one of every kind."""
    return dict.fromkeys(places)


def _finding(source: YamlSource, place: tuple[str | int, ...], below: int, text: str) -> str:
    if not below:
        return str(source.error(place, text))
    return source.said_of_line(place, below, text)


def load_folder(root: Path, ops: Collection[str] = ()) -> dict[str, Loaded]:
    """Every spec below `root` by op name; raises one SpecError with all errors.

    Errors in files that none of `ops` needs, if there are any, leave only what they need.
    """
    if not root.is_dir():
        raise SpecError(f"{root}: no such folder of specs; pass --specs, or begin one with 'baracuda-gen new'")
    refuse_other_version(root)
    loaded: dict[str, Loaded] = {}
    errors: list[str] = []
    functions = functions_of(root)
    for path in sorted(root.rglob("*.yaml")):
        name = f"{root.resolve().name}/{path.relative_to(root).as_posix()}"
        try:
            _refuse_path(path, root, name)
            for entry in _of_file(read_yaml(path), name, functions):
                _add(loaded, entry)
        except SpecError as error:
            errors += str(error).splitlines()
    if apart := bool(errors and ops and (needed := _needed(ops, loaded)) <= loaded.keys()):
        errors, loaded = [], {op: entry for op, entry in loaded.items() if op in needed}
    if not errors:  # a gradient cannot be compared with a forward op that cannot be read
        errors += [line for entry in loaded.values() for line in _gradient_errors(entry, loaded)]
    errors += _plan_clashes(loaded.values())
    if not errors:
        tables = read_tables(root)
        loaded, errors = _tuned(loaded, {op: by_arch for op, by_arch in tables.items() if op in loaded or not apart})
    if errors:
        raise report(errors)
    return loaded


def _needed(ops: Collection[str], loaded: Mapping[str, Loaded]) -> set[str]:
    """`ops`, and the forward ops of gradients among them."""
    gradients = [loaded[op].spec.gradient for op in ops if op in loaded]
    return {*ops, *(gradient.of for gradient in gradients if gradient)}


def _of_file(source: YamlSource, name: str, functions: Functions) -> tuple[Loaded, ...]:
    """The op of a file, and its gradient where it says `backward`."""
    key = source.text, name, frozenset(functions.items())
    if (known := _CHECKED.get(key)) is not None:
        return tuple(replace(entry, source=replace(entry.source, path=source.path)) for entry in known)
    entries = tuple(_checked_file(source, name, functions))
    if not any(entry.spec.by_hand for entry in entries):  # files beside it decide, too
        if len(_CHECKED) >= _MOST:
            _CHECKED.clear()
        _CHECKED[key] = entries
    return entries


def _checked_file(source: YamlSource, name: str, functions: Functions) -> Iterator[Loaded]:
    yield (entry := checked(source, name, functions))
    spec = entry.spec
    if spec.backward is None:
        return
    promised = [spec.reproducibility[output] for output in spec.outputs]
    kept = [rung for rung in RUNGS if all(rung in rungs for rungs in promised)]
    yield checked(completed(within(source), spec, entry.source.data), name, functions, rungs=kept)


def _add(loaded: dict[str, Loaded], entry: Loaded) -> None:
    if entry.spec.op in loaded:
        first = loaded[entry.spec.op].source.path
        raise entry.source.error(("op",), f"op {entry.spec.op!r} is already in {first}; rename one")
    loaded[entry.spec.op] = entry


def _refuse_path(path: Path, root: Path, name: str) -> None:
    """Raise SpecError for a path that generated code cannot name, or a link out of the project."""
    if not _PRINTABLE.fullmatch(name):
        raise SpecError(f"{name[:200]!r}: generated code names this path; use letters, digits, '.', '_' and '-'")
    if not is_below(path, root):
        raise SpecError(f"{name}: is a link that leads out of {root.resolve().name!r}; put the file itself there")


def _tuned(loaded: dict[str, Loaded], tables: Mapping[str, Tables]) -> tuple[dict[str, Loaded], list[str]]:
    """The specs with their measurements, and errors in those."""
    errors = []
    for op, by_arch in tables.items():
        if op in loaded:
            errors += problems_of(loaded[op].spec, by_arch)
        else:
            errors += [f"{FOLDER}/{arch}/{op}.json: no op {op!r}; {did_you_mean(op, loaded)}" for arch in by_arch]
    return {op: replace(entry, tuned=tables.get(op, {})) for op, entry in loaded.items()}, errors


def _plan_clashes(loaded: Iterable[Loaded]) -> list[str]:
    by_plan: dict[str, Loaded] = {}
    errors = []
    for entry in loaded:
        for plan, place in entry.spec.plans.items():
            if plan in by_plan:
                text = f"plan {plan!r} is already in {by_plan[plan].source.path}; rename one"
                errors.append(str(entry.source.error(place, text)))
            by_plan.setdefault(plan, entry)
    return errors


def _gradient_errors(entry: Loaded, loaded: dict[str, Loaded]) -> Iterable[str]:
    """Contradictions between a gradient and its forward op."""
    gradient = entry.spec.gradient
    if gradient is None:
        return
    if gradient.of not in loaded:
        hint = did_you_mean(gradient.of, loaded)
        yield str(entry.source.error(("gradient", "of"), f"no op {gradient.of!r} in this folder; {hint}"))
        return
    forward = loaded[gradient.of].spec
    if forward.gradient is not None:
        text = f"op {gradient.of!r} has no reference to differentiate; name a forward op"
        yield str(entry.source.error(("gradient", "of"), text))
    if forward.by_hand != entry.spec.by_hand:
        text = f"op {gradient.of!r} is of family {forward.family}: a body's derivative is a body, a program's a program"
        yield str(entry.source.error(("gradient", "of"), text))
    outputs, inputs = forward.outputs, forward.inputs
    saved = {name: name for name in gradient.saved}
    for section, names, tensors in (
        ("cotangents", gradient.cotangents, outputs),
        ("wrt", gradient.wrt, inputs),
        ("saved", saved, {**outputs, **inputs}),
    ):
        for target in names.values():
            if target not in tensors:
                text = f"op {gradient.of!r} has no {target!r}; {did_you_mean(target, tensors)}"
                yield str(entry.source.error(("gradient", section), text))
        pairs = {name: target for name, target in names.items() if target in tensors and name in entry.spec.tensors}
        for place, text in family_of(entry.spec).mismatched(entry.spec, forward, pairs):
            yield str(entry.source.error(place, text))
    taken = {*gradient.cotangents, *gradient.saved}
    for name in entry.spec.inputs:
        if name not in taken and name not in inputs:
            text = f"{name!r} is neither a cotangent, nor saved, nor an input of {gradient.of!r}; say which"
            yield str(entry.source.error(("inputs", name), text))
