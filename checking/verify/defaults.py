"""What callers may say, and get when they say nothing, compared with a list beside the specs that only people change.

``python -m baracuda.checking.verify.defaults SPECS`` writes the list of a folder of specs. A folder without one is not
compared.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from itertools import combinations, product
from pathlib import Path
from typing import Any

from baracuda.codegen.conditions.parse import ConditionError, evaluate_condition
from baracuda.codegen.spec.load import load_folder
from baracuda.codegen.spec.spec import BodySpec, OpSpec

from ..problems.subject import Subject

FILE = "defaults.json"  # in the folder of specs
# Values of a field, alone in the first case of the spec's tests, that requirements accept or not.
_TRIED: dict[str, tuple[Any, ...]] = {
    "int": (-2, -1, 0, 1, 2, 3, 5, 9),
    "float": (float("-inf"), -1.0, -1e-9, 0.0, 1e-9, 1.0, float("inf"), float("nan")),
    "bool": (False, True),
    "shape": ((), (0,), (-1,), (2, 3), (2, -1), (1,) * 8, (1,) * 9),
}


def check_defaults(subject: Subject, folder: Path) -> None:
    """Defaults, usual types, stand-ins for absent inputs, guarantees, aliases, layouts and refusals are those listed."""
    path, op = folder / FILE, subject.spec.op
    if not path.is_file():
        return
    listed = json.loads(path.read_text(encoding="utf-8")).get(op, {})
    now = {**defaults_of(subject.spec), **refused_by(subject)}
    for name in sorted({*listed, *now}):
        if listed.get(name) != now.get(name):
            fix = f"if callers may see that, python -m {__spec__.name} {folder.name}"
            raise AssertionError(f"{op}: {FILE} has {name}={listed.get(name)}, the spec {now.get(name)}; {fix}")


def refused_by(subject: Subject) -> dict[str, str]:
    """By name of a field the values that some requirement refuses, with what the first of them raises.

    Of two flags also those that are refused together alone.
    """
    spec, base = subject.spec, subject.values(subject.spec.tests.cases[0])
    fields = {name: _TRIED.get(field.type, ()) for name, field in spec.descriptor.items()}
    tried = {(name,): [(value,) for value in values] for name, values in fields.items()}
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
    layouts = spec.layouts.items() if isinstance(spec, BodySpec) else ()
    contiguous = {f"{name} along": " ".join(f"{n}[{axis}]" for n, axis in axes.items()) for name, axes in layouts}
    return {**fields, **types, **absent, **promised, **places, **contiguous}


def main(folder: str) -> None:
    """Write the list."""
    loaded = load_folder(Path(folder))
    subjects = {op: Subject(one, loaded, "baracuda.generated") for op, one in sorted(loaded.items())}
    specs = {op: {**defaults_of(subject.spec), **refused_by(subject)} for op, subject in subjects.items()}
    lines = (f"  {json.dumps(op)}: {json.dumps(entries)}" for op, entries in specs.items())
    (Path(folder) / FILE).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
