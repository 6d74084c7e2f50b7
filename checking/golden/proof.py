"""What golden hashes of the host device were last computed from: while that stays, so do the bits.

A digest of every file that decides them: kernels, plans and the runtime, specs with the hashes themselves, and what
draws problems; and the compiler. It is recorded beside the hashes once all of them are as recorded.
"""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

from baracuda.codegen.project import installed
from baracuda.runtime.host.toolchain import find_toolchain

from ..result_file import digest_of

FILE = "golden.txt"


def digest(specs: Path, package: str) -> str:
    """The digest of a project as it is now."""
    files = digest_of([specs, *map(installed, (package, "baracuda.runtime", "baracuda.checking", "baracuda.ops"))])
    text = f"{files} {find_toolchain().version} {platform.machine()}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def holds(specs: Path, package: str) -> bool:
    """Whether all hashes were computed from what is there now."""
    path = specs / FILE
    return path.is_file() and path.read_text(encoding="utf-8").strip() == digest(specs, package)


def record(specs: Path, package: str) -> None:
    """Say that all hashes were, as they have just been."""
    (specs / FILE).write_text(f"{digest(specs, package)}\n", encoding="utf-8")
