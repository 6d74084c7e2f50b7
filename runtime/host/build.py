"""Compiles kernels to shared libraries, and the runtime library that executes them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ..compile.headers import header_digest
from ..compile.line_map import with_line_directives
from ..compile.message import compiler_message
from ..device import KernelSource
from ..errors import CompileError
from ..observe import compiling, log
from .cache import BuildCache, content, digest
from .inline_ptx import with_functions
from .library import RuntimeLibrary
from .toolchain import (
    CONTRACTION_FLAGS,
    KERNEL_FLAGS,
    RUNTIME_FLAGS,
    Toolchain,
    asynchronous_flags,
    check_flags,
    coverage_flags,
    pattern_flags,
)

_SCHEMA = 3  # of the cache keys and of what this module does with them
_HERE = Path(__file__).resolve().parent
_RUNTIME = _HERE / "src" / "runtime.cpp"
DEVICE_HEADERS = _HERE.parent / "include"
HOST_HEADERS = _HERE / "include"
VOCABULARY = "baracuda_host.h"
_INCLUDES = (f"-I{HOST_HEADERS}", f"-I{DEVICE_HEADERS}", "-include", VOCABULARY)
GPU_TEXT = "baracuda_host_gpu_text.h"
# Named one by one, because check mode's flags would add the sanitizers' own runtimes.
_LIBRARIES = ("-nodefaultlibs", "-lm", "-lc")
_COUNTERS = ("-Wl,-u,__gcov_dump", "-lgcov")  # the function writes the counts to a file
_EXPORT = """
#line 1 "{path} (entry point)"
namespace baracuda {{}}  // generated kernels are in it, and others need not be
using namespace baracuda;
#ifdef DYN_SHARED_BYTES
#define BARACUDA_HOST_DYNAMIC_SHARED (DYN_SHARED_BYTES)
#else
#define BARACUDA_HOST_DYNAMIC_SHARED 0
#endif
#ifdef BARACUDA_BLOCKS_PER_SM
#define BARACUDA_HOST_BLOCKS (BARACUDA_BLOCKS_PER_SM)
#else
#define BARACUDA_HOST_BLOCKS 1
#endif
#ifdef BARACUDA_CLUSTER
#define BARACUDA_HOST_CLUSTER BARACUDA_CLUSTER
#else
#define BARACUDA_HOST_CLUSTER 1
#endif
BARACUDA_HOST_EXPORT({symbol})
"""
_MISSING = re.compile(r"\W(\w+)\W is not a member of .baracuda_ptx.|no .*?\W(\w+)\W in namespace .baracuda_ptx.")
T = TypeVar("T")
_runtime: RuntimeLibrary | None = None  # one pool of workers per process, whichever compiler built it


class Builder:
    """Builds with one compiler into one cache; `compilations` counts kernels that were not cached."""

    def __init__(self, toolchain: Toolchain, cache: BuildCache) -> None:
        self.toolchain, self.cache = toolchain, cache
        self._compiled: list[str] = []  # symbols; threads may append at once
        self._headers: dict[str, Path] = {}  # precompiled ones, read once: 18 MB, a tenth of what a kernel takes

    @property
    def compilations(self) -> int:
        return len(self._compiled)

    def runtime(self) -> RuntimeLibrary:
        """The runtime library of this process."""
        global _runtime
        if _runtime is None:
            _runtime = self.cache.load(
                self._runtime_name(),
                self._build_runtime,
                lambda path: RuntimeLibrary(str(path)),
                label="the host runtime",
            )
        return _runtime

    def runtime_file(self) -> Path:
        """The file of the runtime library, built if it is missing."""
        return self.cache.get(self._runtime_name(), self._build_runtime)

    def _runtime_name(self) -> str:
        texts = _texts(_RUNTIME.parent), _texts(HOST_HEADERS)
        return "runtime-" + digest(_SCHEMA, texts, RUNTIME_FLAGS, self.toolchain.identity) + ".so"

    def kernel(
        self,
        source: KernelSource,
        load: Callable[[Path], T],
        *,
        check: bool = False,
        coverage: Path | None = None,
        gpu_text: str | None = None,
    ) -> T:
        """The result of `load` on the library that exports `source.symbol`, for check mode or not.

        With `coverage`, the library is in that folder, beside what gcov reads. With `gpu_text`, an architecture, it is
        compiled from the text that device headers have for it. Raises CompileError with the compiler's first errors.
        """
        extra = (asynchronous_flags if source.arch else pattern_flags)(self.toolchain)
        extra += check_flags(self.toolchain) if check else ()
        extra += coverage_flags(self.toolchain) if coverage else ()
        flags = (*KERNEL_FLAGS, *CONTRACTION_FLAGS[source.contraction], *extra)
        headers = header_digest(source.text, DEVICE_HEADERS), _texts(HOST_HEADERS)
        text = source.path, with_line_directives(source.text), source.symbol, source.defines, _EXPORT, gpu_text
        name = digest(_SCHEMA, text, flags, headers, self.toolchain.identity) + ".so"
        label = f"{source.symbol!r} of {source.path!r}"
        cache, rest = (BuildCache(coverage), _counting(coverage, name)) if coverage else (self.cache, _LIBRARIES)
        def build(target: Path) -> None:
            self._build_kernel(source, flags, rest, target, gpu_text)

        return cache.load(name, build, load, label=label)

    def code(self, source: KernelSource) -> bytes:
        """The library of `source`; sources with the same code share one."""
        return self.kernel(source, content)

    def _build_runtime(self, target: Path) -> None:
        log = self.toolchain.run([*RUNTIME_FLAGS, "-shared", str(_RUNTIME), "-o", str(target)], folder=target.parent)
        if log is not None:
            raise CompileError(f"the host runtime does not compile with {self.toolchain.version!r}:\n{log}")

    def _build_kernel(
        self, source: KernelSource, flags: Sequence[str], last: Sequence[str], target: Path, gpu_text: str | None
    ) -> None:
        self._compiled.append(source.symbol)
        export = _EXPORT.format(path=source.path, symbol=source.symbol)
        text = f'#line 1 "{source.path}"\n{with_line_directives(source.text)}{export}'
        defines = [f"-D{define}" for define in source.defines]
        link = ["-shared", *last, "-o", str(target)]
        start = time.perf_counter()

        def compiled(*first: str) -> str | None:
            head = [*flags, *first, *_INCLUDES, *defines]
            if gpu_text is None:
                return self.toolchain.run([*head, "-xc++", "-", *link], text, folder=target.parent)
            return self._with_gpu_text(head, gpu_text, text, [*flags, "-xc++-cpp-output", "-", *link], target.parent)

        with compiling(source.symbol, "the host device"):
            errors = compiled(*self._precompiled(flags))
            if errors is not None:  # perhaps through a damaged precompiled header: the real one gives the answer
                errors = compiled()
        if errors is not None:
            errors = _MISSING.sub(r"the host device has no PTX instruction \1; baracuda_host/ptx.h has all", errors)
            errors = errors.replace(f"{HOST_HEADERS}/", "")
            raise CompileError(compiler_message(errors, source, "the host", DEVICE_HEADERS))
        log.info("compiled %s for the host device in %.2f s", source.symbol, time.perf_counter() - start)

    def _with_gpu_text(
        self, head: Sequence[str], target: str, text: str, rest: Sequence[str], folder: Path
    ) -> str | None:
        """Compile `text` with what headers have for the architecture `target`; None or the compiler's messages."""
        preprocessed = folder / "preprocessed"
        switch = ["-include", GPU_TEXT, gpu_text_define(target)]
        pch = [] if self.toolchain.is_clang else ["-fpch-preprocess"]
        errors = self.toolchain.run(
            [*head, *switch, "-E", *pch, "-xc++", "-", "-o", str(preprocessed)], text, folder=folder
        )
        if errors is None:
            errors = self.toolchain.run(rest, with_functions(preprocessed.read_text()), folder=folder)
        return errors

    def _precompiled(self, flags: Sequence[str]) -> list[str]:
        """Makes GCC find the precompiled header before the real one; clang reads the real one."""
        if self.toolchain.is_clang:
            return []

        def build(target: Path) -> None:
            header = ["-xc++-header", str(HOST_HEADERS / VOCABULARY)]
            log = self.toolchain.run([*flags, f"-I{HOST_HEADERS}", *header, "-o", str(target)], folder=target.parent)
            if log is not None:
                raise CompileError(f"the device vocabulary does not compile:\n{log}")

        key = digest(_SCHEMA, _texts(HOST_HEADERS), tuple(flags), self.toolchain.identity)
        name = f"vocabulary-{key}/{VOCABULARY}.gch"
        header = self._headers.get(name)
        if header is None or not header.is_file():
            header = self._headers[name] = self.cache.get(name, build)
        return [f"-I{header.parent}"]


def gpu_text_define(target: str) -> str:
    """What makes GPU_TEXT choose the text for the architecture `target`."""
    return f"-DBARACUDA_GPU_TEXT={int(target[3:]) * 10}"


def _counting(folder: Path, name: str) -> tuple[str, ...]:
    """Arguments by which the library `name` writes what gcov reads into `folder`, when it is told to or unloaded."""
    return (*_COUNTERS, *_LIBRARIES, "-dumpdir", f"{folder}/", "-dumpbase", name.removesuffix(".so"))


def _texts(folder: Path) -> str:
    """A digest of every file below `folder`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return digest(*((path.name, path.read_bytes()) for path in files))
