"""The load: threads with some streams each run all cases in an order of their own, beside a kernel that competes."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..trials.trial import message_of
from .case import Case
from .slab import Slab

_POISON = (0xFF, 0xA5, 0x00, 0x7F)  # of every byte, one after another; all ones read as NaN
_COMPETING = 1 << 26  # numbers that the competing kernel passes through: longer than any other kernel runs
_QUEUED = 8  # competing kernels at a time
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
    """A stream with its memory, and how many runs of each case, whole and in parts, gave other bits there."""

    stream: Any
    slab: Slab
    wrong: Any


@dataclass
class Load:
    """What runs, on how many threads and streams; `failures` are of runs that raised something."""

    cases: Sequence[Case]
    library: Any  # NumPy, or CuPy on a GPU
    threads: int
    streams: int
    seed: int = 0
    runs: int = 0
    retried: int = 0  # runs that found no memory
    failures: dict[str, str] = field(default_factory=dict)
    _slots: list[list[Slot]] = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
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
        """Runs with other bits, by case."""
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
            if slot.stream is not None:
                slot.stream.synchronize()
        with self._lock:
            self.runs, self.retried = self.runs + done, self.retried + tries

    def _repeated(self, index: int, number: int, slot: Slot, rng: random.Random) -> int:
        """Run until there is memory, and how often there was none."""
        for turn in range(_PATIENCE):
            try:
                with nullcontext() if slot.stream is None else slot.stream:
                    self._run(index, number, slot, rng)
                return turn
            except MemoryError:
                time.sleep(0.05)
            except Exception as error:
                self.failures.setdefault(self.cases[index].name, message_of(error))
                return turn
        self.failures.setdefault(self.cases[index].name, "there was no memory for 30 s")
        return _PATIENCE

    def _run(self, index: int, number: int, slot: Slot, rng: random.Random) -> None:
        problem, places, inputs, outputs, numbers = self.cases[index].turn(number)
        (offsets, end), slab = places.draw(rng, rng.choice(places.units)), slot.slab
        slab.bytes[:end].fill(_POISON[number % len(_POISON)])
        for name, bits in inputs.items():
            slab.words(offsets[name], places.tensors[name])[...] = bits
        stream = {} if slot.stream is None else {"stream": slot.stream}
        problem.plan.run(**places.arguments(problem, slab, offsets), **stream)
        for name, bits in outputs.items():
            other = slab.words(offsets[name], places.tensors[name]) != bits
            if name in numbers:
                other = other.reshape(*numbers[name].shape, -1).any(-1) & numbers[name]
            slot.wrong[index, int(problem is not self.cases[index].problem)] += other.any()

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


def _on_host(array: Any) -> Any:
    return array.get() if hasattr(array, "get") else array
