"""A machine for contests without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from baracuda.benchmarks.case import Tensor
from baracuda.benchmarks.machine import Calls, Samples
from baracuda.benchmarks.peers import Call


class HostMachine:
    """The host device and NumPy, with a clock that is told what each contestant takes."""

    device, l2_bytes, stream = "host", 4096, None

    def __init__(self, times: Mapping[str, float] | None = None, uncaptured: tuple[str, ...] = ()) -> None:
        self.times, self.uncaptured = times or {}, uncaptured
        self.rng = np.random.default_rng(0)
        self.sets: dict[str, int] = {}

    def facts(self) -> dict[str, str]:
        return {"device": "Host", "driver": "1", "torch": "2"}

    def working(self) -> AbstractContextManager[object]:
        return nullcontext()

    def random(self, tensor: Tensor) -> Any:
        return self.rng.standard_normal(tensor.shape).astype(tensor.kind.row.numpy)

    def poisoned(self, tensor: Tensor) -> Any:
        return np.full(tensor.shape, np.nan, tensor.kind.row.numpy)

    def scratch(self, nbytes: int) -> Any:
        raw = np.full(nbytes + 16, 0xA5, np.uint8)
        return raw[-raw.ctypes.data % 16 :][:nbytes]

    def copy(self, array: Any) -> Any:
        return array.copy()

    def error(self, got: Any, reference: Any) -> float:
        expected = np.asarray(reference, np.float64)
        error = np.asarray(got, np.float64).reshape(expected.shape) - expected
        return float(np.linalg.norm(error) / np.linalg.norm(expected))

    def finish(self) -> None:
        return None

    def release(self) -> None:
        return None

    def cold(self, calls: Calls, rounds: int) -> Samples:
        for call in calls.values():
            call()
        return {name: [self.times.get(name, 500.0)] * rounds for name in calls}

    def replayed(self, calls: Mapping[str, list[Call]], rounds: int, about: float) -> tuple[Samples, dict[str, str]]:
        self.sets = {name: len(sets) for name, sets in calls.items()}
        for call in (call for sets in calls.values() for call in sets):
            call()
        kept = [name for name in calls if name not in self.uncaptured]
        return {n: [self.times.get(n, 500.0) / 2] * rounds for n in kept}, dict.fromkeys(self.uncaptured, "no graph")
