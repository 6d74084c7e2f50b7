"""The device's limits, measured in the same run: copy, write, read, and matmul."""

from __future__ import annotations

from typing import Any

from .machine import TorchMachine
from .timing import spread

_BYTES = 1 << 30
_SIDE = 8192
_ROUNDS = 20
_READ = r"""
extern "C" __global__ void read(const uint4* from, unsigned* to, long long count) {
    unsigned seen = 0;
    const long long step = 4ll * gridDim.x * blockDim.x;
    for (long long i = 4ll * blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        uint4 v[4];
        #pragma unroll
        for (int k = 0; k < 4; ++k) v[k] = __ldcs(from + min(i + k * blockDim.x, count - 1));
        #pragma unroll
        for (int k = 0; k < 4; ++k) seen |= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    if (seen == 0x12345678u) *to = seen;  // which nobody expects, but a compiler cannot rule out
}
"""


def ceilings(machine: TorchMachine) -> dict[str, float]:
    """GB/s of `copy`, `write` and `read`, and TFLOP/s of `matmul`."""
    torch = machine.torch
    with machine.working():
        a, b = (torch.randn(_BYTES // 4, device=machine.device) for _ in range(2))
        m, n = (torch.randn(_SIDE, _SIDE, device=machine.device, dtype=torch.bfloat16) for _ in range(2))
        out = torch.empty_like(m)
        calls: dict[str, Any] = {
            "copy": lambda: b.copy_(a),
            "write": lambda: b.zero_(),
            "read": lambda: a.sum(),
            "matmul": lambda: torch.mm(m, n, out=out),
        }
        if (reader := _reader(machine, a)) is not None:
            calls["load"] = reader
        for call in calls.values():
            call()
        times = {name: spread(samples)[0] for name, samples in machine.cold(calls, _ROUNDS).items()}
    machine.release()
    read = min(times["read"], times.get("load", times["read"]))
    moved = {"copy": 2 * _BYTES / times["copy"], "write": _BYTES / times["write"], "read": _BYTES / read}
    return {name: rate / 1e3 for name, rate in moved.items()} | {"matmul": 2 * _SIDE**3 / times["matmul"] / 1e6}


def _reader(machine: TorchMachine, array: Any) -> Any:
    """A load-only kernel, faster than a sum; None without CuPy to compile it."""
    try:
        import cupy

        kernel = cupy.RawKernel(_READ, "read")
        to = machine.torch.zeros(1, dtype=machine.torch.int32, device=machine.device)
        blocks = 8 * machine.torch.cuda.get_device_properties(machine.device).multi_processor_count
        arguments = (array.data_ptr(), to.data_ptr(), cupy.int64(array.numel() // 4))
        stream = cupy.cuda.ExternalStream(machine.stream)
        kernel.compile()
    except Exception:  # no CuPy, or none that works here: the sum stands
        return None

    def call() -> Any:
        with stream:
            kernel((blocks,), (256,), arguments)
        return to

    return call
