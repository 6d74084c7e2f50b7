"""The version of the language that specs are written in, which their folder's `schema.json` says."""

from __future__ import annotations

import re
from pathlib import Path

from baracuda.runtime import SpecError
from baracuda.runtime.plans.tuned import MARK

from .yaml_text import display_path

FILE = "schema.json"  # in the folder of specs
KEY = "x-language"
VERSION = 2
REMOVED = {"kind": 1}  # top-level key -> the last version that had it
_START = 4096  # bytes of the file, in which the version is


def version_of(specs: Path) -> int:
    """The version of a folder of specs; today's where it has no schema of ours."""
    path = specs / FILE
    if not path.is_file():
        return VERSION
    with path.open("rb") as file:
        start = file.read(_START).decode(errors="replace")
    if MARK not in start:
        return VERSION
    found = re.search(rf'"{KEY}": ([0-9]{{1,6}})', start)
    return int(found[1]) if found else 1


def refuse_other_version(specs: Path) -> None:
    """Raise SpecError for a folder of specs of another version."""
    version = version_of(specs)
    place = f"{display_path(specs / FILE)}: specs are of language {version}"
    if version < VERSION:
        raise SpecError(f"{place}, this release reads {VERSION}; run 'baracuda-gen migrate'")
    if version > VERSION:
        raise SpecError(f"{place}, this release reads {VERSION}; install a later one")
