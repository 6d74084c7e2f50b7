"""The load: threads with some streams each run all cases in an order of their own, beside a kernel that competes."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..trials.trial import message_of
from .bits import Differing
from .case import Case
from .slab import Slab

_POISON = (0xFF, 0xA5, 0x00, 0x7F)  # of every byte, one after another; all ones read as NaN
_COMPETING = 1 << 26  # numbers that the competing kernel passes through: longer than any other kernel runs
_QUEUED = 8  # competing kernels at a time
_GRAPHS = 16  # of a stream, that may wait to run
_NO_MEMORY = 2  # cudaErrorMemoryAllocation
_PATIENCE = 600  # tries of a run that finds no memory, with pauses of 50 ms


@dataclass
class Until:
    """When a phase ends: after each case's runs from `first` to before `end`, or at a time."""

    first: int = 0
    end: int | None = None
    deadline: float | None = None

    def over(self, number: int) -> bool:
        late = self.deadline is not None and time.monotonic() >= self.deadline
        return late or (self.end is not None and number >= self.end)


@dataclass
class Slot:
    """A stream with its memory, and how many elements of each case, whole and in parts, had other bits there."""

    stream: Any
    slab: Slab
    wrong: Any
    graphs: list[Any] = field(default_factory=list)  # that may still run

    def replay(self, work: Callable[[], None], times: int) -> None:
        """Record what `work` starts on the stream, and run it so often."""
        self.stream.begin_capture()
        try:
            work()
        except BaseException:
            with suppress(Exception):
                self.stream.end_capture()
            raise
        self.graphs.append(graph := self.stream.end_capture())
        for _ in range(times):
            graph.launch(self.stream)
        if len(self.graphs) >= _GRAPHS:
            self.drain()

    def drain(self) -> None:
        """Wait until nothing runs."""
        if self.stream is not None:
            self.stream.synchronize()
        self.graphs.clear()


@dataclass
class Load:
    """What runs, on how many threads and streams; `failures` are of runs that raised something.

    Tensors stay where they are for `replays` runs of a CUDA graph, so that Python does not take most of the time.
    """

    cases: Sequence[Case]
    library: Any  # NumPy, or CuPy on a GPU
    threads: int
    streams: int
    seed: int = 0
    replays: int = 1
    runs: int = 0
    retried: int = 0  # runs that found no memory
    failures: dict[str, str] = field(default_factory=dict)
    _slots: list[list[Slot]] = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._differing = Differing(self.library)
        most = max((places.most for case in self.cases for places in case.places), default=0)
        self._slots = [[self._slot(most) for _ in range(self.streams)] for _ in range(self.threads)]

    def _slot(self, nbytes: int) -> Slot:
        stream = self.library.cuda.Stream(non_blocking=True) if self._on_gpu else None
        return Slot(stream, Slab(self.library, nbytes), self.library.zeros((len(self.cases), 2), np.int64))

    @property
    def _on_gpu(self) -> bool:
        return self.library is not np

    @contextmanager
    def phase(self, until: Until) -> Iterator[None]:
        """Run while the block is open and until the end; `wrong` and `failures` say what came of it."""
        self.renew()
        if self._on_gpu:
            self.library.cuda.Device().synchronize()
        with self._competing(), ThreadPoolExecutor(self.threads) as pool:
            threads = [pool.submit(self._thread, number, until) for number in range(self.threads)]
            yield
            for thread in threads:
                thread.result()

    def renew(self) -> None:
        """Plans that have not run yet, which remember no calls."""
        for case in self.cases:
            case.renew()

    @property
    def wrong(self) -> dict[str, int]:
        """Elements with other bits, by case."""
        each = [np.asarray(_on_host(slot.wrong)) for slots in self._slots for slot in slots]
        counts = np.sum(each, axis=0)
        named: dict[str, int] = {}
        for case, (whole, part) in zip(self.cases, counts.tolist(), strict=True):
            named |= {case.name: whole, f"{case.name} in parts of the batch": part}
        return {name: count for name, count in named.items() if count}

    def _thread(self, thread: int, until: Until) -> None:
        rng, slots, done, tries = random.Random(f"{self.seed} {thread} {until.first}"), self._slots[thread], 0, 0
        number = until.first + (thread - until.first) % self.threads
        while self.cases and not until.over(number):
            for index in rng.sample(range(len(self.cases)), len(self.cases)):
                if self.failures or (until.deadline is not None and until.over(number)):
                    break
                tries += self._repeated(index, number, slots[done % len(slots)], rng)
                done += 1
            number += self.threads
            if self.failures:
                break
        for slot in slots:
            slot.drain()
        with self._lock:
            self.runs, self.retried = self.runs + done * self.replays, self.retried + tries

    def _repeated(self, index: int, number: int, slot: Slot, rng: random.Random) -> int:
        """Run until there is memory, and how often there was none."""
        for turn in range(_PATIENCE):
            try:
                with nullcontext() if slot.stream is None else slot.stream:
                    self._run(index, number, slot, rng)
                return turn
            except Exception as error:
                if not _is_shortage(error):
                    self.failures.setdefault(self.cases[index].name, message_of(error))
                    return turn
                time.sleep(0.05)
        self.failures.setdefault(self.cases[index].name, "there was no memory for 30 s")
        return _PATIENCE

    def _run(self, index: int, number: int, slot: Slot, rng: random.Random) -> None:
        problem, places, inputs, outputs, numbers = self.cases[index].turn(number)
        (offsets, end), slab = places.draw(rng, rng.choice(places.units)), slot.slab
        stream = {} if slot.stream is None else {"stream": slot.stream}
        arguments = places.arguments(problem, slab, offsets)
        counts = slot.wrong[index, int(problem is not self.cases[index].problem) :]

        def work() -> None:
            slab.bytes[:end].fill(_POISON[number % len(_POISON)])
            for name, bits in inputs.items():
                slab.words(offsets[name], places.tensors[name])[...] = bits
            problem.plan.run(**arguments, **stream)
            for name, bits in outputs.items():
                self._differing.add(slab.words(offsets[name], places.tensors[name]), bits, numbers.get(name), counts)

        if self.replays > 1:
            slot.replay(work, self.replays)
        else:
            work()

    @contextmanager
    def _competing(self) -> Iterator[None]:
        """On a GPU, keep a kernel of many blocks running on a stream of its own."""
        if not self._on_gpu:
            yield
            return
        over, stream = threading.Event(), self.library.cuda.Stream(non_blocking=True)
        numbers = self.library.ones(_COMPETING, np.float32)
        self.library.cuda.Device().synchronize()
        thread = threading.Thread(target=self._compete, args=(stream, numbers, over))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _compete(self, stream: Any, numbers: Any, over: threading.Event) -> None:
        with stream:
            while not over.is_set():
                for _ in range(_QUEUED):
                    self.library.multiply(numbers, numbers, out=numbers)
                stream.synchronize()


def _is_shortage(error: Exception) -> bool:
    """Whether memory was lacking, for an array or, as CuPy says, for a graph."""
    return isinstance(error, MemoryError) or getattr(error, "status", None) == _NO_MEMORY


def _on_host(array: Any) -> Any:
    return array.get() if hasattr(array, "get") else array
