"""Tests marked `gpu` run where there is a CUDA device; everything else runs everywhere, without any CUDA toolkit."""

from __future__ import annotations

import os

import pytest

from baracuda.runtime.cuda import CudaDevice

# A machine's own toolkit must neither be needed nor help.
for name in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"):
    os.environ.pop(name, None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not CudaDevice.available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))
