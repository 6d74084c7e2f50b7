"""Keys of compiled kernels: whatever may differ between two kernels differs in the keys under which they are kept."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from baracuda.runtime import get_device
from baracuda.runtime.compile.cubin import INCLUDE, cubin_key, key_parts
from baracuda.runtime.compile.headers import header_digests
from baracuda.runtime.compile.kernel_key import kernel_key
from baracuda.runtime.device import KernelSource
from baracuda.runtime.host import build
from baracuda.runtime.host.build import Builder

from ..problems.problem import Problem

# Another value of each field of a source.
_OTHER: dict[str, Any] = {
    "path": lambda path: f"other/{path}",
    "text": lambda text: f"{text}\n",
    "symbol": lambda symbol: f"{symbol}_2",
    "defines": lambda defines: (*defines[:-1], f"{defines[-1]}0"),
    "contraction": lambda flag: not flag,
    "flush_subnormals": lambda flag: not flag,
    "dynamic_shared": lambda size: size + 16,
    "arch": lambda arch: "" if arch else "sm_90a",
}
# What a launch or a device is told beside the code; macros carry the sizes that code reads.
_NOT_CODE = frozenset({"dynamic_shared", "arch"})
_NOT_ON_THE_HOST = frozenset({"flush_subnormals"})  # it keeps subnormals


def check_keys(problem: Problem) -> None:
    """Each field of a source, each header that it reaches, the architecture and check mode change the keys."""
    source = next(iter(problem.plan.sources()))
    unknown = {field.name for field in fields(KernelSource)} - _OTHER.keys()
    if unknown:
        raise AssertionError(f"say what another value of {', '.join(sorted(unknown))} of a source is, in {__name__}")
    changed = {name: replace(source, **{name: other(getattr(source, name))}) for name, other in _OTHER.items()}
    _require_distinct("the host device", source, changed, _NOT_CODE | _NOT_ON_THE_HOST, _host_key)
    if _host_key(source, check=True) == _host_key(source):
        raise AssertionError(f"{source.symbol}: the host device keeps check mode's code under the key of the other")
    for other in changed.values():  # and what was loaded is looked up by the whole source
        if other == source or hash(other) == hash(source):
            raise AssertionError(f"{source.symbol}: a source that differs counts as the same")
    _check_gpu_key("a pack", source, changed, _packed_key)
    if find_spec("cuda") is not None:
        _check_gpu_key("the cubin cache", source, changed, _cubin_key)
        _require_distinct("key_parts", source, changed, _NOT_CODE, lambda of: key_parts(of, "sm_80"))
    _check_headers(source)


def _check_gpu_key(cache: str, source: KernelSource, changed: Any, key: Any) -> None:
    _require_distinct(cache, source, changed, _NOT_CODE, key)
    if key(source) == key(source, "sm_90"):
        raise AssertionError(f"{source.symbol}: {cache} keeps code for sm_90 under the key of sm_80's")
    with _environment("BARACUDA_LINEINFO", "0" if os.environ.get("BARACUDA_LINEINFO") == "1" else "1"):
        other_lines = key(source)
    if other_lines == key(source):
        raise AssertionError(f"{source.symbol}: {cache} has one key for code with and without lines")


def _require_distinct(cache: str, source: KernelSource, changed: Any, exempt: frozenset[str], key: Any) -> None:
    for name, other in changed.items():
        if name not in exempt and key(other) == key(source):
            raise AssertionError(f"{source.symbol}: {cache} has one key for two sources with other {name}")


def _check_headers(source: KernelSource) -> None:
    with TemporaryDirectory(prefix="baracuda-headers-") as folder:
        include = Path(folder, "include")
        shutil.copytree(INCLUDE, include)
        names = [name for name, _ in header_digests(source.text, include)]
        for name in names:
            before = _keys(source, include)
            with Path(include, name).open("a", encoding="utf-8") as header:
                header.write("\n// another\n")
            for cache, (old, new) in enumerate(zip(before, _keys(source, include), strict=True)):
                if old == new:
                    caches = "the host device", "a pack", "the cubin cache"
                    raise AssertionError(f"{source.symbol}: {caches[cache]} has the same key after a change of {name}")


def _keys(source: KernelSource, include: Path) -> list[object]:
    module: Any = build
    before, module.DEVICE_HEADERS = module.DEVICE_HEADERS, include
    try:
        keys: list[object] = [_host_key(source), _packed_key(source, include=include)]
    finally:
        module.DEVICE_HEADERS = before
    return [*keys, _cubin_key(source, include=include)] if find_spec("cuda") is not None else keys


def _host_key(source: KernelSource, *, check: bool = False) -> object:
    """The name of the file that a source is built to."""
    host: Any = get_device("host")
    builder = Builder(host._builder.toolchain, _Names())  # type: ignore[arg-type]
    return builder.kernel(source, lambda path: path, check=check)


def _packed_key(source: KernelSource, arch: str = "sm_80", include: Path = INCLUDE) -> str:
    return kernel_key(source, arch, include=include)


def _cubin_key(source: KernelSource, arch: str = "sm_80", include: Path = INCLUDE) -> bytes:
    return cubin_key(source, arch, include=include)


class _Names:
    """A cache that builds nothing and returns names."""

    def load(self, name: str, *arguments: object, **options: object) -> str:
        return name


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
