"""A case that lists several values of fields stands for all combinations of these, the last field varying fastest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice, product
from typing import Any

from .yaml_source import Loc, YamlSource

_MOST = 301  # one more than a spec may have
_OTHERS = ("dtype", "arch")  # what a case says beside the fields
_SECTIONS = ("tests", "bench")


def varied(source: YamlSource) -> YamlSource:
    """`source` with every case written out, each at the line of the one that it comes from."""
    for section in _SECTIONS:
        part = source.data.get(section)
        if isinstance(part, dict) and isinstance(cases := part.get("cases"), list):
            origins = [*islice(_written_out(cases, source.data.get("descriptor")), _MOST)]
            if len(origins) != len(cases):
                data = {**source.data, section: {**part, "cases": [case for _, case in origins]}}
                lines, texts = (_moved(of, section, origins) for of in (source.lines, source.text_lines))
                source = replace(source, data=data, lines=lines, text_lines=texts)
    return source


def _written_out(cases: list[Any], fields: Any) -> Iterator[tuple[int, Any]]:
    for place, case in enumerate(cases):
        if not isinstance(case, dict):
            yield place, case
            continue
        values = [value if _is_several(value, name, fields) else [value] for name, value in case.items()]
        yield from ((place, dict(zip(case, chosen, strict=True))) for chosen in product(*values))


def _is_several(value: Any, name: str, fields: Any) -> bool:
    """Whether a value is a list of values: of shapes, for a shape."""
    field = fields.get(name) if isinstance(fields, dict) else None
    if not isinstance(value, list) or not value:
        return False
    if not isinstance(field, dict):
        return name in _OTHERS
    return field.get("type") != "shape" or all(isinstance(one, list) for one in value)


def _moved(lines: Mapping[Loc, int], section: str, origins: list[tuple[int, Any]]) -> dict[Loc, int]:
    """Where each case and each of its fields is, which is where it was written; a list of values may be long."""
    at = (section, "cases")
    kept = {loc: line for loc, line in lines.items() if loc[:2] != at or len(loc) == 2}
    of_case: dict[Any, dict[Loc, int]] = {}
    for loc, line in lines.items():
        if loc[:2] == at and 2 < len(loc) <= 4:
            of_case.setdefault(loc[2], {})[loc[3:]] = line
    for place, (origin, _) in enumerate(origins):
        kept |= {(*at, place, *rest): line for rest, line in of_case.get(origin, {}).items()}
    return kept
