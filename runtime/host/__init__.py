"""The host device: generated CUDA C++ kernels on the CPU."""

from .host_device import HostDevice, HostKernel

__all__ = ["HostDevice", "HostKernel"]
