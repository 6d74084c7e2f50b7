"""What cp.async has been asked to copy: it arrives as late as it may."""

from __future__ import annotations

import numpy as np

from .memory import Space
from .numbers import Lanes


class Copies:
    """The copies of some lanes from global memory to shared memory that have not arrived."""

    def __init__(self, count: int, shared: Space, memory: Space) -> None:
        self._count, self._shared, self._memory = count, shared, memory
        self._committed = np.zeros(count, np.int64)
        self._copies: list[tuple[Lanes, Lanes, Lanes, Lanes, int, Lanes]] = []

    @property
    def pending(self) -> Lanes:
        return np.concatenate([np.zeros(0, np.int64), *(lanes for lanes, *_ in self._copies)])

    def issue(self, lanes: Lanes, to: Lanes, source: Lanes, size: int, taken: Lanes) -> None:
        for byte in range(size):
            self._shared.store(to + byte, np.full(to.size, 0xFF, np.uint8))
        self._copies.append((lanes, self._committed[lanes], to, source, size, taken))

    def commit(self, lanes: Lanes) -> None:
        self._committed[lanes] += 1

    def wait(self, lanes: Lanes, allowed: int | None) -> None:
        """Complete all but the last `allowed` groups; None: also what is not committed."""
        waits = np.zeros(self._count, np.bool_)
        waits[lanes] = True
        left = []
        for owner, group, to, source, size, taken in self._copies:
            done = waits[owner]
            if allowed is not None:
                done &= group < self._committed[owner] - allowed
            self._complete(to[done], source[done], size, taken[done])
            if not done.all():
                left.append((owner[~done], group[~done], to[~done], source[~done], size, taken[~done]))
        self._copies = left

    def _complete(self, to: Lanes, source: Lanes, size: int, taken: Lanes) -> None:
        for byte in range(size):
            values = np.zeros(to.size, np.uint8)
            has = byte < taken
            values[has] = self._memory.load(source[has] + byte, 1)
            self._shared.store(to + byte, values)
