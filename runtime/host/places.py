"""Maps instruction addresses to source locations."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

_PCS = re.compile(r"pc 0x[0-9a-f]+(?: <- pc 0x[0-9a-f]+)*")
_SHOWN = 6  # calls
_VOCABULARY = "baracuda_host"  # its functions stand for instructions: the place is that of their caller


def with_places(findings: str, library: Path, symbolizer: Sequence[str]) -> str:
    """`findings`, with each "pc 0x... <- pc 0x..." replaced by source locations, innermost call first.

    Without a symbolizer, a program with the arguments of addr2line, the addresses stay.
    """

    def places(match: re.Match[str]) -> str:
        addresses = [int(pc.removeprefix("pc "), 16) for pc in match[0].split(" <- ")]
        frames = [frame for pc in addresses for frame in _frames(library, pc, tuple(symbolizer))]
        return " <- ".join(frames[:_SHOWN]) or match[0]

    return _PCS.sub(places, findings)


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
