"""The text of a spec file: bounded in size, UTF-8, printable, its line ends made equal."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from baracuda.runtime.errors import SpecError

MAX_BYTES = 256 * 1024


def read_text(path: Path) -> str:
    """Text of the file at `path`; raise `SpecError` if it is unreadable, too large or not printable UTF-8."""
    if path.exists() and not path.is_file():  # reading a pipe would wait for ever
        raise SpecError(f"{shown(path)}: this is no file; needs a yaml file")
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SpecError(f"{shown(path)}: cannot read it: {reason}; needs a readable yaml file") from None
    if len(raw) > MAX_BYTES:
        refuse(path, 1, f"the file is larger than {MAX_BYTES} bytes; split it")
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        refuse(path, line, f"byte 0x{raw[error.start]:02x} is not utf-8; save the file as utf-8")
    bad = next((i for i, char in enumerate(text) if not (char.isprintable() or char == "\n")), None)
    if bad is not None:
        refuse(path, text.count("\n", 0, bad) + 1, about_character(text[bad]))
    return text


def about_character(char: str) -> str:
    """What is wrong with a character that is not printable, and what would be right."""
    if char == "\t":
        return "tab character; indent and align with spaces"
    return f"unprintable character U+{ord(char):04X}; remove it"


def shown(path: Path) -> str:
    """`path` as messages spell it: relative when it lies below the current directory."""
    absolute, here = path.absolute(), Path.cwd()
    return str(absolute.relative_to(here) if absolute.is_relative_to(here) else path)


def refuse(path: Path, line: int, message: str) -> NoReturn:
    """Raise the `SpecError` that says `message` about `line` (from 1) of `path`."""
    raise SpecError(f"{shown(path)}:{line}: {message}") from None
