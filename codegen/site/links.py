"""Adapts relative links of the repository's pages to the site."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

FENCE = re.compile(r"^(`{3,}|~{3,})([^\n]*)\n.*?^\1[ ]*$\n?", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_ABSOLUTE = re.compile(r"[a-z][a-z0-9+.-]*:")


def parts(text: str) -> Iterator[tuple[bool, str]]:
    """The text in pieces, each with whether it is a fenced block."""
    end = 0
    for fence in FENCE.finditer(text):
        yield False, text[end : fence.start()]
        yield True, fence[0]
        end = fence.end()
    yield False, text[end:]


def targets(text: str) -> list[str]:
    """The page's links within the site, without fenced blocks."""
    prose = "".join(piece for fenced, piece in parts(text) if not fenced)
    return [target for _, target, _ in _LINK.findall(prose) if not _ABSOLUTE.match(target)]


def relinked(text: str, lead: Callable[[str], str]) -> str:
    """The page with each relative link replaced by `lead`; fenced blocks keep only their language."""

    def relink(match: re.Match[str]) -> str:
        target = match[2]
        return match[1] + (target if _ABSOLUTE.match(target) or target[0] == "#" else lead(target)) + match[3]

    pieces = parts(text)
    return "".join(_bare(piece) if fenced else _LINK.sub(relink, piece) for fenced, piece in pieces)


def _bare(block: str) -> str:
    """A fenced block without the word after its language, which only tests read."""
    head, _, rest = block.partition("\n")
    return f"{head.split(' ')[0]}\n{rest}"
