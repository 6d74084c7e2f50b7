"""Invariant: what `check` says of an op's spills is one line, which is what its spec has to say to allow them."""

from __future__ import annotations

from types import SimpleNamespace as Namespace
from typing import Any

from baracuda.cli.kernels.audit_report import spill_lines
from baracuda.codegen.lower.op import Allowance


def violation(rows: tuple[tuple[str, str, int], ...], layout: str, device: str, spilled: int, op: str = "scale") -> Any:
    allowance = Allowance(None, None, 0, rows)
    subject = Namespace(
        sku=Namespace(op=op, arch="sm_80"),
        op=Namespace(allowance=lambda arch: allowance),
        layout=layout,
        arch=device,
        facts=Namespace(resources=Namespace(spill_bytes=spilled)),
    )
    return Namespace(rule="spills", subject=subject)


def test_an_op_has_one_line() -> None:
    rows = (("dense", "sm_80", 8), ("packed", "sm_80", 4), ("strided", "sm_80", 1), ("strided", "sm_90", 2))
    found = [("dense", "sm_90", 16), ("dense", "sm_80", 24), ("strided", "sm_90", 5), ("gathered", "sm_90", 400)]
    violations = [violation(rows, *each) for each in found] + [violation((), "dense", "sm_90", 4, "other")]
    assert list(spill_lines(violations)) == [
        "scale: 4 of its kernels spill more than allowed, up to 400 bytes; keep fewer values, "
        "or allow it by spill_bytes: {dense: 24, packed: 4, strided: {sm_80: 1, sm_90: 5}, "
        "gathered: 400} under arch, sm_80",
        "other: 1 of its kernels spill more than allowed, up to 4 bytes; keep fewer values, "
        "or allow it by spill_bytes: {dense: 4} under arch, sm_80",
    ]
