"""Host devices for the tests in this folder, and a way to run their kernels."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from repository import KERNELS, share_runtime

from baracuda.runtime.device import KernelSource
from baracuda.runtime.host import HostDevice

COMPILERS = [name for name in ("g++", "clang++") if shutil.which(name)]

Source = Callable[..., KernelSource]
Run = Callable[..., None]


@pytest.fixture(scope="session", autouse=True)
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache folder for this run of the tests, in all of its processes, that holds the runtime library alone."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "baracuda-cache"
    share_runtime(folder)
    before = os.environ.get("BARACUDA_CACHE_DIR")
    os.environ["BARACUDA_CACHE_DIR"] = str(folder)
    yield folder
    if before is None:
        del os.environ["BARACUDA_CACHE_DIR"]
    else:
        os.environ["BARACUDA_CACHE_DIR"] = before


@pytest.fixture
def device() -> HostDevice:
    return HostDevice(COMPILERS[0])


@pytest.fixture(params=COMPILERS)
def any_device(request: pytest.FixtureRequest) -> HostDevice:
    """A device for each compiler of this machine."""
    return HostDevice(request.param)


@pytest.fixture(scope="session")
def source() -> Source:
    """`source(file, symbol, **fields)`: an entry point of a file in kernels/."""

    def read(file: str, symbol: str, *defines: str, contraction: bool = False) -> KernelSource:
        text = (KERNELS / file).read_text()
        return KernelSource(f"kernels/{file}", text, symbol, defines, contraction)

    return read


@pytest.fixture(scope="session")
def run() -> Run:
    """`run(device, source, grid, block, *words)`: arrays are passed by address, numbers as integers."""

    def launch(
        device: HostDevice, source: KernelSource, grid: int, block: int, *words: np.ndarray | int
    ) -> None:
        values = [w.ctypes.data if isinstance(w, np.ndarray) else w for w in words]
        args = (ctypes.c_uint64 * len(values))(*values)
        kernel = device.load(source)
        kernel.launch((grid, 1, 1), block, ctypes.addressof(args), ctypes.sizeof(args), 0)

    return launch
