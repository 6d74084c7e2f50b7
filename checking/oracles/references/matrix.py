"""Matrix products by their definition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from . import Arrays, Definition, Fields, Units

_DOUBLE = 2.0**-50  # above the unit roundoff of f64, whose instructions round each term


def _matmul(xp: Any, fields: Fields, arrays: Arrays) -> dict[str, Any]:
    return {"y": xp.matmul(arrays["a"], arrays["b"])}


def _errors(fields: Fields, arrays: Arrays, slack: Mapping[str, Any], units: Units) -> dict[str, Any]:
    """Halves: a sum loses two units for each instruction. f32: factors are split in two, and three products added."""
    size = np.matmul(np.abs(arrays["a"]), np.abs(arrays["b"]))
    terms = fields["k"]
    if units.acc < _DOUBLE:
        roundings = terms + 4
    else:
        roundings = terms / 4 + 8 if units.factors else terms + 12
    return {"y": roundings * units.acc * size}


matmul = Definition(errors=_errors, values=_matmul)
