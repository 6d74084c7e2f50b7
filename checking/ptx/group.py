"""Lanes that are at the same instruction, and what an instruction does to them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .numbers import Lanes

WARP = 32


class Group:
    """The lanes that execute an instruction. `alone`: registers of other lanes do not matter any more."""

    __slots__ = ("_index", "alone", "lanes")

    def __init__(self, lanes: Lanes, *, alone: bool) -> None:
        self.lanes, self.alone = lanes, alone
        self._index: Lanes = None

    @property
    def index(self) -> Lanes:
        """The lanes' numbers."""
        if self._index is None:
            self._index = np.flatnonzero(self.lanes)
        return self._index


Run = Callable[[Group], None]
Read = Callable[[], Lanes]
