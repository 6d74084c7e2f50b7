"""The row family: what a kernel relies on and its launch provides."""

from __future__ import annotations

from dataclasses import replace

import pytest

import baracuda.runtime as rt
from baracuda.generated import RMSNormBackwardDescriptor, RMSNormBackwardPlan


@pytest.mark.parametrize("beside", [-16, 16])
def test_a_launch_reserves_what_is_prefetched_and_no_more(beside: int) -> None:
    descriptor = RMSNormBackwardDescriptor(input_shape=(64, 512), norm_axes_mask=2, has_gamma=True, element="f32")
    plan = RMSNormBackwardPlan.select(descriptor)
    source = next(source for source in plan.sources() if source.dynamic_shared)
    bytes_there = source.dynamic_shared + beside
    told = {f"DYN_SHARED_BYTES={source.dynamic_shared}": f"DYN_SHARED_BYTES={bytes_there}"}
    defines = tuple(told.get(define, define) for define in source.defines)
    device = rt.get_device("host")
    device.load(source)
    with pytest.raises(rt.CompileError, match="the launch reserves the packs"):
        device.load(replace(source, defines=defines, dynamic_shared=bytes_there))
