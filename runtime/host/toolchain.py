"""The machine's C++ compiler: command, flags and messages."""

from __future__ import annotations

import functools
import os
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import CompileError

_X86 = platform.machine() in ("x86_64", "AMD64")
_LANGUAGE = ("-std=c++17", "-fPIC", "-pthread", "-U_FORTIFY_SOURCE")  # fortified longjmp refuses other stacks
_NATIVE = ("-march=native", "-fcf-protection=none") if _X86 else ("-mcpu=native",)
RUNTIME_FLAGS = (
    *(*_LANGUAGE, "-O2", "-g1", "-fvisibility=hidden", "-fno-omit-frame-pointer"),
    *(*_NATIVE, "-ffp-contract=off", "-fno-trapping-math"),
)
# Kernels pun types and wrap integers as they do on a GPU; a frame larger than a page must touch each of its pages, so
# that it cannot step over the no-access page below its stack. Nothing here changes the value of a floating-point
# operation. Small problems are compiled for longer than they run: -O2 takes 1.4 times as long, and saves no time where
# the runtime does the work, as of matrix instructions.
KERNEL_FLAGS = (
    *(*_LANGUAGE, "-O1", "-fvisibility=hidden", "-w", "-fno-exceptions", "-fno-rtti"),
    *("-fno-strict-aliasing", "-fwrapv", "-fno-math-errno", "-fno-trapping-math", "-fstack-clash-protection"),
    *_NATIVE,
)
# Check mode: the compiler calls the runtime at each access to memory, and neither moves nor adds any.
_CHECK_FLAGS = (
    *("-Og", "-g1", "-DBARACUDA_HOST_CHECK=1", "-fsanitize=thread"),
    "-fsanitize=alignment,bounds,shift,integer-divide-by-zero,signed-integer-overflow,unreachable",
    *("-fno-wrapv", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"),
)
_CHECK_FLAGS_OF_GCC = (
    "-fsanitize=bounds-strict",  # of arrays at the end of a struct too
    *("--param", "tsan-instrument-func-entry-exit=0", "--param", "tsan-distinguish-volatile=1"),
    *("-fno-tree-loop-im", "-fno-tree-sra", "-fno-builtin-memcpy"),
)
_CHECK_FLAGS_OF_CLANG = (
    *("-mllvm", "-tsan-instrument-func-entry-exit=0", "-mllvm", "-tsan-distinguish-volatile=1"),
)
# Coverage: each function, also one that kernels inline, has the branches of its source.
_COVERAGE_FLAGS = ("-O0", "--coverage", "-fprofile-update=atomic", "-Dalways_inline=noinline")
_LOCATION = re.compile(r"^(.+?):(\d+):(?:\d+:)? (?=(?:fatal )?error: )", re.MULTILINE)
_SHOWN = 200  # characters of a command in a message
# A local variable that is read before it is written is a large negative number: as f32 -1.7e38, as f64 -5.3e303.
_PATTERN_FLAGS = ("-ftrivial-auto-var-init=pattern",)
_PATTERN_SINCE = {True: 8, False: 12}  # versions of clang and of GCC
CONTRACTION_FLAGS = {
    False: ("-ffp-contract=off",),
    True: ("-ffp-contract=fast", "-DBARACUDA_HOST_CONTRACTION=1"),
}


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A compiler command and its version line."""

    command: tuple[str, ...]
    version: str

    @property
    def is_clang(self) -> bool:
        return "clang" in self.version

    @property
    def identity(self) -> tuple[str, ...]:
        """Everything about compiler and machine that determines the generated code."""
        return (*self.command, self.version, platform.machine(), _cpu_features())

    @property
    def symbolizer(self) -> tuple[str, ...]:
        """A program with addr2line's arguments; a non-existent one if there is none."""
        return ("llvm-addr2line",) if self.is_clang and shutil.which("llvm-addr2line") else ("addr2line",)

    def run(self, arguments: Sequence[str | Path], text: str = "", *, folder: Path | None = None) -> str | None:
        """None on success, else the compiler's messages, with locations in NVRTC's form: file(line).

        "-" among `arguments` stands for `text`; `folder` is for temporary files, which a killed compiler leaves behind.
        """
        environment = {**os.environ, "LC_ALL": "C"}  # messages are searched for "error:"
        if folder:
            environment["TMPDIR"] = str(folder)
        done = _run([*self.command, *map(str, arguments)], text, environment)
        return _LOCATION.sub(r"\1(\2): ", done.stderr) if done.returncode else None


def asynchronous_flags(toolchain: Toolchain) -> tuple[str, ...]:
    """Extra flags for kernels of one architecture, whose registers wgmma may read after their scope ends."""
    return ("-mllvm", "-no-stack-coloring") if toolchain.is_clang else ("-fstack-reuse=none",)


def pattern_flags(toolchain: Toolchain) -> tuple[str, ...]:
    """Extra flags for kernels whose uninitialised variables have conspicuous values, as far as the compiler knows."""
    versions = re.findall(r"\b(\d+)\.\d", toolchain.version)
    return _PATTERN_FLAGS if versions and int(versions[-1]) >= _PATTERN_SINCE[toolchain.is_clang] else ()


def check_flags(toolchain: Toolchain) -> tuple[str, ...]:
    """Extra flags for check mode."""
    return (*_CHECK_FLAGS, *(_CHECK_FLAGS_OF_CLANG if toolchain.is_clang else _CHECK_FLAGS_OF_GCC))


def coverage_flags(toolchain: Toolchain) -> tuple[str, ...]:
    """Extra flags for kernels that count the branches they take; CompileError unless the compiler is GCC."""
    if toolchain.is_clang:
        raise CompileError(f"{toolchain.version!r} does not count branches as gcov reads them; needs g++")
    return _COVERAGE_FLAGS


def find_toolchain(command: str | None = None) -> Toolchain:
    """`command`, else BARACUDA_HOST_CXX, else g++ or clang++ from PATH; CompileError if there is none."""
    chosen = command or os.environ.get("BARACUDA_HOST_CXX")
    try:
        words = shlex.split(chosen) if chosen else [name for name in ("g++", "clang++") if shutil.which(name)][:1]
    except ValueError as error:
        raise _no_compiler(chosen or "", str(error)) from None
    if not words:
        raise CompileError("no c++ compiler on PATH; install g++ or clang++, or set BARACUDA_HOST_CXX")
    return Toolchain(tuple(words), _version(tuple(words)))


@functools.lru_cache(maxsize=16)
def _version(command: tuple[str, ...]) -> str:
    done = _run([*command, "--version"])
    if done.returncode:
        raise _no_compiler(shlex.join(command), f"--version gives exit status {done.returncode}")
    return next(iter(done.stdout.splitlines()), "")


def _run(
    command: Sequence[str], text: str = "", environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the compiler; its output is decoded leniently."""
    try:
        return subprocess.run(
            command, input=text, capture_output=True, encoding="utf-8", errors="replace", env=environment
        )
    except (OSError, ValueError) as error:
        raise _no_compiler(command[0], getattr(error, "strerror", None) or str(error)) from error


def _no_compiler(command: str, why: str) -> CompileError:
    excerpt = command if len(command) <= _SHOWN else f"{command[:_SHOWN]}..."
    return CompileError(f"compiler {excerpt!r} does not run: {why}; install g++ or clang++, or set BARACUDA_HOST_CXX")


@functools.cache
def _cpu_features() -> str:
    """The instruction sets that -march=native may use."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            return next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        return platform.processor()
