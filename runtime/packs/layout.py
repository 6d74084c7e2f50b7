"""What a pack's folder holds.

`manifest.json` says what the pack is and has the digest of `kernels.jsonl`. That has a line for each kernel, sorted by
key, with the digest of its code, which names the file in `code`. Code is compressed there, to a quarter; reading it
takes 0.1 ms.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

FORMAT = 1
MANIFEST, KERNELS, CODE, SIGNATURE = "manifest.json", "kernels.jsonl", "code", "manifest.sig"
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


def line_start(key: str) -> bytes:
    """How the line of a kernel begins in `kernels.jsonl`."""
    return f'{{"key": "{key}"'.encode()


def code_name(digest: str, arch: str) -> str:
    """The file of a kernel's code, by the digest of what is in it: PTX, if it is for a virtual architecture."""
    return f"{CODE}/{digest}.{'ptx' if arch.startswith('compute_') else 'cubin'}.zlib"
