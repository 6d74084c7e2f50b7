"""Tests marked `gpu` run where there is a CUDA device; everything else runs everywhere."""

from __future__ import annotations

import pytest

from baracuda.runtime.cuda import CudaDevice


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not CudaDevice.available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))
