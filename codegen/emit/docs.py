"""What documentation says of an op: the generator's English."""

from __future__ import annotations

from collections.abc import Iterator

from ..lower.op import Op
from ..text import Text, wrapped

WIDTH = 112


def formula_lines(op: Op) -> Iterator[Text]:
    """The formula, long lines in several."""
    for line in op.formula:
        yield from (line,) if len(line) <= WIDTH else wrapped(line, WIDTH, "    ")


def source_lines(op: Op) -> tuple[Text, ...]:
    return wrapped(f"Source: {op.source}.", WIDTH + 4)


FILTERS = {"formula_lines": formula_lines, "source_lines": source_lines}
