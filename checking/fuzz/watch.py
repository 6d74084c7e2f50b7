"""An audit hook and limits: what a process writes, starts and executes, and its CPU time and memory."""

from __future__ import annotations

import os
import re
import resource
import site
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

SECONDS, MEGABYTES = 1.0, 200.0  # per spec: CPU time, and memory above the process's own
_DEADLINE = 8  # seconds of CPU until a case is killed
_ROOM = 2 << 30  # bytes of address space above the process's own
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = re.compile(r"os\.(chflags|chmod|chown|link|mkdir|remove|rename|rmdir|symlink|truncate|utime)")
_STARTS = re.compile(r"os\.(system|exec|fork|forkpty|posix_spawn|spawn)|(subprocess|pty|socket)\..*|ctypes\.dlopen")
# Modules of the standard library that compile methods from names they have checked.
_MAKERS = ("dataclasses.py", "collections/__init__.py", "typing.py", "functools.py", "enum.py")


@dataclass
class Watched:
    """What a case did; `findings` lists what is forbidden."""

    folder: Path  # the only one that may be written
    pure: bool  # whether it may start nothing and execute installed code only
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0
    megabytes: float = 0.0

    def add(self, finding: str) -> None:
        if len(self.findings) < 10:
            self.findings.append(finding[:300])


_now: Watched | None = None


@cache
def install() -> None:
    """Install the audit hook, once, for it cannot be removed."""
    sys.addaudithook(_hook)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@contextmanager
def watched(folder: Path, *, pure: bool) -> Iterator[Watched]:
    """Watch the body; a case far beyond its budgets ends the process."""
    global _now
    record = Watched(folder.resolve(), pure)
    _trusted()
    before, began = _memory(reset=True), time.process_time()
    _limit(began, pure)
    _now = record
    try:
        yield record
    finally:
        _now = None
        record.seconds = time.process_time() - began
        record.megabytes = max(0.0, _memory() - before)
        _limit(None, False)


def over_budget(record: Watched, seconds: float = SECONDS) -> list[str]:
    """Which budgets of a spec were exceeded."""
    findings = []
    if record.seconds > seconds:
        findings.append(f"took {record.seconds:.1f} s of CPU, the budget is {seconds:g}")
    if record.megabytes > MEGABYTES:
        findings.append(f"took {record.megabytes:.0f} MB, the budget is {MEGABYTES:g}")
    return findings


def _limit(began: float | None, pure: bool) -> None:
    """End the process with SIGXCPU some seconds of CPU after `began`, and limit the address space of `pure` work.

    None removes the limits. Kernels map more memory than they touch, so only `pure` work has the second limit.
    """
    soft = resource.RLIM_INFINITY if began is None else int(began) + 1 + _DEADLINE
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    room = mapped + _ROOM if pure else resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_AS, (room, resource.RLIM_INFINITY))


def _memory(*, reset: bool = False) -> float:
    """The maximum memory in MB since the last reset; with `reset`, the memory now."""
    if reset:
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _hook(event: str, args: tuple[Any, ...]) -> None:
    record = _now
    if record is None:
        return
    starts = _STARTS.fullmatch(event)
    if event == "open":
        path, mode, flags = args
        writes = flags & _WRITES if isinstance(flags, int) else not set("wax+").isdisjoint(str(mode))
        if writes and not isinstance(path, int) and not _is_ours(record, path):
            record.add(f"opened {str(path)!r} to write")
    elif _CHANGES.fullmatch(event):
        folder_fd = args[-1] if isinstance(args[-1], int) and event != "os.truncate" else -1  # a folder descriptor
        for path in args:
            if isinstance(path, str | bytes | os.PathLike) and not _is_ours(record, path, folder_fd):
                record.add(f"{event} of {str(path)!r}")
    elif record.pure and (starts or (event == "exec" and not _is_installed(args[0]))):
        record.add(f"{event} of {args[0]!r}")


def _is_ours(record: Watched, path: Any, below: int = -1) -> bool:
    folder = f"/proc/self/fd/{below}" if below >= 0 else "."
    real = os.path.realpath(os.path.join(folder, os.fsdecode(path)))
    return real == "/dev/null" or Path(real).is_relative_to(record.folder)


def _is_installed(code: Any) -> bool:
    """Whether code is from an installed file, or compiled by the standard library."""
    name = code.co_filename
    if name.startswith("<frozen "):
        return True
    caller = sys._getframe(2).f_code.co_filename  # two frames up: the hook's caller
    return _is_trusted(name) or any(caller == f"{_stdlib()}/{maker}" for maker in _MAKERS)


def _is_trusted(name: str) -> bool:
    real = os.path.realpath(name)
    return any(real.startswith(f"{folder}/") for folder in _trusted())


@cache
def _stdlib() -> str:
    return sysconfig.get_paths()["stdlib"]


@cache
def _trusted() -> tuple[str, ...]:
    """Folders of installed code: Python's, its packages', and our own subpackages."""
    root = Path(__file__).resolve().parents[2]
    folders = [_stdlib(), *site.getsitepackages(), sysconfig.get_paths()["platlib"]]
    folders += [str(root / name) for name in ("codegen", "generated", "ops", "runtime", "specs", "templates")]
    return tuple(os.path.realpath(folder) for folder in folders)
