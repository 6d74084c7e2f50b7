"""Invariant: the table of PTX instructions gives the bits recorded on an H200, or nearly, where PTX says so."""

from __future__ import annotations

import numpy as np
import pytest
from recorded.scalar_instructions import ANSWERS, OPCODES, TABLES

from baracuda.checking.ptx.values import row_of

RECORDED = dict(np.load(ANSWERS))
# By opcode: errors in absolute terms and relative to the answer, and up to which operand PTX states them.
APPROXIMATE = {
    "ex2.approx.f32": (0, 2.0**-22, np.inf),
    "ex2.approx.ftz.f32": (0, 2.0**-22, np.inf),
    "rcp.approx.ftz.f32": (0, 2.0**-22, np.inf),
    "rsqrt.approx.f32": (0, 2.0**-22, np.inf),
    "lg2.approx.f32": (2.0**-22, 2.0**-22, np.inf),
    "tanh.approx.f32": (0, 2.0**-10.9, np.inf),
    "sin.approx.f32": (2.0**-20.5, 0, np.pi),
    "cos.approx.f32": (2.0**-20.5, 0, np.pi),
}


@pytest.mark.parametrize("opcode", OPCODES)
def test_answers_of_a_gpu(opcode: str) -> None:
    row = row_of(tuple(opcode.split(".")))
    recorded = [RECORDED[f"{opcode}/{i}"] for i in range(sum(key.startswith(f"{opcode}/") for key in RECORDED))]
    tables = [np.full(recorded[0].shape, table, np.uint32) for table in TABLES] if opcode == "lop3.b32" else []
    operands = recorded[: len(row.operands) - len(tables[:1])]
    for turn, answer in enumerate(recorded[len(operands) :]):
        with np.errstate(all="ignore"):
            value = np.asarray(row.compute(*operands, *tables[turn : turn + 1]), answer.dtype)
        if opcode in APPROXIMATE:
            absolute, relative, largest = APPROXIMATE[opcode]
            stated = ~(abs(operands[0]) > largest)
            np.testing.assert_allclose(value[stated], answer[stated], rtol=relative, atol=absolute)
            exact = stated & ((answer == 0) | ~np.isfinite(answer)) & (absolute == 0)
            assert np.array_equal(value[exact], answer[exact], equal_nan=True)
        else:
            same = value.view(f"u{value.itemsize}") == answer.view(f"u{answer.itemsize}")
            if answer.dtype.kind == "f":
                same |= np.isnan(value) & np.isnan(answer)
            assert same.all(), [(operand[~same][0] for operand in operands), value[~same][0], answer[~same][0]]


def test_sums_are_rounded_in_the_direction_asked_for() -> None:
    rng = np.random.default_rng(3)
    a = (rng.standard_normal(4000) * 2.0 ** rng.integers(-15, 15, 4000)).astype(np.float32)
    b = (rng.standard_normal(4000) * 2.0 ** rng.integers(-15, 15, 4000)).astype(np.float32)
    exact = a.astype(np.longdouble) + b.astype(np.longdouble)  # 64 bits hold all that decides
    for mode, toward in (("rz", 0.0), ("rm", -np.inf), ("rp", np.inf)):
        got = row_of(("add", mode, "f32")).compute(a, b)
        nearest = exact.astype(np.float32)
        beyond = abs(nearest) > abs(exact) if mode == "rz" else nearest > exact if mode == "rm" else nearest < exact
        assert np.array_equal(got, np.where(beyond, np.nextafter(nearest, np.float32(toward)), nearest))


def test_a_sign_is_the_first_operand_of_copysign() -> None:
    sign, size = np.float32([-0.0, 2.0, -3.0]), np.float32([1.5, -np.inf, np.nan])
    assert np.array_equal(row_of(("copysign", "f32")).compute(sign, size), [-1.5, np.inf, np.nan], equal_nan=True)
