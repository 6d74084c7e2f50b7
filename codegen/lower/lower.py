"""OpSpec -> Op: settle names, roles and everything a template asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..spec.spec import OpSpec
from .body import lower_body
from .map import lower_map
from .op import Op
from .row import lower_row

LOWER: dict[str, Callable[[Any, str], Op]] = {"row": lower_row, "map": lower_map, "body": lower_body}


def lower(spec: OpSpec, spec_path: str) -> Op:
    """Return the decisions that `spec` (already found consistent) leads to."""
    return LOWER[spec.family](spec, spec_path)
