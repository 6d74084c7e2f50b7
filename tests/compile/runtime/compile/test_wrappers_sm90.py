"""Invariant: the assembler takes every wrapper of an instruction of sm_90, also those that no kernel uses yet."""

from __future__ import annotations

import pytest
from repository import KERNELS

from baracuda.runtime import KernelSource
from baracuda.runtime.compile.cubin import assemble

INSTRUCTIONS = {
    "pass_around": [
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster",
        "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group",
        "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.bulk_group",
        "cp.async.bulk.prefetch.tensor.3d.L2.global",
        "prefetch.tensormap",
        "elect.sync",
        "mbarrier.arrive.shared::cluster.b64",
    ],
    "combine": ["cp.async.bulk.prefetch.L2.global"]
    + [f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{how}" for how in ("add.noftz.f16", "xor.b32", "add.f64")],
}


@pytest.mark.parametrize("symbol", INSTRUCTIONS)
def test_wrappers_are_assembled(symbol: str) -> None:
    text = (KERNELS / "tiles_sm90.cu").read_text()
    source = KernelSource("kernels/tiles_sm90.cu", text, symbol, ("BARACUDA_CLUSTER=2", "DYN_SHARED_BYTES=4096"))
    assembly = assemble(source, "sm_90a")
    assert [text for text in INSTRUCTIONS[symbol] if text not in assembly.ptx] == []
