"""What callers get when they say nothing, compared with a list beside the specs that only people change.

``python -m baracuda.checking.verify.defaults SPECS`` writes the list of a folder of specs. A folder without one is not
compared.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from baracuda.codegen.spec.load import load_folder
from baracuda.codegen.spec.spec import OpSpec

FILE = "defaults.json"  # in the folder of specs


def check_defaults(spec: OpSpec, folder: Path) -> None:
    """Defaults of fields, usual element types and stand-ins for absent inputs are those of the list."""
    path = folder / FILE
    if not path.is_file():
        return
    listed, now = json.loads(path.read_text(encoding="utf-8")).get(spec.op, {}), defaults_of(spec)
    for name in sorted({*listed, *now}):
        if listed.get(name) != now.get(name):
            fix = f"if callers may see that, python -m {__spec__.name} {folder.name}"
            raise AssertionError(f"{spec.op}: {FILE} has {name}={listed.get(name)}, the spec {now.get(name)}; {fix}")


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
    specs = {op: defaults_of(loaded.spec) for op, loaded in sorted(load_folder(Path(folder)).items())}
    lines = (f"  {json.dumps(op)}: {json.dumps(defaults)}" for op, defaults in specs.items())
    (Path(folder) / FILE).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
