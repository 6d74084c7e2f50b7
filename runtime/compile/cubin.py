"""From a generated source to machine code: NVRTC with fixed flags, and a cache on disk."""

from __future__ import annotations

import hashlib
import io
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass, fields
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from ..cache.root import cache_root
from ..device import Cubin, KernelSource, Resources
from ..errors import CompileError, NotCompiled
from ..observe import compiling, log
from .cubin_store import cubin_store
from .forks import unforked
from .headers import INCLUDE, header_digest, header_digests
from .kernel_key import kernel_key
from .line_map import with_line_directives
from .message import compiler_message
from .options import options_of
from .packed import why_not_packed
from .provenance import MAKER, Parts

if TYPE_CHECKING:
    from cuda.core import ProgramOptions

__all__ = [
    "INCLUDE",
    "Assembly",
    "Cubin",
    "assemble",
    "assert_not_frozen",
    "compile_cubin",
    "compile_many",
    "compile_ptx",
    "cubin_key",
    "key_parts",
    "nvrtc_build",
    "nvrtc_version",
    "program_options",
    "supported_archs",
]

_DEFINE = b"--define-macro="
_DIGITS = 16  # of a digest that is only compared
# Of what is stored beside the image: entries of another schema are not found.
_SCHEMA = "1 " + " ".join(field.name for field in fields(Resources))


def compile_cubin(
    source: KernelSource, arch: str, *, folder: Path | None = None, include: Path = INCLUDE
) -> Cubin:
    """Machine code of `source.symbol` for `arch` ("sm_90", "sm_90a"), from the cache `folder` or from NVRTC.

    `folder` is by default `cache_root() / "cubin"`; threads and processes that share it compile a key once. Raises
    CompileError if NVRTC is missing or rejects the source, or if BARACUDA_FROZEN=1 and the cache lacks the entry.
    """
    store = cubin_store(folder or cache_root() / "cubin")
    try:
        key = cubin_key(source, arch, include=include)
    except CompileError:  # without NVRTC no key of the cache is known
        assert_not_frozen(source, arch, store.folder, include=include)
        raise
    if cubin := store.get(key):
        log.debug("%s for %s is in the cache", source.symbol, arch)
        return cubin
    assert_not_frozen(source, arch, store.folder, include=include)
    with store.lock(key):
        cubin = store.get(key)
        if cubin is None:
            with compiling(source.symbol, arch):
                cubin = assemble(source, arch, include=include).cubin
            used = cubin.resources
            text = "compiled %s for %s in %.2f s: %d registers, %d bytes spilled"
            log.info(text, source.symbol, arch, used.seconds, used.registers, used.spill_bytes)
            store.put(key, cubin, key_parts(source, arch, include=include))
        return cubin


def assert_not_frozen(source: KernelSource, arch: str, folder: Path, *, include: Path = INCLUDE) -> None:
    """Raise NotCompiled if BARACUDA_FROZEN=1 forbids compiling what neither a pack nor the cache `folder` has."""
    if os.environ.get("BARACUDA_FROZEN") == "1":
        raise NotCompiled(
            f"kernel {source.symbol!r} of {source.path!r} for {arch} (key {kernel_key(source, arch, include=include)}) "
            f"is not in the cache {folder}, {why_not_packed(source, arch, include=include)}, and BARACUDA_FROZEN=1 "
            "forbids compiling it"
        )


def compile_many(
    jobs: Sequence[tuple[KernelSource, str]],
    *,
    on_done: Callable[[int, Cubin | CompileError], None],
    workers: int | None = None,
    executor: Executor | None = None,
) -> None:
    """`compile_cubin` of every (source, arch); calls `on_done(index, outcome)` in this thread as each is ready.

    It runs in `executor`, whose workers may have other caches, or else in `workers` threads, by default as many as the
    cores that this process may use.
    """
    # Threads: NVRTC works outside the interpreter lock. 40 distinct block reductions on 2 cores, NVRTC 12.9:
    # 1.6 s one by one, 0.87 s with 2 threads, 1.1 s with 2 processes (13.5: 1.7, 1.0 and 1.4 s).
    with nullcontext(executor) if executor else ThreadPoolExecutor(workers or len(os.sched_getaffinity(0))) as pool:
        running: dict[Future[Cubin], int] = {}
        for index, job in enumerate(jobs):
            if executor and (cubin := _cached(*job)):
                on_done(index, cubin)
            else:
                running[pool.submit(compile_cubin, *job)] = index
        try:
            for done in as_completed(running):
                index, error = running[done], done.exception()
                outcome = error if isinstance(error, CompileError) else done.result()
                if executor and isinstance(outcome, Cubin):
                    _keep(*jobs[index], outcome)
                on_done(index, outcome)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _cached(source: KernelSource, arch: str) -> Cubin | None:
    return cubin_store(cache_root() / "cubin").get(cubin_key(source, arch))


def _keep(source: KernelSource, arch: str, cubin: Cubin) -> None:
    """Put into this machine's cache what a worker compiled, unless that has the same cache."""
    store, key = cubin_store(cache_root() / "cubin"), cubin_key(source, arch)
    if store.get(key) is None:
        store.put(key, cubin, key_parts(source, arch))


def supported_archs() -> frozenset[str]:
    """The architectures that the installed NVRTC supports, without those with a letter suffix."""
    nvrtc_build()
    from cuda.bindings import nvrtc

    _, count = nvrtc.nvrtcGetNumSupportedArchs()
    _, numbers = nvrtc.nvrtcGetSupportedArchs()
    return frozenset(f"sm_{number}" for number in numbers[:count])


def nvrtc_version() -> str:
    """The version of the installed NVRTC, major.minor."""
    nvrtc_build()
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    return f"{major}.{minor}"


def cubin_key(source: KernelSource, arch: str, *, include: Path = INCLUDE) -> bytes:
    """32 bytes that identify everything that determines the machine code, without paths or times."""
    build = nvrtc_build()
    from cuda.core.utils import make_program_cache_key

    facts = f"{_SCHEMA}\0{build}\0{source.symbol}\0".encode() + header_digest(source.text, include)
    key: bytes = make_program_cache_key(
        code=with_line_directives(source.text),
        code_type="c++",
        options=program_options(source, arch, include=None),
        target_type="cubin",
        extra_digest=hashlib.sha256(facts, usedforsecurity=False).digest(),
    )
    return key


def key_parts(source: KernelSource, arch: str, *, include: Path = INCLUDE) -> Parts:
    """The inputs of `cubin_key` by name: keys are equal if all of these are. Raises CompileError without NVRTC.

    Texts are digested. The version of cuda-core, which makes the key, is one of them.
    """
    flags = program_options(source, arch, include=None).as_bytes("nvrtc", "cubin")
    options = dict(option.decode().partition("=")[::2] for option in flags if not option.startswith(_DEFINE))
    constants = dict(define.partition("=")[::2] for define in source.defines)
    return {
        "kernel": source.symbol,
        "file": source.path,
        "architecture": options.pop("-arch"),
        "NVRTC": nvrtc_version(),
        "NVRTC build": nvrtc_build(),
        "text": _digest(source.text.encode()),
        **{f"header {name}": digest.hex()[:_DIGITS] for name, digest in header_digests(source.text, include)},
        **{f"constant {name}": value for name, value in constants.items()},
        **{f"option {name}": value for name, value in options.items()},
        "entry format": _SCHEMA,
        MAKER: version("cuda-core"),
    }


def _digest(data: bytes) -> str:
    return hashlib.sha256(data, usedforsecurity=False).hexdigest()[:_DIGITS]


def program_options(source: KernelSource, arch: str, *, include: Path | None = INCLUDE) -> ProgramOptions:
    """The compiler flags of `source`."""
    from cuda.core import ProgramOptions

    return ProgramOptions(
        name=source.path,
        arch=arch,
        define_macro=list(source.defines) or None,
        include_path=[os.fspath(include)] if include else None,
        **options_of(source),
    )


@dataclass(frozen=True, slots=True)
class Assembly:
    """A compilation: machine code, PTX, and the compiler's messages."""

    cubin: Cubin
    ptx: str
    log: str


def assemble(source: KernelSource, arch: str, *, include: Path = INCLUDE) -> Assembly:
    """Compile without any cache. Raises CompileError."""
    nvrtc_build()
    from cuda.bindings import nvrtc
    from cuda.core import Program

    report = io.StringIO()
    start = time.perf_counter()
    try:
        with unforked():
            options = program_options(source, arch, include=include)
            program = Program(with_line_directives(source.text), "c++", options=options)
            image = bytes(program.compile("cubin", logs=report).code)
    except Exception as error:  # cuda.core does not export the class it raises; its text is the whole log
        raise CompileError(compiler_message(str(error), source, arch, include)) from None
    seconds = time.perf_counter() - start
    if f"\0.text.{source.symbol}\0".encode() not in image:
        raise CompileError(f"{source.path!r} compiles for {arch} but defines no kernel {source.symbol!r}")
    _, size = nvrtc.nvrtcGetPTXSize(program.handle)
    ptx = bytearray(size)
    nvrtc.nvrtcGetPTX(program.handle, ptx)
    log = report.getvalue()
    return Assembly(Cubin(image, _resources(log, source.symbol, seconds)), ptx.rstrip(b"\0").decode(), log)


def compile_ptx(source: KernelSource, arch: str, *, include: Path = INCLUDE) -> str:
    """PTX of `source` for `arch`, without machine code and without any cache. Raises CompileError."""
    nvrtc_build()
    from cuda.bindings import nvrtc

    flags = program_options(source, arch.replace("sm_", "compute_"), include=include).as_bytes("nvrtc", "cubin")
    with unforked():
        given = with_line_directives(source.text).encode()
        _, program = nvrtc.nvrtcCreateProgram(given, source.path.encode(), 0, [], [])
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        done = status == nvrtc.nvrtcResult.NVRTC_SUCCESS
        _, size = nvrtc.nvrtcGetPTXSize(program) if done else nvrtc.nvrtcGetProgramLogSize(program)
        text = bytearray(size)
        (nvrtc.nvrtcGetPTX if done else nvrtc.nvrtcGetProgramLog)(program, text)
        nvrtc.nvrtcDestroyProgram(program)
    said = text.rstrip(b"\0").decode()
    if not done:
        raise CompileError(compiler_message(said, source, arch, include))
    return said


def _resources(report: str, symbol: str, seconds: float) -> Resources:
    """Parse ptxas' report on `symbol`; facts it leaves out are 0."""
    entry = "Compiling entry function"
    section = report.partition(f"{entry} '{symbol}'")[2].partition(entry)[0]

    def fact(unit: str) -> int:
        match = re.search(rf"(\d+) {unit}", section)
        return int(match[1]) if match else 0

    return Resources(
        registers=fact("registers"),
        shared_bytes=fact("bytes smem"),
        stack_bytes=max(fact("bytes stack frame"), fact("bytes cumulative stack size")),
        spill_bytes=fact("bytes spill stores") + fact("bytes spill loads"),
        seconds=seconds,
    )


_importing = threading.Lock()  # cuda.core imported by two threads at once is half there for one of them


def nvrtc_build() -> str:
    """Size of the NVRTC library, which distinguishes builds with the same version."""
    with unforked(), _importing:
        return _nvrtc_size()


@cache
def _nvrtc_size() -> str:
    try:
        import cuda.core  # noqa: F401
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = load_nvidia_dynamic_lib("nvrtc").abs_path
    except (ImportError, RuntimeError) as error:
        raise CompileError(
            f"no NVRTC to compile with ({str(error).splitlines()[0]}); "
            "pip install 'baracuda-gen[cuda12]' or 'baracuda-gen[cuda13]', whichever the driver supports"
        ) from None
    return str(os.path.getsize(path)) if path else ""
