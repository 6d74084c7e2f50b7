"""Every comparison in a condition has a difference that is 0 where it turns."""

from __future__ import annotations

import pytest

from baracuda.codegen.conditions.gaps import gaps_of

GAPS = {
    "width <= 5": ["(width) - (5)"],
    "1 <= len(shape) <= 8": ["(1) - (len(shape))", "(len(shape)) - (8)"],
    "bucket(d, 32, 64)": ["(d) - (32)", "(d) - (64)"],
    "ceil_div(n, tile) * heads": ["(n) - (tile)"],
    "max(1, n // 4)": ["(n // 4) - (1)", "(n) - (4)"],
    "a if b > 0 and not c else 3 < 4": ["(b) - (0)"],
    "isfinite(scale)": [],
}


@pytest.mark.parametrize("text", GAPS)
def test_gaps_of_a_condition(text: str) -> None:
    assert list(gaps_of(text)) == GAPS[text]
