"""Where in the kernel's text an instruction of its library comes from."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

_PC = re.compile(r"pc 0x([0-9a-f]+)")
_VOCABULARY = "baracuda_host"  # its functions stand for instructions: the place is that of their caller


def with_places(findings: str, library: Path, symbolizer: Sequence[str]) -> str:
    """`findings` with each "pc 0x..." replaced by the place in the text, innermost call first.

    Without a symbolizer, a program that understands the arguments of addr2line, the pc stays.
    """

    def place(match: re.Match[str]) -> str:
        return " <- ".join(_frames(library, int(match[1], 16), tuple(symbolizer))) or match[0]

    return _PC.sub(place, findings)


@lru_cache(maxsize=1024)
def _frames(library: Path, pc: int, symbolizer: tuple[str, ...]) -> tuple[str, ...]:
    command = [*symbolizer, "-i", "-e", str(library), hex(pc - 1)]  # a return address follows the call
    try:
        output = subprocess.run(command, capture_output=True, text=True).stdout
    except OSError:
        return ()
    frames = []
    for line in output.splitlines():
        file, _, number = line.split(" (")[0].rpartition(":")
        if "?" not in line and _VOCABULARY not in file and "(entry point)" not in line:
            frames.append(f"{file.rpartition('/')[2]}:{number}")
    return tuple(frames)
