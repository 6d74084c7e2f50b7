"""`doctor`: whether this machine has what compiling and running kernels takes."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryFile

from baracuda.runtime import BaracudaError
from baracuda.runtime.cache.private import check_private
from baracuda.runtime.cache.root import cache_root
from baracuda.runtime.devices.cuda import CudaDevice
from baracuda.runtime.devices.driver import call, query
from baracuda.runtime.errors import PackError, UnsafeCache
from baracuda.runtime.host.toolchain import find_toolchain
from baracuda.runtime.packs.found import packs

from ..terminal import show_json, show_table

NEEDED = ("numpy", "cuda-core", "cuda-bindings")
ARRAYS = ("cupy-cuda12x", "cupy-cuda13x")
TOOLKIT_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about the machine; `missing` if something needs it and it is not there."""

    what: str
    found: str
    missing: bool = False


def doctor(*, as_json: bool = False) -> bool:
    """Print all findings; true if nothing required is missing."""
    results = findings()
    if as_json:
        show_json([asdict(finding) for finding in results])
    else:
        show_table([{"what": f.what, "found": f.found, "": "MISSING" if f.missing else ""} for f in results])
    return not any(finding.missing for finding in results)


def findings() -> list[Finding]:
    """All findings; none needs a compilation or a CUDA context."""
    return [finding for look in _LOOKS for finding in look()]


def _versions() -> Iterator[Finding]:
    missing = "not installed; pip install 'baracuda-gen[cuda12]' or '[cuda13]'"
    yield Finding("python", platform.python_version())
    yield Finding("baracuda-gen", _version("baracuda-gen") or "not installed; used from its folder")
    for name in NEEDED:
        installed = _version(name)
        yield Finding(name, installed or missing, not installed)
    cupy = [f"{name} {installed}" for name in ARRAYS if (installed := _version(name))]
    yield Finding("cupy", ", ".join(cupy) or "not installed; any other array library with DLPack will do")


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _nvrtc() -> Iterator[Finding]:
    try:
        from cuda.bindings import nvrtc
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = load_nvidia_dynamic_lib("nvrtc").abs_path
        _, major, minor = nvrtc.nvrtcVersion()
        yield Finding("nvrtc", f"{major}.{minor} ({path})")
    except (ImportError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        yield Finding("nvrtc", f"none ({reason}); no kernel can be compiled for a GPU", True)


def _gpus() -> Iterator[Finding]:
    try:
        cuda = query("cuDriverGetVersion")
    except BaracudaError as error:
        yield Finding("driver", f"none; plans run on the host device ({error})")
        return
    yield Finding("driver", f"for CUDA {cuda // 1000}.{cuda % 1000 // 10} and older")
    for ordinal in range(query("cuDeviceGetCount")):
        device, name = CudaDevice(ordinal), ctypes.create_string_buffer(256)
        call("cuDeviceGetName", name, len(name), query("cuDeviceGet", ordinal))
        yield Finding(device.name, f"{name.value.decode()}, {device.arch}")


def _compiler() -> Iterator[Finding]:
    try:
        toolchain = find_toolchain()
        yield Finding("c++ compiler", f"{' '.join(toolchain.command)}: {toolchain.version}")
    except BaracudaError as error:
        yield Finding("c++ compiler", f"none, so no host device: {error}", True)


def _cache() -> Iterator[Finding]:
    root = cache_root()
    try:
        with suppress(OSError):  # which folder cannot be written is told below
            check_private(root, root)
    except UnsafeCache as error:
        yield Finding("cache", str(error), True)
        return
    existing = next(path for path in (root, *root.parents) if os.path.exists(path))
    for folder in (existing, *root.glob("**/")):
        try:
            TemporaryFile(dir=folder).close()
        except OSError as error:
            why = f"({error.strerror}), so every process compiles anew; set BARACUDA_CACHE_DIR to another folder"
            yield Finding("cache", f"{root}: cannot write {folder} {why}", True)
            return
    files = [path for path in root.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    yield Finding("cache", f"{root}: {len(files)} files, {size / 1e6:.1f} MB")


def _packs() -> Iterator[Finding]:
    try:
        for pack in (found := tuple(packs())):
            yield Finding("pack", f"{pack.folder}: {len(pack)} kernels for {', '.join(sorted(pack.archs))}")
        if not found:
            yield Finding("pack", "none; kernels are compiled when they are first used")
    except PackError as error:
        yield Finding("pack", str(error), True)


def _toolkits() -> Iterator[Finding]:
    named = [(name, os.environ[name]) for name in TOOLKIT_VARIABLES if os.environ.get(name)]
    usual = [("", str(path)) for path in sorted(Path("/usr/local").glob("cuda*"))]
    for name, path in (*named, *usual):
        note = "" if Path(path).is_dir() else "no such folder, and "
        yield Finding("cuda toolkit", f"{f'{name}=' if name else ''}{path}: {note}not used")
    if not named and not usual:
        yield Finding("cuda toolkit", "none, and none is needed")


_LOOKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    *(_versions, _nvrtc, _gpus, _compiler),
    *(_cache, _packs, _toolkits),
)
