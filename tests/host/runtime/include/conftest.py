"""Modules with BOTH_TEXTS run both texts of device headers: the host device's, and GPUs' with its inline PTX."""

from __future__ import annotations

from typing import Any

import pytest
from host.runtime.conftest import COMPILERS

from baracuda.runtime.host import HostDevice

_HOST = [(compiler, None) for compiler in COMPILERS]
_GPU = (COMPILERS[0], "sm_90")


def pytest_generate_tests(metafunc: Any) -> None:
    """Findings name the lines of one text."""
    both = getattr(metafunc.module, "BOTH_TEXTS", False) and "finding" not in metafunc.function.__name__
    for name, devices in (("device", _HOST[:1]), ("any_device", _HOST)):
        if name in metafunc.fixturenames:
            devices = [*devices, _GPU] if both else devices
            ids = ["inline PTX" if text else compiler for compiler, text in devices]
            metafunc.parametrize(name, devices, ids=ids, indirect=True)


@pytest.fixture
def device(request: pytest.FixtureRequest) -> HostDevice:
    return _made(*request.param)


@pytest.fixture(name="any_device")
def _any_device(request: pytest.FixtureRequest) -> HostDevice:
    return _made(*request.param)


def _made(compiler: str, text: str | None) -> HostDevice:
    device = HostDevice(compiler)
    device.gpu_text = text
    return device
