"""What users see of the runtime: the logger `baracuda`, a status line while kernels compile, and NVTX ranges.

By default only warnings and, on a terminal, the status line are shown. BARACUDA_LOG=debug, info, ... writes log records
of at least that level to stderr, BARACUDA_PROGRESS=0 hides the status line, BARACUDA_NVTX=1 adds the ranges.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from typing import Any

log = logging.getLogger("baracuda")
_LEVELS = ("debug", "info", "warning", "error")
_ERASE = "\r\x1b[2K"
_compiling: list[str] = []  # the kernels that threads of this process compile now
_hidden = 0  # bodies of `without_status_line` that run now


def _configure(level: str | None) -> None:
    """Write records of `level` and above to stderr, and to no handler of the application."""
    if not level:
        return
    if level.lower() not in _LEVELS:
        log.warning("BARACUDA_LOG is %r; needs one of %s", level, ", ".join(_LEVELS))
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("baracuda %(levelname)s: %(message)s"))
    log.addHandler(handler)
    log.setLevel(level.upper())
    log.propagate = False


_configure(os.environ.get("BARACUDA_LOG"))
os.register_at_fork(after_in_child=_compiling.clear)


@contextmanager
def compiling(symbol: str, arch: str) -> Iterator[None]:
    """Name a kernel on the status line, and in an NVTX range, while the body compiles it."""
    name = f"{symbol} for {arch}"
    with nvtx_range(f"compile {name}"):
        if not _has_status_line():
            yield
            return
        _compiling.append(name)
        _show()
        try:
            yield
        finally:
            with suppress(ValueError):  # in a child that was forked in the body
                _compiling.remove(name)
            _show()


@contextmanager
def without_status_line() -> Iterator[None]:
    """Leave the terminal to the body, which shows progress of its own."""
    global _hidden
    _hidden += 1
    try:
        yield
    finally:
        _hidden -= 1


def _has_status_line() -> bool:
    if _hidden or os.environ.get("BARACUDA_PROGRESS") == "0" or os.environ.get("TERM") == "dumb":
        return False
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False


def _show() -> None:
    """Rewrite the status line: one write, so that threads need no lock, which a fork might leave held."""
    names = _compiling.copy()
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    line = f"baracuda: compiling {names[0]}{others}" if names else ""
    with suppress(OSError, ValueError):
        width = os.get_terminal_size(sys.stderr.fileno()).columns or 80  # 0: the terminal does not know
        sys.stderr.write(_ERASE + line[: width - 1])
        sys.stderr.flush()


def nvtx_range(name: str) -> AbstractContextManager[object]:
    """An NVTX range of the domain `baracuda`, which does nothing unless BARACUDA_NVTX=1."""
    nvtx = _nvtx()
    return nullcontext() if nvtx is None else nvtx.annotate(name, domain="baracuda")


def in_nvtx_range(name: str, call: Callable[[int], None]) -> Callable[[int], None]:
    """`call` itself, at no cost, or `call` within an NVTX range when BARACUDA_NVTX=1."""
    if _nvtx() is None:
        return call
    annotation = nvtx_range(name)  # threads may enter it together

    def annotated(argument: int) -> None:
        with annotation:
            call(argument)

    return annotated


@cache
def _nvtx() -> Any:
    """The package `nvtx` where BARACUDA_NVTX=1, looked up once a process; else None."""
    if os.environ.get("BARACUDA_NVTX") != "1":
        return None
    try:
        import nvtx
    except ImportError:
        log.warning("BARACUDA_NVTX=1 needs the package nvtx, which is not installed; there are no ranges")
        return None
    return nvtx
