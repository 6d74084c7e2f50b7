"""`make stats`: how large the generated files are and what they are made from, and how long plans take to import.

`python -m baracuda.cli.tools.stats [--json]`; `tests/unit/cli/tools/test_stats.py` holds generated files to the limits.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from baracuda.codegen.project import PACKAGE, installed

from ..terminal import show_json, show_table

COLUMNS = 120  # of the longest generated line
PER_OP = {"lines": 150, "bytes": 7_200}  # on average, the files of all ops included
_RUNS = 5  # of which the fastest import counts


@dataclass(frozen=True, slots=True)
class Size:
    """The size of some files; `columns` is the length of the longest line."""

    files: int
    lines: int
    bytes: int
    columns: int

    @classmethod
    def of(cls, paths: Iterable[Path]) -> Size:
        texts = [path.read_text(encoding="utf-8") for path in paths]
        lines = [line for text in texts for line in text.splitlines()]
        total = sum(len(text.encode()) for text in texts)
        return cls(len(texts), len(lines), total, max(map(len, lines), default=0))


def sizes() -> dict[str, Size]:
    """Generated files by kind, all of them, and what they rest on."""
    generated, runtime = _files("baracuda.generated"), _files("baracuda.runtime")
    kinds = {kind: [path for path in generated if path.suffix == kind] for kind in (".py", ".pyi", ".cu", ".json")}
    templates = [path for path in _files("baracuda.templates") if path.parent.name == "templates"]
    headers = [path for path in runtime if path.suffix == ".cuh"]
    parts = {
        **{f"generated *{suffix}": paths for suffix, paths in kinds.items()},
        "generated": generated,
        "templates": [path for path in templates if path.suffix == ".jinja"],
        "device headers": headers,
        "runtime": [path for path in runtime if path not in headers],
    }
    counted = [*generated, *parts["templates"], *runtime]
    return {name: Size.of(paths) for name, paths in {**parts, "in all": counted}.items()}


def ops() -> dict[str, dict[str, int]]:
    """Lines and bytes of the plan and the kernels of each op."""
    sources = [path for path in _files("baracuda.generated") if path.suffix == ".cu"]
    pairs = {path.stem: (Size.of([path.with_suffix(".py")]), Size.of([path])) for path in sources}
    return {
        op: {
            "plan lines": plan.lines,
            "kernel lines": kernels.lines,
            "lines": plan.lines + kernels.lines,
            "bytes": plan.bytes + kernels.bytes,
        }
        for op, (plan, kernels) in sorted(pairs.items())
    }


def import_times(modules: Mapping[str, str]) -> dict[str, float]:
    """Milliseconds that each statement takes, in a process that has imported the runtime."""
    return {name: min(_milliseconds(statement) for _ in range(_RUNS)) for name, statement in modules.items()}


def _milliseconds(statement: str) -> float:
    code = f"import time, baracuda.runtime; then = time.perf_counter(); {statement}; print(time.perf_counter() - then)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return round(1000 * float(result.stdout), 2)


def _files(package: str) -> list[Path]:
    paths = installed(package).rglob("*")
    return sorted(path for path in paths if path.is_file() and "__pycache__" not in path.parts)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(as_json: bool) -> None:
    """Print sizes of generated files, what each op weighs, and how long imports take."""
    times = import_times(
        {
            "one plan": f"import {PACKAGE}.normalization.rms_norm",
            "all plans": f"import {PACKAGE}; {PACKAGE}.import_all()",
        }
    )
    parts, by_op = sizes(), ops()
    mean = {name: round(sum(row[name] for row in by_op.values()) / len(by_op)) for name in PER_OP}
    if as_json:
        by_part = {name: asdict(size) for name, size in parts.items()}
        show_json({"sizes": by_part, "ops": by_op, "mean": mean, "import_ms": times})
        return
    show_table([{"part": name, **asdict(size)} for name, size in parts.items()])
    show_table([{"op": op, **row} for op, row in by_op.items()])
    print(f"{len(by_op)} ops, on average {mean['lines']} lines and {mean['bytes']} bytes")
    print(", ".join(f"import of {name}: {taken} ms" for name, taken in times.items()))


if __name__ == "__main__":
    main()
