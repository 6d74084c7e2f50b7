"""Tests marked `gpu` run where there are as many CUDA devices as they need; all others run everywhere, and none needs a
CUDA toolkit."""

from __future__ import annotations

import os

import pytest

from baracuda.runtime.devices.cuda import CudaDevice
from baracuda.runtime.devices.driver import query

# A machine's own toolkit must neither be needed nor help.
for name in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"):
    os.environ.pop(name, None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    devices = query("cuDeviceGetCount") if CudaDevice.available() else 0
    for item in items:
        needed = max((marker.args[0] if marker.args else 1 for marker in item.iter_markers("gpu")), default=0)
        if devices < needed:
            item.add_marker(pytest.mark.skip(reason=f"{devices} CUDA devices, needs {needed}"))
