"""The facts of a compiled kernel: a function of source, compiler and architecture, cached as such."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any

from baracuda.runtime import Resources
from baracuda.runtime.cache.entries import EntryStore, entry_store
from baracuda.runtime.cache.root import cache_root
from baracuda.runtime.compile.cubin import Assembly

from .image import code_digest
from .ptx import Ptx, read_ptx, unread_variables
from .sass import Sass, disassembler

_REVISION = 7  # of how facts are read; entries of another revision are not found
_SERIALISED = re.compile(r"^.*\bwgmma\b.*\bserialized\b.*$", re.MULTILINE)


@dataclass(frozen=True)
class Facts:
    """What rules look at."""

    resources: Resources
    ptx: Ptx
    sass: Sass
    hidden: dict[str, int]  # contracted and flushing operations that only a strict compilation brings to light
    serialised: tuple[str, ...]  # the assembler's complaints about wgmma
    digest: str  # of all that is executed

    @property
    def widest_load(self) -> int:
        """Bytes of the widest global load; 0 if there is none."""
        return max(self.sass.loads, default=0)

    @property
    def widest_store(self) -> int:
        return max(self.sass.stores, default=0)


def facts_of(assembly: Assembly, sass: Sass, strict: Callable[[], Assembly]) -> Facts:
    """The facts of a compilation; `strict` compiles the same source without contraction and flushing."""
    ptx = read_ptx(assembly.ptx)
    hidden = ptx.beyond(read_ptx(strict().ptx)) if ptx.doubtful else {}
    digest = code_digest(assembly.cubin.image, unread_variables(assembly.ptx))
    return Facts(assembly.cubin.resources, ptx, sass, hidden, serialised(assembly.log), digest)


def serialised(log: str) -> tuple[str, ...]:
    """The assembler's warnings about serialised wgmma instructions, each once."""
    return tuple(dict.fromkeys(line.strip() for line in _SERIALISED.findall(log)))


def facts_store() -> EntryStore:
    return entry_store(cache_root() / "audit")


def facts_key(cubin_key: bytes) -> bytes:
    """The cache key of the facts of a cubin."""
    schema = [f.name for part in (Facts, Ptx, Sass, Resources) for f in fields(part)]
    text = f"{_REVISION} {disassembler()[1]} {' '.join(schema)}".encode()
    return hashlib.sha256(text + cubin_key, usedforsecurity=False).digest()


def encode(facts: Facts) -> bytes:
    """As JSON, without the compilation time."""
    return json.dumps({**asdict(facts), "resources": {**asdict(facts.resources), "seconds": 0.0}}).encode()


def decode(body: bytes) -> Facts:
    facts = json.loads(body)
    ptx, sass = facts["ptx"], facts["sass"]
    for side in ("loads", "stores"):
        ptx[side] = {offset: _numbered(widths) for offset, widths in _numbered(ptx[side]).items()}
        sass[side] = _numbered(sass[side])
    resources, serialised = Resources(**facts["resources"]), tuple(facts["serialised"])
    return Facts(resources, Ptx(**ptx), Sass(**sass), facts["hidden"], serialised, facts["digest"])


def _numbered(mapping: dict[str, Any]) -> dict[int, Any]:
    """Widths and offsets as numbers, which JSON has no keys for."""
    return {int(key): value for key, value in mapping.items()}
