"""Functions of a project's programs: the shipped ones, and those of the file beside its specs."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from baracuda.runtime import SpecError

from ..program import ProgramError, parse_functions
from ..program.functions import Functions
from .yaml_text import display_path, is_below, read_text, report

FILE = "functions.txt"


@cache
def shipped_functions() -> Functions:
    """The functions that every program may call."""
    return _read(Path(str(files("baracuda.codegen"))) / "program" / FILE, {})


def functions_of(root: Path) -> Functions:
    """The shipped functions and those of `root`, which come first; raises SpecError with the line of an error."""
    path = root / FILE
    if not path.exists():
        return shipped_functions()
    if not is_below(path, root):
        name = root.resolve().name
        raise SpecError(f"{display_path(path)}: is a link that leads out of {name!r}; put the file itself there")
    return _read(path, shipped_functions())


def _read(path: Path, known: Functions) -> Functions:
    try:
        return {**known, **parse_functions(read_text(path), known, FILE)}
    except ProgramError as error:
        raise report([f"{display_path(path)}:{error.number}: {error}"]) from None
