"""The key of a kernel in packs: all that its machine code follows from, but the compiler."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from ..device import KernelSource
from .headers import INCLUDE, header_digest
from .options import options_of


def kernel_key(source: KernelSource, arch: str, *, include: Path = INCLUDE) -> str:
    """64 hexadecimal digits for `source` on `arch` ("sm_90", "sm_90a"; "compute_90" is PTX).

    Unlike `cubin_key` it names no NVRTC, so that it is known where there is none.
    """
    facts = [
        arch,
        source.path,
        source.symbol,
        source.defines,
        options_of(source),
        text_digest(source),
        header_digest(source.text, include).hex(),
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def text_digest(source: KernelSource) -> str:
    """64 hexadecimal digits for the generated text."""
    return hashlib.sha256(source.text.encode()).hexdigest()
