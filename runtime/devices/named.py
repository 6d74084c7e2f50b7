"""Devices by name, created once."""

from __future__ import annotations

from typing import cast

from ..device import Device, is_device
from ..errors import InvalidProblem, Unsupported
from ..values import short_repr, text_of
from .cuda import CudaDevice

_devices: dict[str, Device] = {}


def get_device(name: str) -> Device:
    """The device named "host" or "cuda:N"; creating one makes no CUDA context."""
    if (called := text_of(name)) is None:
        raise InvalidProblem(f"'device' must be 'host' or 'cuda:N', got {short_repr(name)}")
    return shared_device(called)


def shared_device(name: str) -> Device:
    """As `get_device`, for a string: the same device in all threads."""
    return _devices.get(name) or _devices.setdefault(name, _new(name))


def _new(name: str) -> Device:
    if not is_device(name):
        raise Unsupported(f"no device {short_repr(name)}; known are 'host' and 'cuda:N'")
    if name == "host":
        from ..host import HostDevice

        return HostDevice()
    return CudaDevice(int(name[5:]))


def as_device(device: object) -> Device:
    """The device that a caller names or passes; raises InvalidProblem for anything else."""
    if (name := text_of(device)) is not None:
        return shared_device(name)
    if not all(callable(getattr(type(device), name, None)) for name in ("load", "is_loaded")):
        raise InvalidProblem(f"'device' must be 'host', 'cuda:N' or a device, got {short_repr(device)}")
    return cast(Device, device)


def default_device() -> Device:
    """The first GPU, or the host device if there is none."""
    return get_device("cuda:0" if CudaDevice.available() else "host")
