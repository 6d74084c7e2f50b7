"""The device interface: compile a source to a kernel, load it, launch it.

Every generated kernel takes one parameter, a struct of 8-byte words passed by value, so an argument list is one
block of memory on every device and needs no marshalling.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class KernelSource:
    """One entry point of a generated source, with everything that determines its machine code but the architecture."""

    path: str  # of the generated file, relative to its package; compilers name it in their messages
    text: str  # as the file has it; compilers get it through `with_line_directives`
    symbol: str  # the `extern "C" __global__` entry point
    defines: tuple[str, ...] = ()  # "NAME=value", in a fixed order
    contraction: bool = False  # may a * b + c become one fma?
    flush_subnormals: bool = False
    dynamic_shared: int = 0  # bytes that every launch reserves
    arch: str = ""  # the only architecture it is compiled for, where there is one


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of a compiled kernel per thread or block, from the assembler's report."""

    registers: int  # per thread
    shared_bytes: int  # static, per block
    stack_bytes: int  # local memory per thread
    spill_bytes: int  # of the stack, stores and loads that exist only for lack of registers
    seconds: float  # compilation time; 0 when it came from the cache


@dataclass(frozen=True, slots=True)
class Cubin:
    """Machine code of one entry point for one architecture."""

    image: bytes
    resources: Resources


class WatchedArray(NamedTuple):
    """An array that kernels may access, and how; strides count elements.

    Inputs are read-only; outputs ("out") are uninitialised and must be fully written.
    """

    name: str
    role: str  # "in", "out", "inout" or "workspace"
    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int


Watch = Callable[[Sequence[WatchedArray]], AbstractContextManager[None]]


class Kernel(Protocol):
    """A loaded entry point."""

    def launch(self, grid: tuple[int, int, int], block: int, args: int, args_bytes: int, stream: int) -> None:
        """Start `grid` blocks of `block` threads on `stream` (a raw handle; 0 is the legacy default stream).

        `args` is the host address of the parameter struct and `args_bytes` its size; the struct is copied before the
        call returns. On the host device, the launch has finished when the call returns.
        """


class Device(Protocol):
    """`name` is "cuda:0", "host", ...; `arch` is the compilation target: "sm_90", "host", ..."""

    name: str
    arch: str
    multiprocessors: int

    @property
    def watch(self) -> Watch | None:
        """None, or a context for a plan's launches on a device that checks every access."""

    def load(self, source: KernelSource) -> Kernel:
        """Compile `source` or find it in the cache, load it and return its entry point."""

    def is_loaded(self, source: KernelSource) -> bool:
        """Whether `load` would return at once, without compiling, reading files or using the device."""

    def is_capturing(self, stream: int) -> bool:
        """Whether `stream` (a raw handle) is being captured into a graph, so that nothing can be loaded."""


_NAME = re.compile("host|cuda:[0-9]{1,3}")


def is_device(name: object) -> bool:
    """Whether `name` is well formed; the device need not exist."""
    return type(name) is str and _NAME.fullmatch(name) is not None
