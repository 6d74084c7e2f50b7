"""Where plans run: devices by the name that array intake gives them, made once."""

from __future__ import annotations

import functools

from .device import Device
from .errors import Unsupported


@functools.cache
def get_device(name: str) -> Device:
    """The device called "host" or "cuda:N"; making one creates no CUDA context."""
    if name == "host":
        from .host import HostDevice

        return HostDevice()
    if name.startswith("cuda:") and name[5:].isdigit():
        from .cuda import CudaDevice

        return CudaDevice(int(name[5:]))
    raise Unsupported(f"no device {name!r}; known are 'host' and 'cuda:N'")


def default_device() -> Device:
    """The first GPU, or the host device where there is none."""
    from .cuda import CudaDevice

    return get_device("cuda:0" if CudaDevice.available() else "host")
