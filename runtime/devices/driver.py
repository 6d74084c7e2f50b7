"""The calls of the CUDA driver that loading and launching need, through ctypes; no context is made here.

Both ctypes and cuda.bindings release the GIL. A launch whose arguments are prepared takes 0.23 us by ctypes and 0.28 us
by cuda.bindings, against a driver that returns at once, and importing cuda.bindings takes 60 ms.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_void_p
from functools import cache
from typing import Any

from ..errors import DriverError

INVALID_CONTEXT, INVALID_HANDLE = 201, 400
_CAPTURING = 1  # CU_STREAM_CAPTURE_STATUS_ACTIVE; 0 is none, 2 a capture that failed


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute with a value of one int."""

    _fields_ = (("id", c_int), ("padding", c_int), ("value", c_int), ("rest", c_int * 15))


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("dynamic_shared_bytes", c_uint),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("attribute_count", c_uint),
    )


# Handles are opaque pointers; out parameters are given as byref(...).
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDriverGetVersion": (c_void_p,),
    "cuDeviceGetCount": (c_void_p,),
    "cuDeviceGet": (c_void_p, c_int),
    "cuDeviceGetAttribute": (c_void_p, c_int, c_int),
    "cuDevicePrimaryCtxRetain": (c_void_p, c_int),
    "cuCtxGetCurrent": (c_void_p,),
    "cuCtxGetDevice": (c_void_p,),
    "cuCtxPushCurrent_v2": (c_void_p,),
    "cuCtxPopCurrent_v2": (c_void_p,),
    "cuLibraryLoadData": (c_void_p, c_char_p, c_void_p, c_void_p, c_uint, c_void_p, c_void_p, c_uint),
    "cuLibraryGetKernel": (c_void_p, c_void_p, c_char_p),
    "cuKernelGetFunction": (c_void_p, c_void_p),
    "cuFuncGetAttribute": (c_void_p, c_int, c_void_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuLaunchKernelEx": (c_void_p, c_void_p, c_void_p, c_void_p),
    "cuStreamGetCtx": (c_void_p, c_void_p),
    "cuStreamIsCapturing": (c_void_p, c_void_p),
}
_SINCE_12_4: dict[str, tuple[Any, ...]] = {"cuKernelGetParamInfo": (c_void_p, c_size_t, c_void_p, c_void_p)}


@cache
def _library() -> ctypes.CDLL | str:
    """The driver library, or why there is none: each selection without a GPU asks again."""
    try:
        # CDLL, not PyDLL: a launch waits while the queue is full, and a callback there may run Python.
        library = ctypes.CDLL("libcuda.so.1")
        for name, arguments in _ARGUMENTS.items():
            getattr(library, name).argtypes = arguments
    except (OSError, AttributeError) as error:
        return f"no CUDA driver ({error}); install NVIDIA's, version 525 or newer"
    return library


def forget() -> None:
    """Look for the driver again."""
    _library.cache_clear()
    driver.cache_clear()


@cache
def driver() -> ctypes.CDLL:
    """The initialised driver library. Raises DriverError if there is none or it finds no device."""
    if isinstance(library := _library(), str):
        raise DriverError(library)
    for name, arguments in _SINCE_12_4.items():
        if function := getattr(library, name, None):
            function.argtypes = arguments
    if code := library.cuInit(0):
        raise DriverError(error_text(library, "cuInit", code))
    return library


def call(name: str, *arguments: object) -> None:
    """Call the driver; raises DriverError with the name and the text of its error code."""
    library = driver()
    if code := getattr(library, name)(*arguments):
        raise DriverError(error_text(library, name, code))


def query(name: str, *arguments: object) -> int:
    """Call the driver for one integer, its first parameter."""
    value = c_int()
    call(name, ctypes.byref(value), *arguments)
    return value.value


def handle(name: str, *arguments: object) -> int:
    """Call the driver for one handle, its first parameter."""
    value = c_void_p()
    call(name, ctypes.byref(value), *arguments)
    return value.value or 0


def error_text(library: ctypes.CDLL, name: str, code: int) -> str:
    """ "cuLaunchKernelEx: CUDA_ERROR_INVALID_VALUE (1): invalid argument"."""
    title, text = c_char_p(), c_char_p()
    library.cuGetErrorName(code, ctypes.byref(title))
    library.cuGetErrorString(code, ctypes.byref(text))
    words = [(word.value or b"unknown").decode() for word in (title, text)]
    return f"{name}: {words[0]} ({code}): {words[1]}"


@contextmanager
def current(context: int) -> Iterator[None]:
    """Make `context` current in this thread and leave the thread as it was."""
    call("cuCtxPushCurrent_v2", context)
    try:
        yield
    finally:
        call("cuCtxPopCurrent_v2", ctypes.byref(c_void_p()))


def stream_is_capturing(stream: int) -> bool:
    """Whether `stream` (a raw handle) is being captured into a graph.

    Raises DriverError for the legacy stream 0 while another stream is captured: CUDA forbids using it then.
    """
    library = driver()
    status = c_int()
    code = library.cuStreamIsCapturing(stream, ctypes.byref(status))
    if code == INVALID_CONTEXT:  # a thread without a context has recorded nothing
        return False
    if code:
        raise DriverError(error_text(library, "cuStreamIsCapturing", code))
    return status.value == _CAPTURING
