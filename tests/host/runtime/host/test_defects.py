"""Kernels broken on purpose: check mode says what is wrong, with which object, on which line."""

from __future__ import annotations

import re

import pytest
from host.breaking import Defect
from host.defects import DEFECTS
from repository import frozen_defects

from baracuda.runtime.errors import KernelInternal
from baracuda.runtime.host import HostDevice

# Every kind of finding, as its words; each has a defect.
KINDS = (
    *("out of bounds", "is outside", "never written at", "elements of .* never written", "misaligned access"),
    *("read after write", "write after read", "write after write", "not ordered by a fence", "write to the input"),
    *("divergent barrier", "deadlock", "diverges", "not in its mask", "inactive lane", "is used with"),
    *("cp.async of thread", "exits while cp.async", "not aligned to its size", "not 16-byte aligned", "local memory"),
    *("needs global memory", "needs shared memory"),
    *("launch timeout", "division by zero", "shift of", "stack overflow", "wrong result"),
)


def findings(defect: Defect, device: HostDevice, *, unbroken: bool = False) -> list[str]:
    """What the device says of a broken kernel, or of the kernel as it was, a line each."""
    device.timeout = 1.0
    job = defect.job()
    try:
        job.run(device, job.text if unbroken else defect.text)
    except KernelInternal as error:
        return [line for line in str(error).splitlines() if not line.startswith("kernel '")]
    return []


def table() -> str:
    """Each defect and what check mode says of it first, as Markdown."""
    found = ((name, findings(defect, HostDevice(check=True))) for name, defect in DEFECTS.items())
    rows = (f"| {name} | {lines[0] if lines else 'nothing'} |" for name, lines in found)
    return "\n".join(["| Defect | First finding |", "|---|---|", *rows])


def test_the_frozen_defects_are_there() -> None:
    frozen = frozen_defects()["host"]
    assert {f"{family}: {name}" for family, names in frozen.items() for name in names} == set(DEFECTS)


@pytest.mark.parametrize("name", DEFECTS)
def test_defect_is_found(name):
    """The first finding names the defect, the memory it concerns and the line."""
    found = findings(DEFECTS[name], HostDevice(check=True))
    assert found, f"nobody noticed: {name}"
    assert re.search(DEFECTS[name].expected, found[0]), f"{name}: {found[0]}"


@pytest.mark.parametrize("name", {defect.job().symbol: name for name, defect in DEFECTS.items()}.values())
def test_unbroken_kernel_is_not_blamed(name):
    """Launched as for its defect, the kernel as it was is right, and check mode is silent."""
    assert findings(DEFECTS[name], HostDevice(check=True), unbroken=True) == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_finding_has_a_defect(kind):
    assert any(re.search(kind, defect.expected.replace("\\", "")) for defect in DEFECTS.values())
