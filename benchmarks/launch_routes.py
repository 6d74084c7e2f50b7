"""Ways to launch a kernel from Python: each group makes its arrays and kernels and returns calls by name."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Call = Callable[[], object]
Calls = Mapping[str, Call]

ROWS, COLS = 256, 256
_COPY = r"""
extern "C" __global__ void k(const float* a, float* b, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = a[i];
}
"""


def raw() -> Calls:
    """The driver, through three bindings, with everything prepared in advance."""
    import cupy
    from cuda.bindings import driver
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

    device = Device()
    kernel = Program(_COPY, "c++", ProgramOptions(arch=f"sm_{device.arch}")).compile("cubin").get_kernel("k")
    stream, config = device.create_stream(), LaunchConfig(grid=ROWS, block=COLS)
    a, b = cupy.ones((ROWS, COLS), cupy.float32), cupy.empty((ROWS, COLS), cupy.float32)
    count = np.int32(ROWS * COLS)
    values, counts = np.array([a.data.ptr, b.data.ptr], np.uint64), np.array([count], np.int32)
    pointers = np.array([values.ctypes.data, values.ctypes.data + 8, counts.ctypes.data], np.uint64)
    error, function = driver.cuKernelGetFunction(driver.CUkernel(int(kernel.handle)))
    if int(error):
        raise RuntimeError(f"cuKernelGetFunction: error {int(error)}")
    queue, address = driver.CUstream(int(stream.handle)), pointers.ctypes.data
    start = ctypes.CDLL("libcuda.so.1")["cuLaunchKernel"]
    handles = ctypes.c_void_p(int(function)), ctypes.c_void_p(int(stream.handle)), ctypes.c_void_p(address)
    keep_alive = (a, b, values, counts, pointers)

    def through_ctypes(_keep_alive: object = keep_alive) -> None:
        start(handles[0], ROWS, 1, 1, COLS, 1, 1, 0, handles[1], handles[2], None)

    return {
        "raw: cuda.core.launch": lambda: launch(stream, config, kernel, a.data.ptr, b.data.ptr, count),
        "raw: cuda.bindings, prepacked": lambda: driver.cuLaunchKernel(
            function, ROWS, 1, 1, COLS, 1, 1, 0, queue, address, 0
        ),
        "raw: ctypes, prepacked": through_ctypes,
    }


def plan_on_torch() -> Calls:
    """RMSNorm of torch tensors with its plan, and with torch."""
    import torch

    x = torch.ones((ROWS, COLS), device="cuda")
    gamma, y = torch.ones(COLS, device="cuda"), torch.empty_like(x)
    rms = torch.empty((ROWS, 1), device="cuda")
    return {
        **_plan("torch", {"x": x, "gamma": gamma, "y": y, "rms": rms}),
        "torch.add(out=)": lambda: torch.add(x, x, out=y),
        "F.rms_norm": lambda: torch.nn.functional.rms_norm(x, (COLS,), gamma, 1e-6),
    }


def plan_on_cupy() -> Calls:
    """RMSNorm of CuPy arrays with its plan, and a CuPy kernel."""
    import cupy

    x = cupy.ones((ROWS, COLS), cupy.float32)
    gamma, y, rms = cupy.ones(COLS, cupy.float32), cupy.empty_like(x), cupy.empty((ROWS, 1), cupy.float32)
    kernel, count = cupy.RawKernel(_COPY, "k"), np.int32(ROWS * COLS)
    return {
        **_plan("cupy", {"x": x, "gamma": gamma, "y": y, "rms": rms}),
        "cupy.RawKernel": lambda: kernel((ROWS,), (COLS,), (x, y, count)),
    }


def _plan(library: str, arrays: dict[str, Any]) -> Calls:
    from baracuda.generated import RMSNormDescriptor, RMSNormPlan
    from baracuda.runtime import view

    problem = RMSNormDescriptor(
        input_shape=(ROWS, COLS), norm_axes_mask=0b10, eps=1e-6, has_gamma=True, element="f32"
    )
    plan = RMSNormPlan.select(problem)
    bound, x = plan.bind(**arrays), arrays["x"]
    return {
        f"bind, {library}": bound,
        f"run_unchecked, {library}, 4 arrays": lambda: plan.run_unchecked(**arrays),
        f"run, {library}, 4 arrays": lambda: plan.run(**arrays),
        f"intake of one array, {library}": lambda: view(x, "x"),
        f"select, {library}, seen before": lambda: RMSNormPlan.select(problem),
    }


def triton() -> Calls:
    """A Triton kernel with its own launcher."""
    import torch

    from .triton_copy import copy

    x = torch.ones((ROWS, COLS), device="cuda")
    y = torch.empty_like(x)
    return {"Triton jit": lambda: copy[(ROWS,)](x, y, ROWS * COLS, block=COLS)}


GROUPS: dict[str, Callable[[], Calls]] = {
    "raw launches": raw,
    "plan and torch": plan_on_torch,
    "plan and CuPy": plan_on_cupy,
    "Triton": triton,
}
