"""Unquoted scalars in the core schema of YAML 1.2: `no` and `on` are strings, `1e-3` is a number."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

Scalar = str | int | float | bool | None


def _integer(text: str, base: int = 10) -> int:
    value = int(text, base) if len(text) <= 100 else 2**64  # Python refuses to read 4301 digits
    if not -(2**63) <= value < 2**64:
        raise OverflowError(text)
    return value


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise OverflowError(text)
    return value


# The first row that matches the whole text decides; text that no row matches stands for itself.
_CORE_SCHEMA: tuple[tuple[re.Pattern[str], Callable[[str], Scalar]], ...] = (
    (re.compile(r"null|Null|NULL|~|"), lambda text: None),
    (re.compile(r"true|True|TRUE"), lambda text: True),
    (re.compile(r"false|False|FALSE"), lambda text: False),
    (re.compile(r"[-+]?[0-9]+"), _integer),
    (re.compile(r"0o[0-7]+"), lambda text: _integer(text[2:], 8)),
    (re.compile(r"0x[0-9a-fA-F]+"), lambda text: _integer(text[2:], 16)),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), _float),
    (re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"), lambda text: float(text.replace(".", ""))),
)


def plain_scalar(text: str) -> Scalar:
    """Value of the unquoted `text`; raises `OverflowError` for a number beyond 64 bits."""
    return next((read(text) for pattern, read in _CORE_SCHEMA if pattern.fullmatch(text)), text)
