"""First compilations and calls, each in a fresh process: `python -m baracuda.benchmarks.first_times nvrtc`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

Row = dict[str, Any]


def row(label: str, ms: float | None, note: str = "") -> Row:
    """A row of the table: what was measured, and milliseconds or the reason there are none."""
    return {"what": label, "ms": None if ms is None else round(ms, 3), "note": note}


def nvrtc() -> list[Row]:
    """An empty kernel with NVRTC: including loading the library, and again."""
    from cuda.core import Program, ProgramOptions

    options = ProgramOptions(arch="sm_90", no_cache=True)

    def compile_(symbol: str) -> Callable[[], object]:
        return lambda: Program(f'extern "C" __global__ void {symbol}() {{}}', "c++", options).compile("cubin")

    first = timed("NVRTC of an empty kernel, first", compile_("a"))
    return [first, timed("NVRTC of an empty kernel, next", compile_("b"))]


def triton() -> list[Row]:
    """A row norm in Triton: its first launch, and that of another specialisation."""
    import torch

    from .triton_copy import norm

    x = torch.ones((4096, 4096), device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)
    torch.cuda.synchronize()

    def launch(block: int) -> Callable[[], object]:
        return lambda: norm[(x.numel() // block,)](x, y, x.numel(), block=block)

    first = timed("Triton, first kernel", launch(4096), torch.cuda.synchronize)
    return [first, timed("Triton, next specialisation", launch(2048), torch.cuda.synchronize)]


def torch_compile() -> list[Row]:
    """RMSNorm forward and backward with torch.compile, until the first result."""
    import torch

    x = torch.ones((4096, 4096), device="cuda", dtype=torch.bfloat16, requires_grad=True)
    gamma = torch.ones(4096, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    dy = torch.ones_like(x)

    def norm(x: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.rms_norm(x, (4096,), gamma, 1e-6)

    torch.autograd.grad(norm(x, gamma), (x, gamma), dy)  # what torch loads either way
    torch.cuda.synchronize()
    compiled = torch.compile(norm)
    call = lambda: torch.autograd.grad(compiled(x, gamma), (x, gamma), dy)  # noqa: E731
    return [timed("torch.compile of rms_norm, forward and backward", call, torch.cuda.synchronize)]


def calls() -> list[Row]:
    """The first calls of two functions: on a GPU with a pack, else on the host device. Arrays are there before."""
    start = time.perf_counter()
    from baracuda import ops

    imported = row("import of baracuda.ops", (time.perf_counter() - start) * 1e3)
    library: Any = import_module("cupy" if "BARACUDA_PACKS" in os.environ else "numpy")
    x, gamma = library.ones((512, 4096), "float32"), library.ones(4096, "float32")
    drain = library.cuda.Device().synchronize if library.__name__ == "cupy" else int
    drain()
    norm = lambda: ops.rms_norm(x, gamma)  # noqa: E731
    first = timed("rms_norm, first call of a process", norm, drain)
    other = timed("softmax, first call after that", lambda: ops.softmax(x, softmax_axis=-1), drain)
    return [imported, first, other, timed("rms_norm, next call", norm, drain)]


def timed(label: str, call: Callable[[], object], drain: Callable[[], object] = int) -> Row:
    """The time of one call, including the device's work."""
    start = time.perf_counter()
    call()
    drain()
    return row(label, (time.perf_counter() - start) * 1e3)


CHILDREN: dict[str, Callable[[], list[Row]]] = {
    "nvrtc": nvrtc,
    "triton": triton,
    "torch.compile": torch_compile,
    "calls": calls,
}

if __name__ == "__main__":
    print(json.dumps(CHILDREN[sys.argv[1]]()))
