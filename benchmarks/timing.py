"""Device timing with a cold L2 cache, contestants in turns.

Long calls are timed one by one with events, after an L2 flush and a pause that lets the host run ahead. Short ones are
captured in a CUDA graph, over buffer sets that together exceed the L2, which excludes host time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil
from statistics import median, quantiles
from typing import Any

from .peers import Call

_PAUSE = 1_000_000  # cycles, about half a millisecond: longer than any host takes to launch one call
_REPLAY = 1000.0  # microseconds a graph should last, beside which events and launch do not count


def spread(samples: Sequence[float]) -> tuple[float, float, float]:
    """Median and quartiles."""
    if len(samples) < 2:
        return samples[0], samples[0], samples[0]
    low, _, high = quantiles(samples, n=4, method="inclusive")
    return median(samples), low, high


class Clock:
    """Times calls on `stream`, which is torch's current one meanwhile."""

    def __init__(self, torch: Any, stream: Any, flushed: int) -> None:
        self.torch, self.stream = torch, stream
        self.flush = torch.empty(flushed, dtype=torch.uint8, device="cuda")

    def cold(self, calls: Mapping[str, Call], rounds: int) -> dict[str, list[float]]:
        """Times of single calls, microseconds, in turns; what the host takes is hidden behind the pause."""
        pairs: dict[str, list[tuple[Any, Any]]] = {name: [] for name in calls}
        for _ in range(rounds):
            for name, call in calls.items():
                self.flush.zero_()
                self.torch.cuda._sleep(_PAUSE)
                with self._between(pairs[name]):
                    call()
            self.torch.cuda.synchronize()
        return {name: [_microseconds(pair) for pair in events] for name, events in pairs.items()}

    def replayed(
        self, calls: Mapping[str, list[Call]], rounds: int, about: float
    ) -> tuple[dict[str, list[float]], dict[str, str]]:
        """Times a call, microseconds, of graphs that go through the sets of buffers over and over, in turns.

        `about` is how long a call takes. What cannot be captured comes back with the reason.
        """
        graphs, failed = {}, {}
        for name, sets in calls.items():
            passes = max(1, ceil(_REPLAY / (about * len(sets))))
            try:
                graphs[name] = self._captured(sets, passes), passes * len(sets)
            except Exception as error:  # whatever the contestant does that a graph cannot hold
                failed[name] = str(error).splitlines()[0][:200]
                self.torch.cuda.synchronize()
        pairs: dict[str, list[tuple[Any, Any]]] = {name: [] for name in graphs}
        for turn in range(rounds + 2):
            for name, (graph, _) in graphs.items():
                with self._between(pairs[name] if turn > 1 else []):  # the first ones warm clocks and caches up
                    graph.replay()
            self.torch.cuda.synchronize()
        return {name: [_microseconds(p) / graphs[name][1] for p in events] for name, events in pairs.items()}, failed

    def _captured(self, sets: Sequence[Call], passes: int) -> Any:
        for call in sets:
            call()
        self.torch.cuda.synchronize()
        graph = self.torch.cuda.CUDAGraph()
        outputs: deque[Any] = deque(maxlen=len(sets))  # outputs of a peer rotate as its inputs do
        with self.torch.cuda.graph(graph, stream=self.stream):
            for _ in range(passes):
                for call in sets:
                    outputs.append(call())
        return graph

    @contextmanager
    def _between(self, pairs: list[tuple[Any, Any]]) -> Iterator[None]:
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(self.stream)
        yield
        end.record(self.stream)
        pairs.append((begin, end))


def _microseconds(pair: tuple[Any, Any]) -> float:
    return float(pair[0].elapsed_time(pair[1])) * 1e3
