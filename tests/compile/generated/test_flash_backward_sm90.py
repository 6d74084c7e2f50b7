"""Invariant: attention's backward pass for sm_90a compiles to what makes it fast, and leaves the rest to others."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from baracuda.checking.audit.facts import serialised
from baracuda.checking.audit.image import machine_code
from baracuda.checking.audit.sass import disassembler
from baracuda.cli.kernels.explain import Architecture
from baracuda.generated import FlashSdpaBackwardDescriptor, FlashSdpaBackwardPlan
from baracuda.runtime import KernelSource, PlanPreference, Schedule
from baracuda.runtime.compile.cubin import assemble
from baracuda.runtime.errors import Unsupported

HOPPER = Architecture("sm_90", "sm_90")
ONLY = PlanPreference(archs=frozenset({"sm_90a"}))
SIZES = {"batch_size": 1, "num_heads": 1, "query_len": 512, "key_len": 512, "d_k": 128, "d_v": 128}
PLAIN: dict[str, Any] = {**SIZES, "scale": 0.1, "is_causal": False, "element": "bf16"}
# d_k, d_v, element, causal, capped, queries
CASES = [
    (64, 64, "bf16", False, False, 512),
    (64, 64, "f16", True, True, 512),
    (128, 128, "bf16", False, False, 512),
    (128, 96, "bf16", False, False, 1024),
    (128, 128, "f16", True, False, 512),
    (128, 128, "bf16", True, True, 512),
    (96, 64, "bf16", True, False, 512),
    (256, 256, "bf16", False, False, 512),
    (256, 256, "bf16", True, False, 512),
    (136, 192, "f16", True, False, 512),
]
Case = tuple[int, int, str, bool, bool, int]


def kernels(case: Case) -> tuple[Schedule, dict[str, KernelSource]]:
    """The schedule and the sources that the plan has for a problem, by the kernel's name."""
    d_k, d_v, element, causal, capped, queries = case
    changes = {"d_k": d_k, "d_v": d_v, "is_causal": causal, "softcap": float(capped), "element": element}
    changes["query_len"] = queries
    plan = FlashSdpaBackwardPlan.select(FlashSdpaBackwardDescriptor(**PLAIN | changes), ONLY, device=HOPPER)
    assert isinstance(plan.sku.schedule, Schedule)
    return plan.sku.schedule, {source.symbol.rsplit("_", 1)[1]: source for source in plan.sources()}


def instructions(image: bytes, folder: Path) -> list[str]:
    file = folder / "code"
    file.write_bytes(machine_code(image))
    command = [str(disassembler()[0]), "--no-dataflow", "--binary", "SM90a", str(file)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return re.findall(r"/\*[0-9a-f]{4,}\*/\s+([^;]+);", listing)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[2]}-{c[0]}-{c[1]}{'-band' * c[3]}{'-cap' * c[4]}-{c[5]}")
def test_what_makes_it_fast(case: Case, tmp_path: Path) -> None:
    """No spill, no product that waits for another, and one tile's products start while others are in flight."""
    schedule, sources = kernels(case)
    numbers = dict(schedule.numbers)
    chained = numbers["chained"] == 1
    assert (numbers["kv_block_q"] == 80) == (case[5] == 1024)
    assert chained == (case[0] == 128 and not case[4]) and (numbers["kv_parts"] == 2) == (max(case[:2]) > 128)
    k_depth, v_depth = (-(-size // (64 if size > 128 else 32)) * (4 if size > 128 else 2) for size in case[:2])
    depth = k_depth + v_depth  # of S and dP, in steps of 16
    kv_products = depth + 2 * numbers["kv_block_q"] // 16 + chained * numbers["kv_block_k"] // 16
    kv_products += (numbers["kv_parts"] - 1) * k_depth  # the part that makes dv has S again
    products = {"dkdv": kv_products, "dq": 0 if chained else depth + numbers["q_block_k"] // 16}
    for name, expected in products.items():
        made = assemble(sources[name], "sm_90a")
        used = made.cubin.resources
        assert (used.spill_bytes, used.stack_bytes, serialised(made.log)) == (0, 0, ())
        code = instructions(made.cubin.image, tmp_path)
        assert sum("HGMMA" in line for line in code) == expected
        if expected:
            assert used.registers == 168  # what setmaxnreg divides
            assert sum(line.startswith("USETMAXREG") for line in code) == 2
            waits = [line for line in code if "WARPGROUP.DEPBAR" in line]
            assert sum("0x1" in line for line in waits) >= 2


def test_of_a_unit_per_64_queries() -> None:
    """What dkdv copies in one piece is whole: heads have whole tiles of queries in `delta`."""
    descriptor = FlashSdpaBackwardDescriptor(**PLAIN | {"num_heads": 3, "query_len": 65, "d_k": 64})
    plan = FlashSdpaBackwardPlan.select(descriptor, ONLY, device=HOPPER)
    assert plan.workspace_bytes == 3 * 128 * 2 * 4


def test_a_chain_needs_room() -> None:
    """Sums of dq, a list of tiles of keys and whose turn it is; who has no room for them gets dq by itself."""
    descriptor = FlashSdpaBackwardDescriptor(**PLAIN)
    plan = FlashSdpaBackwardPlan.select(descriptor, ONLY, device=HOPPER)
    delta, sums, chain = 512 * 2 * 4, 512 * 128 * 4, (4 * 4 + 1 + 512 // 64) * 4
    assert delta + sums + chain <= plan.workspace_bytes < delta + sums + chain + 512
    tight = replace(ONLY, max_workspace_bytes=delta + sums)
    assert FlashSdpaBackwardPlan.select(descriptor, tight, device=HOPPER).workspace_bytes == delta


@pytest.mark.parametrize(
    "changes",
    [
        {"d_k": 136, "softcap": 1.0},
        {"d_v": 256, "softcap": 1.0},
        {"d_k": 100},
        {"key_len": 0},
        {"has_mask": True},
        {"has_alibi_slopes": True},
        {"element": "f32"},
    ],
    ids=str,
)
def test_left_to_others(changes: dict[str, object]) -> None:
    descriptor = FlashSdpaBackwardDescriptor(**PLAIN | changes)
    with pytest.raises(Unsupported):
        FlashSdpaBackwardPlan.select(descriptor, ONLY, device=HOPPER)
    assert FlashSdpaBackwardPlan.select(descriptor, device=HOPPER).sku.arch == "sm_80"
