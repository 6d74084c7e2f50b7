"""A device that only selection looks at: every GPU of an architecture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from ..device import KernelSource
from ..errors import DriverError


@dataclass
class Architecture:
    """Stands for every GPU of an architecture where no GPU is needed: in selection."""

    name: str
    arch: str
    watch: None = None
    multiprocessors: int = 1

    def load(self, source: KernelSource) -> NoReturn:
        raise DriverError(f"{self.arch} is no device to load {source.symbol!r} on; name one, as in 'cuda:0'")

    def is_loaded(self, source: KernelSource) -> bool:
        return False

    def is_capturing(self, stream: int) -> bool:
        return False
