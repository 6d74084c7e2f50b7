"""Prepared calls: what a plan keeps of a checked call, to launch its kernels again without checks.

Checks and launches depend only on the arrays' addresses, types and bounds, that is on their views. So arrays with views
equal to accepted ones are accepted, whichever objects they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn
from weakref import ref

from ..arrays.signature import Likeness, likeness_of
from ..arrays.tensor import PLACES, memory_of, numpy_bases
from ..device import Device, Kernel, WatchedArray
from ..devices.stream import raw_stream
from ..errors import InvalidProblem
from .sku import KernelSku

_REMEMBERED = 256  # calls

Arrays = tuple[object, ...]
Place = tuple[Any, ...]
Start = Callable[[int], None]  # launches kernels on a stream, given by its handle


Memory = tuple[tuple[Callable[[], tuple[int | None, int]], tuple[int | None, int]], ...]  # now, and when it was bound


class Prepared(NamedTuple):
    """A checked call: its kernels, and how to get the default stream."""

    device: Device
    start: Start
    current: Callable[[], int]


class Calls:
    """The most recent prepared calls; cleared when full.

    Looked up by the arrays' views or, if they resemble those of the last prepared call, by their addresses.
    """

    def __init__(self) -> None:
        self._by_place: dict[Place, Prepared] = {}
        # One attribute each, so that threads see a key and what belongs to it. Comparing with the latest place takes
        # half as long as looking in the dict.
        self._latest: tuple[Place, Prepared] | tuple[None, None] = (None, None)
        self._alike: tuple[Likeness, dict[Place, Prepared]] | None = None

    def __len__(self) -> int:
        return len(self._by_place) + (0 if self._alike is None else len(self._alike[1]))

    def find(self, arrays: Arrays) -> Prepared | None:
        """The prepared call for arrays with equal views, if there is one."""
        try:
            if (alike := self._alike) is not None and alike[0].kind is type(arrays[0]):
                likeness, by_addresses = alike
                if (addresses := likeness.addresses(arrays)) is not None:
                    return by_addresses.get(addresses)
            return self._prepared_at(place_of(arrays))
        except Exception:  # the checks report what is wrong with the arrays
            return None

    def _prepared_at(self, place: Place | None) -> Prepared | None:
        latest = self._latest
        if latest[0] == place:
            return latest[1]
        prepared = None if place is None else self._by_place.get(place)
        if place is not None and prepared is not None:
            self._latest = place, prepared
        return prepared

    def remember(self, arrays: Arrays, prepared: Prepared) -> None:
        """Keep a prepared call for later calls with such arrays."""
        if self._remembered_alike(arrays, prepared) or (place := place_of(arrays)) is None:
            return
        if len(self._by_place) >= _REMEMBERED:
            self._by_place.clear()
        self._by_place[place] = prepared
        self._latest = place, prepared
        if (likeness := likeness_of(arrays)) is not None:
            self._alike = likeness, {}
            self._remembered_alike(arrays, prepared)

    def _remembered_alike(self, arrays: Arrays, prepared: Prepared) -> bool:
        """Store it by addresses if the arrays resemble those of the last prepared call; whether it was stored."""
        if (alike := self._alike) is None or (addresses := alike[0].addresses(arrays)) is None:
            return False
        if len(alike[1]) >= _REMEMBERED:
            alike[1].clear()
        alike[1][addresses] = prepared
        return True


@dataclass(slots=True)
class BoundLaunch:
    """A plan bound to fixed buffers, which it keeps alive and in place; calling it only launches the kernels."""

    start: Start
    stream: int
    keep: tuple[object, ...]
    device: Device
    watched: tuple[WatchedArray, ...]
    sku: KernelSku  # the kernel that it starts
    _in_place: tuple[object, ...] = field(init=False, repr=False)
    _memory: Memory = field(init=False, repr=False)

    def __post_init__(self) -> None:
        bases = {id(base): base for array in self.keep for base in numpy_bases(array)}.values()
        self._in_place = tuple([ref(base) for base in bases])
        self._memory = tuple([(memory := memory_of(base), memory()) for base in bases])

    def __reduce__(self) -> NoReturn:
        raise TypeError("a bound plan holds addresses of this process and is not copied; pickle the plan, and bind it")

    def __call__(self, stream: object = None) -> None:
        """Launch the kernels on `stream`, by default on the one that was current when the plan was bound."""
        for memory, then in self._memory:
            if memory() != then:  # as `__setstate__` of an array makes it
                raise InvalidProblem("an array's memory moved since the plan was bound to it; bind the plan again")
        handle = self.stream if stream is None else raw_stream(stream, ())
        if self.device.watch is None:
            self.start(handle)
        else:
            with self.device.watch(self.watched):
                self.start(handle)


def place_of(arrays: Iterable[object]) -> Place | None:
    """Equal for arrays with equal views and owner types, which determine the stream; None without a view."""
    try:
        return tuple([None if array is None else PLACES[type(array)](array) for array in arrays])
    except Exception:  # a new type, or an error that the checks report
        return None


def in_sequence(starts: Sequence[Start]) -> Start:
    """One function that calls all of `starts`; with a single one, that one itself."""
    if not starts:
        return lambda stream: None
    if len(starts) == 1:
        return starts[0]
    first, others = starts[0], in_sequence(starts[1:])

    def start(stream: int) -> None:
        first(stream)
        others(stream)

    return start


def start_of(kernel: Kernel, grid: tuple[int, int, int], block: int, words: Any, overlaps: bool) -> Start:
    """The launch of `kernel` with a struct of 8-byte words, an array that it keeps alive; see `Launch`."""
    address, length = words.buffer_info()
    prepared = getattr(kernel, "prepared", None)
    if prepared is not None:
        start: Start = prepared(grid, block, address, 8 * length, words, overlaps)
        return start

    def launch(stream: int, _words: object = words) -> None:
        kernel.launch(grid, block, address, 8 * length, stream)

    return launch
