"""Machine code from packs: for the architecture asked for, or one whose code it runs too."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..device import Cubin, KernelSource, Resources
from ..observe import log
from ..packs.found import packs
from ..packs.pack import Pack
from ..values import one_line
from .headers import INCLUDE, header_digests
from .kernel_key import kernel_key, text_digest

_SHOWN = 3  # headers in a message


def packed_cubin(source: KernelSource, arch: str) -> Cubin | None:
    """The code of `source` for `arch` in the first pack that has it, or None. Raises PackError for a damaged pack."""
    if (cubin := _found(source, arch)) is None:
        others = stand_ins(arch, {of for pack in packs() for of in pack.archs} - {arch})
        cubin = next((code for other in others if (code := _found(source, other))), None)
    return cubin


def _found(source: KernelSource, arch: str) -> Cubin | None:
    """The code for exactly this architecture."""
    key = ""
    for pack in packs():
        if arch in pack.archs:
            key = key or kernel_key(source, arch)
            if kernel := pack.get(key):
                log.debug("%s is in the pack %s, for %s", source.symbol, pack.folder, arch)
                return Cubin(kernel.code, Resources(**kernel.facts["resources"], seconds=0.0))
    return None


def stand_ins(arch: str, packed: Iterable[str]) -> list[str]:
    """Those of the architectures `packed` whose code runs on `arch`: itself, its generation's before it, then PTX."""
    if not (number := arch[3:]).isdigit():  # with a letter, the code runs nowhere else
        return [arch] if arch in packed else []
    own = int(number)
    plain = sorted((int(of[3:]) for of in packed if of[:3] == "sm_" and of[3:].isdigit()), reverse=True)
    virtual = sorted((int(of[8:]) for of in packed if of[:8] == "compute_"), reverse=True)
    binary = [f"sm_{of}" for of in plain if of <= own and of // 10 == own // 10]
    return binary + [f"compute_{of}" for of in virtual if of <= own]


def why_not_packed(source: KernelSource, arch: str, *, include: Path = INCLUDE) -> str:
    """Why no pack has the kernel, in a few words: the nearest thing that one has."""
    if not (found := tuple(packs())):
        return "no pack is installed"
    return ", ".join([f"the pack {one_line(pack.folder)} {_lack(pack, source, arch, include)}" for pack in found])


def _lack(pack: Pack, source: KernelSource, arch: str, include: Path) -> str:
    kernels = list(pack.named(source.symbol))
    if not kernels:
        return "lacks it"
    if not (here := [of for of in kernels if of["arch"] in stand_ins(arch, pack.archs)]):
        return f"has it for {', '.join(sorted({of['arch'] for of in kernels}))}"
    variants = [of for of in here if of["constants"] == list(source.defines)]
    if not variants:
        return "has other variants of it"
    if all(of["text"] != text_digest(source) for of in variants):
        return "has it from another generated text"
    if changed := _changed(pack, source, include):
        return f"has it from other headers ({changed})"
    if any(pack.get(kernel_key(source, of["arch"], include=include)) for of in variants):
        return "has it, but packs are not read where another one is made"
    return "has it with other compiler options"


def _changed(pack: Pack, source: KernelSource, include: Path) -> str:
    """The headers that the source reaches and that the pack was not made from."""
    reached = header_digests(source.text, include)
    names = [name for name, digest in reached if pack.facts["headers"].get(name) != digest.hex()]
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
