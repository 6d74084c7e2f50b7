"""What callers may say and get, and what is launched for them, compared with lists that only people change.

``python -m baracuda.checking.verify.defaults SPECS`` writes the lists of a folder of specs. Lists that a folder lacks
are not compared.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from itertools import combinations, product
from pathlib import Path
from typing import Any

from baracuda.codegen.conditions.parse import ConditionError, evaluate_condition
from baracuda.codegen.spec.load import load_folder
from baracuda.codegen.spec.spec import OpSpec

from ..problems.problem import Problem
from ..problems.subject import Subject
from .launches import launches_of

# Values of a field, alone in the first case of the spec's tests, that requirements accept or not.
_TRIED: dict[str, tuple[Any, ...]] = {
    "int": (-2, -1, 0, 1, 2, 3, 5, 9),
    "float": (float("-inf"), -1.0, -1e-9, 0.0, 1e-9, 1.0, float("inf"), float("nan")),
    "bool": (False, True),
    "shape": ((), (0,), (-1,), (2, 3), (2, -1), (1,) * 8, (1,) * 9),
}


def check_defaults(subject: Subject, folder: Path) -> None:
    """What `LISTS` make of the op is what the lists beside its spec say."""
    op = subject.spec.op
    for name, of in LISTS.items():
        if (path := folder / name).is_file():
            listed, now = json.loads(path.read_text(encoding="utf-8")).get(op, {}), of(subject)
            for key in sorted({*listed, *now}):
                if listed.get(key) != now.get(key):
                    fix = f"if callers may see that, python -m {__spec__.name} {folder.name}"
                    raise AssertionError(f"{op}: {name} has {key}={listed.get(key)}, the spec {now.get(key)}; {fix}")


def facts_of(subject: Subject) -> dict[str, Any]:
    """Defaults, usual types, stand-ins for absent inputs, guarantees, aliases, layouts and refusals."""
    return {**defaults_of(subject.spec), **Problem.kind_of(subject).facts(subject.spec), **refused_by(subject)}


def refused_by(subject: Subject) -> dict[str, str]:
    """By name of a field the values that some requirement refuses, with what the first of them raises.

    Of two flags also those that are refused together alone.
    """
    spec, base = subject.spec, subject.values(subject.spec.tests.cases[0])
    fields = {name: _TRIED.get(field.type, ()) for name, field in spec.descriptor.items()}
    tried: dict[tuple[str, ...], list[Any]] = {(name,): [(v,) for v in values] for name, values in fields.items()}
    flags = [name for name, field in spec.descriptor.items() if field.type == "bool"]
    tried |= {pair: list(product((False, True), repeat=2)) for pair in combinations(flags, 2)}
    refused: dict[str, str] = {}
    for names, settings in tried.items():
        of_errors: dict[str, list[str]] = {}
        for values in settings:
            changes = dict(zip(names, values, strict=True))
            alone = len(names) > 1 and any(_error(spec, base | {n: v}) for n, v in changes.items())
            if not alone and (error := _error(spec, base | changes)):
                of_errors.setdefault(error, []).append(", ".join(map(str, values)))
        if of_errors:
            listed = (f"{' '.join(values)} ({error})" for error, values in of_errors.items())
            refused[f"{', '.join(names)} refused"] = ", ".join(listed)
    return refused


def _error(spec: OpSpec, values: Mapping[str, Any]) -> str:
    """What the first requirement raises that does not hold, or ""."""
    for requirement in spec.require:
        try:
            if not evaluate_condition(requirement.that, values):
                return requirement.raises
        except ConditionError:  # has no value
            return requirement.raises
    return ""


def defaults_of(spec: OpSpec) -> dict[str, Any]:
    """By name of a field or argument; what must be given has none."""
    fields = {
        name: f"same as {field.same_as}" if field.same_as else field.default
        for name, field in spec.descriptor.items()
        if field.same_as or field.default is not None
    }
    types = {name: tensor.dtype[0] for name, tensor in spec.arguments.items() if tensor.dtype != ("T",)}
    absent = {f"{name} if absent": t.default for name, t in spec.inputs.items() if t.default is not None}
    promised = {f"{name} promises": " ".join(rungs) for name, rungs in spec.reproducibility.items()}
    places = {f"{name} in place of": " ".join(t.may_alias) for name, t in spec.outputs.items() if t.may_alias}
    places |= {f"{name} laid out": t.layout for name, t in spec.arguments.items() if t.layout != "any"}
    return {**fields, **types, **absent, **promised, **places}


# By their names in the folder of specs.
LISTS: dict[str, Callable[[Subject], dict[str, Any]]] = {"defaults.json": facts_of, "launches.json": launches_of}


def main(folder: str) -> None:
    """Write the lists."""
    loaded = load_folder(Path(folder))
    subjects = {op: Subject(one, loaded, "baracuda.generated") for op, one in sorted(loaded.items())}
    for name, of in LISTS.items():
        listed = {op: entries for op, subject in subjects.items() if (entries := of(subject))}
        (Path(folder) / name).write_text(json.dumps(listed, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
