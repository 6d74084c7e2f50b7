"""What callers may say, and get when they say nothing, compared with a list beside the specs that only people change.

``python -m baracuda.checking.verify.defaults SPECS`` writes the list of a folder of specs. A folder without one is not
compared.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from baracuda.codegen.conditions.parse import ConditionError, evaluate_condition
from baracuda.codegen.spec.load import load_folder
from baracuda.codegen.spec.spec import OpSpec

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
    """Defaults of fields, usual types, stand-ins for absent inputs, guarantees and refused values are those listed."""
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
    """By name of a field, the values that some requirement refuses, and what the first of them raises."""
    base = subject.values(subject.spec.tests.cases[0])
    refused = {}
    for name, field in subject.spec.descriptor.items():
        errors = {value: _error(subject.spec, {**base, name: value}) for value in _TRIED.get(field.type, ())}
        of_errors = {error: [v for v, of in errors.items() if of == error] for error in errors.values() if error}
        if of_errors:
            listed = (f"{' '.join(map(str, values))} ({error})" for error, values in of_errors.items())
            refused[f"{name} refused"] = ", ".join(listed)
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
    return {**fields, **types, **absent, **promised}


def main(folder: str) -> None:
    """Write the list."""
    loaded = load_folder(Path(folder))
    subjects = {op: Subject(one, loaded, "baracuda.generated") for op, one in sorted(loaded.items())}
    specs = {op: {**defaults_of(subject.spec), **refused_by(subject)} for op, subject in subjects.items()}
    lines = (f"  {json.dumps(op)}: {json.dumps(entries)}" for op, entries in specs.items())
    (Path(folder) / FILE).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
