"""OpSpec -> Op: all decisions that a template relies on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..spec.spec import OpSpec
from .body import lower_body
from .list import lower_list
from .map import lower_map
from .op import Op
from .row import lower_row

LOWER: dict[str, Callable[[Any, str], Op]] = {
    "row": lower_row,
    "map": lower_map,
    "list": lower_list,
    "body": lower_body,
}


def lower(spec: OpSpec, spec_path: str) -> Op:
    """The decisions for `spec`, which has been checked."""
    return LOWER[spec.family](spec, spec_path)
