"""Disassembled machine code: the instructions that a kernel executes."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from itertools import accumulate
from pathlib import Path

from baracuda.runtime import CompileError

_DISTRIBUTION, _PROGRAM = "nvidia-cuda-nvdisasm", "bin/nvdisasm"
_LINE = re.compile(r"/\*([0-9a-f]+)\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Za-z0-9_.]*)")
_FLOAT = re.compile(r"\.(?:BF16|F16|F32|F64)(?:x\d|_V\d)?(?:\.|$)")
_ATOMIC = re.compile(r"(?:RED|ATOM)[A-Z]*\.|U?(?:BLK|TMA)RED[A-Z]*\.")
_SWAP = re.compile(r"ATOM[A-Z]*\.(?:\w+\.)*CAS")
_GLOBAL = {"LD": "loads", "LDG": "loads", "LDGSTS": "loads", "ST": "stores", "STG": "stores"}
_PRODUCTS = ("HMMA", "HGMMA", "DMMA", "DGMMA", "IMMA", "IGMMA", "QMMA", "QGMMA", "OMMA", "UTCHMMA", "UTCQMMA")
_LOCAL = ("LDL", "STL")


@dataclass(frozen=True)
class Sass:
    """Counts of instructions; widths are bytes per thread."""

    loads: Mapping[int, int] = field(default_factory=dict)  # of global memory: width -> how many
    stores: Mapping[int, int] = field(default_factory=dict)
    local: Mapping[str, int] = field(default_factory=dict)
    atomics: Mapping[str, int] = field(default_factory=dict)  # on floats, or compare-and-swap
    products: Mapping[str, int] = field(default_factory=dict)  # of tensor cores: "bf16.f32" (factors, sums) -> how many
    fused: int = 0  # multiply-adds on floats, those inside divisions and functions included


@cache
def disassembler() -> tuple[Path, str]:
    """nvdisasm of the installed package, and its version; CompileError if there is none."""
    try:
        package = distribution(_DISTRIBUTION)
    except PackageNotFoundError:
        raise CompileError(
            f"no nvdisasm to audit machine code with; pip install {_DISTRIBUTION}, which is part of "
            "'baracuda-gen[cuda12]' and 'baracuda-gen[cuda13]'"
        ) from None
    files = [f for f in package.files or () if f.as_posix().endswith(_PROGRAM)]
    if not files:
        raise CompileError(f"{_DISTRIBUTION} {package.version} holds no {_PROGRAM}; install it again")
    return Path(str(package.locate_file(files[0]))), package.version


def disassemble(codes: Sequence[bytes], arch: str) -> list[Sass]:
    """Disassemble several kernels for `arch` in one run: starting nvdisasm takes longer than a kernel."""
    program, _ = disassembler()
    with tempfile.NamedTemporaryFile(prefix="baracuda-audit-") as file:
        file.write(b"".join(codes))
        file.flush()
        command = [str(program), "--no-dataflow", "--binary", arch.replace("sm_", "SM"), file.name]
        completed = subprocess.run(command, capture_output=True, text=True)
    if completed.returncode:
        raise CompileError(f"nvdisasm does not read machine code for {arch}: {completed.stderr.strip()[:200]}")
    return _split(completed.stdout, [len(code) for code in codes])


def _split(listing: str, lengths: Sequence[int]) -> list[Sass]:
    counts: list[Counter[str]] = [Counter() for _ in lengths]
    ends = list(accumulate(lengths))
    at = 0
    for address, opcode in _LINE.findall(listing):
        while int(address, 16) >= ends[at]:
            at += 1
        counts[at][opcode] += 1
    return [_sass(count) for count in counts]


def _sass(count: Counter[str]) -> Sass:
    widths: dict[str, dict[int, int]] = {"loads": {}, "stores": {}}
    local: dict[str, int] = {}
    atomics: dict[str, int] = {}
    products: dict[str, int] = {}
    fused = 0
    for opcode, n in sorted(count.items()):
        kind, *parts = opcode.split(".")
        if kind in _GLOBAL:
            by_width = widths[_GLOBAL[kind]]
            by_width[_width(parts)] = by_width.get(_width(parts), 0) + n
        elif kind in _LOCAL:
            local[kind] = local.get(kind, 0) + n
        elif _ATOMIC.match(opcode) and (_FLOAT.search(opcode) or _SWAP.match(opcode)):
            atomics[opcode] = n
        elif kind in _PRODUCTS:
            types = _factors(kind, parts)
            products[types] = products.get(types, 0) + n
        elif kind in ("FFMA", "FFMA2", "DFMA") or (kind == "HFMA2" and "MMA" not in parts):
            fused += n
    return Sass(widths["loads"], widths["stores"], local, atomics, products, fused)


def _factors(kind: str, parts: Sequence[str]) -> str:
    """The types of a tensor-core instruction's factors and sums."""
    if kind in ("DMMA", "DGMMA"):
        return "f64.f64"
    if kind in ("IMMA", "IGMMA"):
        return "i8.i32"
    if kind in ("QMMA", "QGMMA"):
        return "f8.f32"
    if kind not in ("HMMA", "HGMMA"):
        return kind
    factors = next((named for part, named in {"BF16": "bf16", "TF32": "tf32"}.items() if part in parts), "f16")
    return f"{factors}.{'f32' if 'F32' in parts else 'f16'}"


def _width(parts: Sequence[str]) -> int:
    named = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
    return next((named[part] for part in parts if part in named), 4)
