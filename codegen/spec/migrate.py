"""Rewrites specs of earlier versions of the language, comments and layout kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from ruamel.yaml import YAML

from .defaults import class_name
from .language import VERSION


class Edit(NamedTuple):
    """Characters of a file, from `start` to before `end`, and what they become."""

    start: int
    end: int
    text: str


def migrated(text: str, version: int) -> str:
    """The `text` of a valid YAML file that is a spec of `version`, in today's language."""
    for of in range(version, VERSION):
        for edit in sorted(_STEPS[of](text), reverse=True):
            text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _without_kind(text: str) -> Iterator[Edit]:
    """Of 1: `kind`, which plans without a name of their own were named after. Those get that name."""
    entries = dict(_entries(YAML(typ="rt", pure=True).compose(text)))
    if "op" not in entries:
        return
    op = entries["op"][1]
    usual = class_name(op.value)
    stem = (entries["kind"][1].value if "kind" in entries else usual).removesuffix("Backward")
    plan = f"{stem}{'Backward' if 'gradient' in entries else ''}Plan"
    is_named = "plan" in entries or plan == f"{usual}Plan"
    if "kind" in entries:
        key, value = entries["kind"]
        whole = key.start_mark.index, value.end_mark.index
        yield Edit(*_span(text, key, value), "") if is_named else Edit(*whole, f"plan: {plan}")
    elif not is_named:
        yield Edit(op.end_mark.index, op.end_mark.index, f"\nplan: {plan}")
    for name, entry in _entries(entries["backward"][1]) if "backward" in entries else ():
        if name == "kind":
            yield Edit(*_span(text, *entry), "")


def _entries(node: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """The keys of a mapping, and the nodes of each entry."""
    pairs: Iterable[tuple[Any, Any]] = node.value if getattr(node, "id", "") == "mapping" else ()
    return ((key.value, (key, value)) for key, value in pairs)


def _span(text: str, key: Any, value: Any) -> tuple[int, int]:
    """An entry with its whole line, or with the comma that separates it from others."""
    start, end = key.start_mark.index, value.end_mark.index
    line = text.rfind("\n", 0, start) + 1
    if not text[line:start].strip() and (rest := re.match(r"[ \t]*(#[^\n]*)?(\n|$)", text[end:])):
        return line, end + rest.end()
    if comma := re.match(r"\s*,\s*", text[end:]):
        return start, end + comma.end()
    before = re.search(r",?\s*$", text[:start])
    return before.start() if before else start, end


_STEPS: dict[int, Callable[[str], Iterable[Edit]]] = {1: _without_kind}
