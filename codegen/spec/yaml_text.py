"""The text of a spec file: bounded in size, UTF-8, printable, with normalised line ends."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from baracuda.runtime.errors import SpecError

MAX_BYTES = 256 * 1024
_MOST = 30  # findings that one error lists
_LONGEST = 600  # characters of one finding
_PATH = 200  # characters of a path in it


def read_bytes(path: Path, most: int, kind: str = "yaml file") -> bytes:
    """The bytes of a regular file; raises `SpecError` for anything else, and for more than `most` bytes.

    The file is opened without blocking (it may be a pipe) and checked before it is read.
    """
    try:
        raw = _read_regular(path, most + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SpecError(f"{display_path(path)}: cannot read it: {reason}; needs a readable {kind}") from None
    if raw is None:
        raise SpecError(f"{display_path(path)}: this is no file; needs a {kind}")
    if len(raw) > most:
        refuse(path, 1, f"the file is larger than {most} bytes; split it")
    return raw


def _read_regular(path: Path, most: int) -> bytes | None:
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        with open(handle, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(handle)


def read_text(path: Path) -> str:
    """Text of the file at `path`; raises `SpecError` if it is unreadable, too large or not printable UTF-8."""
    raw = read_bytes(path, MAX_BYTES)
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        refuse(path, line, f"byte 0x{raw[error.start]:02x} is not utf-8; save the file as utf-8")
    if not text.replace("\n", "").isprintable():
        bad = next(i for i, char in enumerate(text) if not (char.isprintable() or char == "\n"))
        refuse(path, text.count("\n", 0, bad) + 1, about_character(text[bad]))
    return text


def about_character(char: str) -> str:
    """What is wrong with a character that is not printable, and the fix."""
    if char == "\t":
        return "tab character; indent and align with spaces"
    return f"unprintable character U+{ord(char):04X}; remove it"


def is_below(path: Path, root: Path) -> bool:
    """Whether a file is below a folder after following links; false for a link that leads to itself."""
    try:
        return path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):
        return False


def display_path(path: Path) -> str:
    """`path` as messages show it: in one line, relative if below the current directory."""
    absolute, cwd = path.absolute(), Path.cwd()
    text = str(absolute.relative_to(cwd) if absolute.is_relative_to(cwd) else path)
    line = "".join(char if char.isprintable() else "?" for char in text)
    return line if len(line) <= _PATH else f"...{line[-_PATH:]}"


def report(lines: Iterable[str]) -> SpecError:
    """One error with all findings, ``path:line: what; the fix`` each, limited to what a person reads."""
    findings = [" ".join(line.splitlines()) for line in lines]
    listed = [line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..." for line in findings[:_MOST]]
    if more := len(findings) - len(listed):
        listed[-1] += f" (and {more} more)"
    return SpecError("\n".join(listed))


def refuse(path: Path, line: int, message: str) -> NoReturn:
    """Raise the `SpecError` that says `message` about `line` (from 1) of `path`."""
    raise report([f"{display_path(path)}:{line}: {message}"]) from None
