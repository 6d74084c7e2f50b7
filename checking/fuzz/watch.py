"""What a process does while it is watched: what it writes, starts and executes, its time and its memory."""

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

SECONDS, MEGABYTES = 1.0, 200.0  # of CPU, and of memory above the process's own, for any one spec
_DEADLINE = 8  # seconds of CPU after which a case is given up
_ROOM = 2 << 30  # bytes of address space above the process's own
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = re.compile(r"os\.(chflags|chmod|chown|link|mkdir|remove|rename|rmdir|symlink|truncate|utime)")
_STARTS = re.compile(r"os\.(system|exec|fork|forkpty|posix_spawn|spawn)|(subprocess|pty|socket)\..*|ctypes\.dlopen")
# Of the standard library, what makes methods of classes from names that it has checked itself.
_MAKERS = ("dataclasses.py", "collections/__init__.py", "typing.py", "functools.py", "enum.py")


@dataclass
class Watched:
    """What was seen: `findings` are what must not be."""

    folder: Path  # what may be written
    pure: bool  # whether nothing may be started, and nothing executed but installed code
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0
    megabytes: float = 0.0

    def found(self, what: str) -> None:
        if len(self.findings) < 10:
            self.findings.append(what[:300])


_now: Watched | None = None


def install() -> None:
    """Have this process watched from now on; there is no way back."""
    sys.addaudithook(_hook)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@contextmanager
def watched(folder: Path, *, pure: bool) -> Iterator[Watched]:
    """Watch what is done meanwhile; a case that takes far too long, or far too much memory, ends the process."""
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


def over_budget(seen: Watched, seconds: float = SECONDS) -> list[str]:
    """Which of the budgets of a spec were exceeded."""
    findings = []
    if seen.seconds > seconds:
        findings.append(f"took {seen.seconds:.1f} s of CPU, the budget is {seconds:g}")
    if seen.megabytes > MEGABYTES:
        findings.append(f"took {seen.megabytes:.0f} MB, the budget is {MEGABYTES:g}")
    return findings


def _limit(began: float | None, pure: bool) -> None:
    """The process ends with SIGXCPU some seconds after `began`, and `pure` work is refused far too much memory; None
    takes the limits away. What runs kernels maps more than it touches."""
    soft = resource.RLIM_INFINITY if began is None else int(began) + 1 + _DEADLINE
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    room = mapped + _ROOM if pure else resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_AS, (room, resource.RLIM_INFINITY))


def _memory(*, reset: bool = False) -> float:
    """The most memory since the last reset in MB; with `reset`, what is held now."""
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
            record.found(f"opened {str(path)!r} to write")
    elif _CHANGES.fullmatch(event):
        folder_fd = args[-1] if isinstance(args[-1], int) and event != "os.truncate" else -1  # an open folder
        for path in args:
            if isinstance(path, str | bytes | os.PathLike) and not _is_ours(record, path, folder_fd):
                record.found(f"{event} of {str(path)!r}")
    elif record.pure and (starts or (event == "exec" and not _is_installed(args[0]))):
        record.found(f"{event} of {args[0]!r}")


def _is_ours(record: Watched, path: Any, below: int = -1) -> bool:
    folder = f"/proc/self/fd/{below}" if below >= 0 else "."
    real = os.path.realpath(os.path.join(folder, os.fsdecode(path)))
    return real == "/dev/null" or Path(real).is_relative_to(record.folder)


def _is_installed(code: Any) -> bool:
    """Whether code is of an installed file, or made by the standard library."""
    name = code.co_filename
    if name.startswith("<frozen "):
        return True
    caller = sys._getframe(2).f_code.co_filename  # above the hook and this
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
