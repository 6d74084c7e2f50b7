"""What a pack's folder holds.

`manifest.json` says what the pack is and has the digests of the files in `kernels`. These have a line for each kernel,
sorted by key, a file for each first digit of a key, so that little of a large pack is read to find a kernel. A line has
the digest of the kernel's code, which names the file in `code`. Code is compressed there, to a quarter.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

FORMAT = 1
MANIFEST, KERNELS, CODE, SIGNATURE = "manifest.json", "kernels", "code", "manifest.sig"
ENTRY_POINTS = "baracuda.packs"  # the group in which wheels name the package that is their pack
PATHS, PUBLIC_KEY = "BARACUDA_PACKS", "BARACUDA_PACK_KEY"


def digest_of(content: bytes) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(content).hexdigest()


def manifest_text(facts: Mapping[str, Any]) -> str:
    """A manifest with a digest of its own facts."""
    return json.dumps({**facts, "digest": facts_digest(facts)}, indent=1, sort_keys=True) + "\n"


def facts_digest(facts: Mapping[str, Any]) -> str:
    """A digest of all facts of a manifest but the digest."""
    own = {name: value for name, value in facts.items() if name != "digest"}
    return digest_of(json.dumps(own, sort_keys=True).encode())


def lines_name(key: str) -> str:
    """The file with the line of a kernel."""
    return f"{KERNELS}/{key[:1]}.jsonl"


def line_start(key: str) -> bytes:
    """How the line of a kernel begins."""
    return f'{{"key": "{key}"'.encode()


def code_name(digest: str, arch: str) -> str:
    """The file of a kernel's code, by the digest of what is in it: PTX, if it is for a virtual architecture."""
    return f"{CODE}/{digest}.{'ptx' if arch.startswith('compute_') else 'cubin'}.zlib"
