"""What gcov says about kernels that counted their branches, with the same branch of several kernels as one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from baracuda.runtime import CompileError
from baracuda.runtime.host.build import DEVICE_HEADERS, HOST_HEADERS

_ROOT = DEVICE_HEADERS.parents[1]  # of paths that #line directives name
_VOCABULARY = f"/{HOST_HEADERS.relative_to(_ROOT)}/"  # also of another checkout, which a kernel may be compiled in
_AT_ONCE = 64  # kernels that one gcov reads


class Branch(NamedTuple):
    """One way on from a line: ways are numbered from 1, and a function that is another instance may have fewer."""

    file: str
    line: int
    ways: int
    way: int

    @property
    def text(self) -> str:
        """The line of source."""
        lines = _lines(self.file)
        return lines[self.line - 1].strip() if self.line <= len(lines) else ""


def branches(folder: Path) -> dict[Branch, int]:
    """How often the kernels whose counts are in `folder` took each branch of device headers and generated code."""
    counts: dict[Branch, int] = {}
    files = sorted(path.name for path in folder.glob("*.gcda"))
    for start in range(0, len(files), _AT_ONCE):
        for report in _reports(folder, files[start : start + _AT_ONCE]):
            for branch, count in _of_kernel(report):
                counts[branch] = counts.get(branch, 0) + count
    return counts


def _reports(folder: Path, files: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    command = ["gcov", "--json-format", "--stdout", "--branch-probabilities", *files]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    except OSError as error:
        raise CompileError(f"gcov does not run: {error.strerror}; it comes with g++") from error
    if done.returncode or "version" in done.stderr:
        raise CompileError(f"gcov cannot read what kernels counted: {done.stderr.strip()}; needs that of g++")
    return map(json.loads, done.stdout.splitlines())


def _of_kernel(report: Mapping[str, Any]) -> Iterator[tuple[Branch, int]]:
    for source in report["files"]:
        name = _name(source["file"])
        for line in source["lines"] if name else ():
            ways = line["branches"]
            for number, way in enumerate(ways, 1):
                yield Branch(name, line["line_number"], len(ways), number), way["count"]


def _name(path: str) -> str:
    """The name of a source file from the root of the repository; "" of the CUDA vocabulary, which is no device code."""
    if _VOCABULARY in path or path.endswith("(entry point)") or path.startswith("/usr/"):
        return ""
    return path.removeprefix(f"{_ROOT}/")


@cache
def _lines(file: str) -> list[str]:
    path = _ROOT / file
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
