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
}


def check_defaults(subject: Subject, folder: Path) -> None:
    """Defaults of fields, usual element types, stand-ins for absent inputs and refused values are those of the list."""
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
    """By name of a field, the values that some requirement refuses."""
    base = subject.values(subject.spec.tests.cases[0])
    refused = {}
    for name, field in subject.spec.descriptor.items():
        tried = [v for v in _TRIED.get(field.type, ()) if not _accepted(subject.spec, {**base, name: v})]
        if tried:
            refused[f"{name} refused"] = " ".join(map(str, tried))
    return refused


def _accepted(spec: OpSpec, values: Mapping[str, Any]) -> bool:
    try:
        return all(evaluate_condition(requirement.that, values) for requirement in spec.require)
    except ConditionError:  # has no value
        return False


def defaults_of(spec: OpSpec) -> dict[str, Any]:
    """By name of a field or argument; what must be given has none."""
    fields = {
        name: f"same as {field.same_as}" if field.same_as else field.default
        for name, field in spec.descriptor.items()
        if field.same_as or field.default is not None
    }
    types = {name: tensor.dtype[0] for name, tensor in spec.arguments.items() if tensor.dtype != ("T",)}
    absent = {f"{name} if absent": t.default for name, t in spec.inputs.items() if t.default is not None}
    return {**fields, **types, **absent}


def main(folder: str) -> None:
    """Write the list."""
    loaded = load_folder(Path(folder))
    subjects = {op: Subject(one, loaded, "baracuda.generated") for op, one in sorted(loaded.items())}
    specs = {op: {**defaults_of(subject.spec), **refused_by(subject)} for op, subject in subjects.items()}
    lines = (f"  {json.dumps(op)}: {json.dumps(entries)}" for op, entries in specs.items())
    (Path(folder) / FILE).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
