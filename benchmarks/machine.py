"""The GPU that benchmarks run on, through torch: memory, random numbers, comparisons; `timing` has the clocks."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib import metadata
from typing import Any, Protocol

from baracuda.checking.compare.torch_values import torch_module
from baracuda.runtime import DriverError, ElementKind
from baracuda.runtime.compile.cubin import nvrtc_version

from .case import Tensor
from .peers import Call

Calls = Mapping[str, Call]
Samples = dict[str, list[float]]  # microseconds of each contestant
_LIBRARIES = ("torch", "triton", "quack-kernels", "liger-kernel", "causal-conv1d", "flash-attn-4", "flash-attn")


class Machine(Protocol):
    """What contests need from a GPU; tests have their own."""

    device: str
    l2_bytes: int

    def facts(self) -> dict[str, str]: ...
    def working(self) -> AbstractContextManager[object]:
        """Within it, everything is on one stream."""

    @property
    def stream(self) -> int | None: ...
    def random(self, tensor: Tensor) -> Any: ...
    def poisoned(self, tensor: Tensor) -> Any:
        """Memory that is full of what no kernel would write."""

    def scratch(self, nbytes: int) -> Any: ...
    def copy(self, array: Any) -> Any: ...
    def error(self, got: Any, reference: Any) -> float:
        """The norm of the difference over the norm of `reference`."""

    def finish(self) -> None: ...
    def release(self) -> None:
        """Give the memory back that nothing holds any more."""

    def cold(self, calls: Calls, rounds: int) -> Samples:
        """Times of single calls that find none of their data in the L2 cache, in turns."""

    def replayed(self, calls: Mapping[str, list[Call]], rounds: int, about: float) -> tuple[Samples, dict[str, str]]:
        """Times a call without the host's part, and why each contestant that cannot be captured has none."""


class TorchMachine:
    """The current CUDA device."""

    def __init__(self) -> None:
        self.torch = torch = torch_module()
        if not torch.cuda.is_available():
            raise DriverError("torch sees no CUDA device; bench times kernels on one")
        torch.manual_seed(0)
        torch.backends.cuda.matmul.allow_tf32 = False  # f32 is f32 on both sides
        torch.backends.cudnn.allow_tf32 = False
        self.device = f"cuda:{torch.cuda.current_device()}"
        self.place = self.device  # in the words of torch
        self.side = torch.cuda.Stream()
        self.l2_bytes = int(torch.cuda.get_device_properties(self.device).L2_cache_size)
        from .timing import Clock

        self.clock = Clock(torch, self.side, 2 * self.l2_bytes)

    @property
    def stream(self) -> int:
        """The handle that plans are bound to."""
        return int(self.side.cuda_stream)

    def working(self) -> AbstractContextManager[object]:
        """Within it torch is on the stream that is timed: gradients run on the stream of their forward."""
        return self.torch.cuda.stream(self.side)  # type: ignore[no-any-return]

    def facts(self) -> dict[str, str]:
        """Device, driver and versions."""
        torch = self.torch
        facts = {"device": torch.cuda.get_device_name(self.device), "driver": _driver()}
        facts |= {"cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())}
        facts |= {"python": platform.python_version(), "nvrtc": nvrtc_version()}
        for name in _LIBRARIES:
            try:
                facts[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                continue
        return facts

    def random(self, tensor: Tensor) -> Any:
        """Numbers of the range that tests draw from, else standard normal ones."""
        dtype, drawn = self._dtype(tensor.kind), tensor.drawn
        if dtype == self.torch.bool:
            return self.torch.randint(2, tensor.shape, dtype=dtype, device=self.place)
        if dtype.is_complex:
            real = replace(tensor, kind=tensor.kind.row.acc)
            return self.torch.complex(self.random(real), self.random(real))
        if not dtype.is_floating_point:
            if drawn is None:
                raise AssertionError(f"no benchmark draws {tensor.kind} for {tensor.name!r} without tests.ranges")
            low, high = map(int, drawn)
            numbers = self.torch.randint(low, high + 1, tensor.shape, dtype=dtype, device=self.place)
            if tensor.ascending:
                numbers = numbers.sort().values
                numbers[-1:] = high
            return numbers
        wide = self.torch.float64 if dtype == self.torch.float64 else self.torch.float32
        draw = wide if dtype.itemsize == 1 else dtype
        if drawn is None:
            return self.torch.randn(tensor.shape, dtype=draw, device=self.place).to(dtype)
        return self.torch.empty(tensor.shape, dtype=draw, device=self.place).uniform_(*drawn).to(dtype)

    def poisoned(self, tensor: Tensor) -> Any:
        """NaN everywhere, the largest whole number, or a bool that is neither, which a comparison cannot overlook."""
        dtype = self._dtype(tensor.kind)
        if dtype == self.torch.bool:
            return self.torch.full(tensor.shape, 0xA5, dtype=self.torch.uint8, device=self.place).view(dtype)
        poison = float("nan") if dtype.is_floating_point or dtype.is_complex else self.torch.iinfo(dtype).max
        return self.torch.full(tensor.shape, poison, dtype=dtype, device=self.place)

    def scratch(self, nbytes: int) -> Any:
        """Workspace of plans, as dirty as the caller's may be."""
        return self.torch.full((max(nbytes, 16),), 0xA5, dtype=self.torch.uint8, device=self.place)

    def copy(self, array: Any) -> Any:
        return array.clone()

    def error(self, got: Any, reference: Any) -> float:
        """In float64 where either is; otherwise norms of float32 differences are exact enough."""
        torch = self.torch
        if reference.is_complex():
            got, reference = (torch.view_as_real(of.detach().resolve_conj()) for of in (got, reference))
        wide = torch.float64 if torch.float64 in (got.dtype, reference.dtype) else torch.float32
        expected = reference.detach().to(wide)
        norm = float(torch.linalg.vector_norm(expected, dtype=torch.float64))
        error = torch.linalg.vector_norm(got.detach().reshape(expected.shape).to(wide) - expected, dtype=torch.float64)
        return float(error) / norm if norm else float(error)

    def finish(self) -> None:
        self.torch.cuda.synchronize()

    def release(self) -> None:
        """Also what reference cycles hold, such as graphs of gradients."""
        import gc

        gc.collect()
        self.torch.cuda.empty_cache()

    def cold(self, calls: Calls, rounds: int) -> Samples:
        return self.clock.cold(calls, rounds)

    def replayed(self, calls: Mapping[str, list[Call]], rounds: int, about: float) -> tuple[Samples, dict[str, str]]:
        return self.clock.replayed(calls, rounds, about)

    def _dtype(self, kind: ElementKind) -> Any:
        return getattr(self.torch, _TORCH[kind.value])


_TORCH = {
    "f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64", "i8": "int8", "i16": "int16",
    "i32": "int32", "i64": "int64", "u8": "uint8", "bool": "bool", "c64": "complex64", "c128": "complex128",
    "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
}  # fmt: skip


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"
