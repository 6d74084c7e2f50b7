"""The files of a pack, in memory; and its folder, which is there as a whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import Any

from baracuda.runtime import InvalidProblem
from baracuda.runtime.compile.cubin import nvrtc_build, nvrtc_version
from baracuda.runtime.compile.headers import INCLUDE, header_digests
from baracuda.runtime.compile.kernel_key import kernel_key, text_digest
from baracuda.runtime.compile.options import options_of
from baracuda.runtime.device import Cubin
from baracuda.runtime.packs.layout import (
    FORMAT,
    KERNELS,
    MANIFEST,
    code_name,
    digest_of,
    lines_name,
    manifest_text,
)

from .wanted import Wanted

Files = dict[str, bytes]  # content by path
_OF_A_SOURCE = ("fma", "ftz")  # options that differ between sources


def files_of(compiled: Iterable[tuple[Wanted, Cubin]], licence: str) -> Files:
    """The files of a pack: the same bytes for the same kernels from the same compiler."""
    files: Files = {}
    lines: dict[str, dict[str, Any]] = {}
    headers: dict[str, str] = {}
    archs: set[str] = set()
    for kernel, cubin in compiled:
        digest = digest_of(cubin.image)
        files[code_name(digest, kernel.arch)] = zlib.compress(cubin.image, 9)
        key = kernel_key(kernel.source, kernel.arch)
        lines[key] = {"key": key, "code": digest, "bytes": len(cubin.image), **_facts(kernel, cubin)}
        headers |= {name: of.hex() for name, of in header_digests(kernel.source.text, INCLUDE)}
        archs.add(kernel.arch)
    tables = {
        name: "".join([f"{json.dumps(lines[key])}\n" for key in keys]).encode()
        for name, keys in groupby(sorted(lines), key=lines_name)
    }
    facts = {
        "format": FORMAT,
        "made by": f"baracuda-gen {own_version()}",
        "NVRTC": nvrtc_version(),
        "NVRTC build": nvrtc_build(),
        "licence": licence,
        "architectures": sorted(archs),
        "options": _shared_options(kernel.source for kernel, _ in compiled),
        "headers": headers,
        KERNELS: {name: digest_of(table) for name, table in tables.items()},
    }
    return {MANIFEST: manifest_text(facts).encode(), **tables, **dict(sorted(files.items()))}


def own_version() -> str:
    """The version whose plans find the pack. Raises InvalidProblem where only its folder is there."""
    try:
        return version("baracuda-gen")
    except PackageNotFoundError:
        raise InvalidProblem("baracuda-gen is not installed, so no pack can say which version it is for") from None


def _shared_options(sources: Iterable[Any]) -> dict[str, object]:
    options = options_of(next(iter(sources)))
    return {name: value for name, value in options.items() if name not in _OF_A_SOURCE}


def _facts(kernel: Wanted, cubin: Cubin) -> dict[str, Any]:
    source, options, resources = kernel.source, options_of(kernel.source), asdict(cubin.resources)
    del resources["seconds"]  # which no two compilations share
    return {
        "arch": kernel.arch,
        "kernel": source.symbol,
        "file": source.path,
        "sku": str(kernel.sku),
        "guarantee": str(kernel.sku.precision_guarantee),
        "text": text_digest(source),
        "constants": source.defines,
        "options": {name: options[name] for name in _OF_A_SOURCE},
        "resources": resources,
    }


def refuse_other(folder: Path, mark: str = MANIFEST) -> None:
    """Raise InvalidProblem for a folder that is not empty and lacks the file `mark`: only a pack is replaced."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / mark).is_file():
        raise InvalidProblem(f"{folder} is no pack and not empty; name another folder with --out")


def write_folder(folder: Path, files: Mapping[str, bytes], mark: str = MANIFEST) -> None:
    """Write `files` beside `folder` and move them there at the end, also in the place of what `refuse_other` allows."""
    refuse_other(folder, mark)
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    made, before = (folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.baracuda-tmp") for _ in range(2))
    try:
        for name, content in files.items():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).write_bytes(content)
        if folder.exists():
            os.rename(folder, before)
        os.rename(made, folder)
    finally:
        for left in (made, before):
            shutil.rmtree(left, ignore_errors=True)
