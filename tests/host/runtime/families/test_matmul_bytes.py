"""Products of 8-bit factors on the host device: the same bits in each tile and layout, and exact conversions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from baracuda.generated import (
    IntMmDescriptor,
    IntMmPlan,
    QuantizedLinearDescriptor,
    QuantizedLinearPlan,
    ScaledMmDescriptor,
    ScaledMmPlan,
)
from baracuda.runtime import PlanPreference, Unsupported, view

Array = np.ndarray[Any, Any]
FLOATS = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
ARCHS = ("sm_80", "sm_90a")


def preference_of(arch: str, schedule: str = "") -> PlanPreference:
    return PlanPreference(archs=frozenset({arch}), schedules=frozenset({schedule}) if schedule else None)


def scaled(a: Array, b: Array, preference: PlanPreference, scale: float = 1.0) -> Array:
    (m, k), n = a.shape, len(b)
    plan = ScaledMmPlan.select(ScaledMmDescriptor(m=m, n=n, k=k, has_bias=False, element="f32"), preference)
    y, workspace = np.full((m, n), 7, np.float32), np.empty(plan.workspace_bytes, np.uint8)
    scales = np.full(m, scale, np.float32), np.broadcast_to(np.float32(1), (n,))
    plan.run(a=a, b=b, scale_a=scales[0], scale_b=scales[1], y=y, workspace=workspace)
    return y


def factors(m: int, n: int, k: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(7)
    a, b = (np.ldexp(rng.standard_normal(of), rng.integers(-4, 5, of)) for of in ((m, k), (n, k)))
    return a.astype(FLOATS["e4m3"]), b.astype(FLOATS["e5m2"])


@pytest.mark.parametrize("arch", ARCHS)
def test_rows_tiles_and_layouts_have_the_same_bits(arch: str) -> None:
    a, b = factors(40, 136, 304)
    expected = scaled(a, b, preference_of(arch))
    for row in ScaledMmPlan.kernels("f32"):
        if row.sku.arch == arch:
            assert scaled(a, b, preference_of(arch, str(row.sku.schedule))).tobytes() == expected.tobytes()
    assert scaled(a[17:18], b, preference_of(arch)).tobytes() == expected[17:18].tobytes()
    shifted = np.zeros((40, 311), a.dtype)
    shifted[:, 1:305] = a
    for left in (np.asfortranarray(a), shifted[:, 1:305]):
        for right in (b, np.asfortranarray(b)):
            assert scaled(left, right, preference_of(arch)).tobytes() == expected.tobytes()


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("left", "right"), [("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"), ("e5m2", "e5m2")])
def test_every_number_is_multiplied_as_it_is(arch: str, left: str, right: str) -> None:
    """Each by 1, in another place of the depth, and so NaN and infinities."""
    bits = np.arange(256, dtype=np.uint8)
    numbers, ones = bits.view(FLOATS[left]), np.ones((1, 64), FLOATS[right])
    a = np.zeros((256, 64), FLOATS[left])
    a[np.arange(256), np.arange(256) % 64] = numbers
    y = scaled(a, ones, preference_of(arch))[:, 0]
    np.testing.assert_array_equal(y, numbers.astype(np.float32))
    turned = scaled(np.ones((1, 64), FLOATS[right]), a, preference_of(arch))[0]
    np.testing.assert_array_equal(turned, numbers.astype(np.float32))


def test_small_terms_outlast_a_large_one_in_another_part_of_the_depth() -> None:
    """Instructions lose what is 2^13 smaller than the sum that they add to; f32 does not."""
    a, b = np.ones((1, 256), FLOATS["e4m3"]), np.ones((1, 256), FLOATS["e4m3"])
    a[0, 0], b[0, 0] = 448.0, 448.0  # beside 127 ones
    whole = 448.0**2
    for arch, lost in (("sm_80", 0.0), ("sm_90a", 127.0)):
        assert scaled(a, b, preference_of(arch))[0, 0] == whole + 255.0 - lost


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("tag", ["i8", "u8"])
def test_whole_numbers_are_exact_at_their_limits(arch: str, tag: str) -> None:
    kind = np.iinfo({"i8": np.int8, "u8": np.uint8}[tag])
    rng = np.random.default_rng(3)
    a, b = (rng.choice(np.array([kind.min, kind.max, 1], kind.dtype), of) for of in ((33, 4100), (4100, 40)))
    a[0], b[:, 0] = kind.min, kind.min  # all of one sign, the largest sum of i8 that there is
    a[1], b[:, 1] = kind.max, kind.max
    plan = IntMmPlan.select(IntMmDescriptor(m=33, n=40, k=4100, element=tag), preference_of(arch))
    y, workspace = np.zeros((33, 40), np.int32), np.empty(plan.workspace_bytes, np.uint8)
    plan.run(a=a, b=b, y=y, workspace=workspace)
    np.testing.assert_array_equal(y, a.astype(np.int64) @ b.astype(np.int64))


@pytest.mark.parametrize("depth", [300, 304])
def test_factors_that_do_not_lie_along_the_depth_are_copied_for_tma(depth: int) -> None:
    """Rows of both are padded to whole packs; those of `b` are its columns."""
    a, b = np.zeros((16, depth), np.int8), np.zeros((depth, 48), np.int8)
    problem = IntMmDescriptor(m=16, n=48, k=depth, element="i8")
    plan = IntMmPlan.select(problem, preference_of("sm_90a"))
    views = {name: view(array, name) for name, array in (("a", a), ("b", b), ("y", np.zeros((16, 48), np.int32)))}
    launches = plan._launches(views, 4096)
    copies = [name for name, padded in (("left", depth % 16), ("right", True)) if padded]
    assert [launch.source.symbol.partition("_pack_")[2] for launch in launches] == [*copies, ""]
    assert "BARACUDA_TMA=1" in launches[-1].source.defines
    assert plan.workspace_bytes >= 304 * 48
    turned = {**views, "b": view(np.zeros((48, 304), np.int8).T[:depth], "b")}
    assert len(plan._launches(turned, 4096)) == (1 if depth == 304 else len(launches))


def test_depths_whose_sums_may_not_fit_are_refused() -> None:
    def select(k: int, tag: str) -> None:
        IntMmPlan.select(IntMmDescriptor(m=1, n=1, k=k, element=tag))

    select(131071, "i8")
    select(33025, "u8")
    with pytest.raises(Unsupported, match="a sum of 131072 products of i8 and i8 may not fit 32 bits; 131071 do"):
        select(131072, "i8")
    with pytest.raises(Unsupported, match="33025 do"):
        select(33026, "u8")


@pytest.mark.parametrize("arch", ARCHS)
def test_a_quantized_layer_scales_exact_sums(arch: str) -> None:
    rng = np.random.default_rng(4)
    x, w = (rng.integers(-128, 128, of).astype(np.int8) for of in ((20, 272), (48, 272)))
    scale_x, scale_w, bias = (rng.uniform(0.01, 1, n).astype(np.float32) for n in (20, 48, 48))
    problem = QuantizedLinearDescriptor(tokens=20, in_features=272, out_features=48, has_bias=True, element="f32")
    plan, y = QuantizedLinearPlan.select(problem, preference_of(arch)), np.zeros((20, 48), np.float32)
    plan.run(x=x, w=w, scale_x=scale_x, scale_w=scale_w, bias=bias, y=y)
    sums = (x.astype(np.int64) @ w.T.astype(np.int64)).astype(np.float32)
    assert y.tobytes() == (sums * scale_x[:, None] * scale_w + bias).tobytes()
