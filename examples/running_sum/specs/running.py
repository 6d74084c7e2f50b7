"""The definition of running sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from baracuda.checking.oracles.references import Arrays, Definition, Fields, Units


def _values(xp: Any, fields: Fields, arrays: Arrays) -> dict[str, Any]:
    return {"y": xp.cumsum(arrays["x"], axis=1)}


def _errors(fields: Fields, arrays: Arrays, slack: Arrays, units: Units) -> dict[str, Any]:
    """Each of c additions rounds a sum that is at most the sum of magnitudes."""
    additions = np.arange(fields["cols"])
    return {"y": units.acc * additions * np.cumsum(np.abs(arrays["x"]), axis=1)}


running_sum = Definition(_errors, _values)
