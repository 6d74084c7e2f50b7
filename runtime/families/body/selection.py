"""Selection in the body family: by the problems that schedules serve and by their launches."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from ...arrays.arguments import Argument
from ...arrays.element import ElementKind
from ...arrays.workspace import rounded
from ...computing import computing
from ...device import Device
from ...devices.limits import shared_bytes
from ...devices.named import default_device
from ...errors import InvalidProblem, Unsupported
from ...observe import log
from ...plans.descriptor import Descriptor
from ...plans.preference import PlanPreference
from ...plans.registry import Registered
from ...plans.schedule import Schedule
from ...plans.selection import Explanation, Selectable, Verdict
from ...plans.sku import KernelSku
from ...plans.tuned import Choice, Facts
from ...values import shown

B = TypeVar("B", bound=Descriptor)
_LARGEST_GRID = (2**31 - 1, 65535, 65535)  # blocks along x, y and z, of any architecture
_LARGEST_BLOCK = 1024  # threads
_MOST_SCRATCH = 1 << 56  # elements: bytes of several arrays are still counted in 63 bits
_WORD = 1 << 31  # settings are ints of 32 bits in kernels
_NAME = re.compile(r"\b[A-Za-z_]\w*\b(?!\s*\()")  # in an expression, of what is no function
_RECENT = 64  # problems and SKUs whose launches are kept: selection asks for them several times in a row


class BodyKernel(NamedTuple):
    """One launch: grid (empty if there is nothing to do), threads per block, dynamic shared bytes, and whether it uses
    programmatic dependent launch.
    """

    name: str
    grid: tuple[int, int, int]
    threads: int
    shared: int
    overlaps: bool = False

    @property
    def refused(self) -> str | None:
        """Why no device can launch it, or None."""
        if any(blocks > most for blocks, most in zip(self.grid, _LARGEST_GRID, strict=True)):
            return f"needs a grid of {self.grid} blocks for {self.name}, the largest is {_LARGEST_GRID}"
        if min(self.grid) < 0:
            return f"needs a grid of {self.grid} blocks for {self.name}, none may be negative"
        if not 1 <= self.threads <= _LARGEST_BLOCK:
            return f"needs {self.threads} threads a block for {self.name}, there are 1 to {_LARGEST_BLOCK}"
        return f"needs {self.shared} bytes of shared memory for {self.name}" if self.shared < 0 else None


@dataclass(frozen=True, slots=True)
class Serves:
    """The problems that a schedule serves, as text and as a function of descriptor, numbers and settings."""

    arch: str
    elements: tuple[str, ...]
    schedule: str
    text: str
    holds: Callable[[Any, Any, Any], bool]

    def refuses(self, d: Descriptor, s: Any, v: Any) -> str | None:
        """Why the problem is not served, with the value of each name in the text, or None."""
        with computing(d):
            if self.holds(d, s, v):
                return None
        found = dict.fromkeys(n for n in _NAME.findall(self.text) if not keyword.iskeyword(n))
        owners = {n: d if n in d._types else v if hasattr(v, n) else s for n in found}
        return f"needs {self.text}; here {', '.join(f'{n}={shown(getattr(of, n))}' for n, of in owners.items())}"


@dataclass(frozen=True, slots=True)
class Box:
    """What TMA copies at a time: (rows, columns) of a tensor, columns in 128-byte panels."""

    tensor: str
    extent: Callable[[Any, Any, Any], tuple[int, int]]


class BodySelection(Selectable[B]):
    """Selection keeps every candidate that serves the descriptor.

    `sku` is the first. Arrays that it cannot address (tensor maps have rules of their own), or a device that it does
    not fit, use the next.
    """

    ARGUMENTS: ClassVar[dict[str, Argument]]
    WORKSPACE: ClassVar[tuple[tuple[str, str], ...]]  # arrays of scratch and their element
    SERVES: ClassVar[tuple[Serves, ...]]  # schedules that do not serve every problem
    MAPS: ClassVar[dict[str, tuple[Box, ...]]] = {}  # architecture -> tensor maps, in the order of the struct
    PINNED: ClassVar[str] = ""  # the only architecture whose SKUs are candidates

    def __init__(
        self, descriptor: B, rows: Sequence[Registered], first: Registered, layouts: frozenset[str], arch: str = ""
    ) -> None:
        super().__init__(descriptor, first, layouts)
        self._rows = tuple(rows)
        self._measured_on = arch  # where it was measured that `first` is before the others, or ""

    # What generated plans declare, as functions of descriptor, schedule numbers and settings.
    @staticmethod
    def shapes_of(d: Any) -> dict[str, tuple[tuple[int, ...], ...]]:
        """The allowed shapes of each argument, the default first."""
        raise AssertionError("generated plans define this")

    @staticmethod
    def _settings_of(d: Any) -> dict[str, int]:
        raise AssertionError("generated plans define this")

    @staticmethod
    def _add_terms(d: Any, s: Any, v: Any) -> None:
        """Add the shared expressions to the settings."""

    @staticmethod
    def _scratch_of(d: Any, s: Any, v: Any) -> tuple[int, ...]:
        raise AssertionError("generated plans define this")

    @staticmethod
    def _kernels_of(d: Any, s: Any, v: Any) -> tuple[BodyKernel, ...]:
        raise AssertionError("generated plans define this")

    @classmethod
    def _select(
        cls, descriptor: B, preference: PlanPreference, device: Device | None, layouts: frozenset[str] | None
    ) -> Self:
        cls._check(descriptor)
        cls._known_layouts(layouts)
        accepted: list[Registered] = []
        refused: list[tuple[KernelSku, str]] = []
        for row in cls._candidates(descriptor):
            reason = cls._refusal(descriptor, row.sku, preference, device)
            if reason is None and layouts is not None and not layouts & set(held := cls._works_on(row.sku)):
                reason = f"works on {' and '.join(held)}, layouts are {', '.join(sorted(layouts))}"
            if reason is None:
                accepted.append(row)
            else:
                log.debug("%s: refused %s: %s", cls.__name__, row.sku, reason)
                refused.append((row.sku, reason))
        if not accepted:
            raise Unsupported(f"{cls.__name__}: no kernel for {descriptor}{listed(refused)}")
        where = device or default_device()
        fitting = (row for row in own_first(accepted, where) if cls._unfit(descriptor, row.sku, where) is None)
        first = next(fitting, accepted[0])
        measured = cls._measured(descriptor, first.sku, preference, where, layouts)
        log.debug("%s: %s", cls.__name__, measured.why)
        arch, first = (where.arch, measured.row) if measured.row in accepted and measured.row else ("", first)
        return cls(descriptor, accepted, first, layouts or frozenset(cls.LAYOUTS), arch)

    @classmethod
    def _measured(
        cls,
        descriptor: B,
        by_rule: KernelSku,
        preference: PlanPreference,
        device: Device | None,
        layouts: frozenset[str] | None,
    ) -> Choice:
        if cls.PINNED:
            return Choice(None, f"by rule: {cls.__name__} is held to {cls.PINNED}")
        return super()._measured(descriptor, by_rule, preference, device, layouts)

    @classmethod
    def facts_of(cls, descriptor: B) -> Facts:
        """The facts of the problem; everything that is compiled in must match."""
        same, near = super().facts_of(descriptor)
        compiled = {name: int(value) for name, value in cls._settings_of(descriptor).items()}
        return Facts({**same, **compiled}, near)

    @classmethod
    def _check_sizes(cls, descriptor: B) -> None:
        for name, value in cls._settings_of(descriptor).items():
            if not -_WORD <= value < _WORD:
                raise InvalidProblem(f"{cls.__name__}: constant {name} is {value}; needs an int of 32 bits")
        for name, (shape, *_) in cls.shapes_of(descriptor).items():
            if (flag := cls.ARGUMENTS[name].optional) and not getattr(descriptor, flag):
                continue
            if min(shape, default=0) < 0:
                raise InvalidProblem(f"{cls.__name__}: {name!r} would be of shape {shape}; needs no negative extents")
            if (count := prod(shape)) >= 1 << 63:
                raise InvalidProblem(f"{cls.__name__}: {name!r} of shape {shape} has {count} elements, 2^63 or more")

    @classmethod
    def _candidates(cls, descriptor: B) -> tuple[Registered, ...]:
        rows = [row for row in cls.kernels() if cls.PINNED in ("", row.sku.arch)]
        if found := tuple(row for row in rows if row.sku.element == descriptor.element):
            return found
        held = ", ".join(dict.fromkeys(row.sku.element for row in rows))
        raise Unsupported(f"{cls.__name__}: no kernel for element {descriptor.element}; its kernels are for {held}")

    @classmethod
    def _explain(cls, descriptor: B, preference: PlanPreference, device: Device | None) -> Explanation:
        where = device or default_device()
        verdicts = []
        for row in own_first(cls._candidates(descriptor), where):
            reason = cls._refusal(descriptor, row.sku, preference, where)
            verdicts.append(Verdict(reason is None, row.sku, None, reason or ""))
        return cls._explained(descriptor, verdicts, preference, where)

    @classmethod
    def _refusal(cls, descriptor: B, sku: KernelSku, preference: PlanPreference, device: Device | None) -> str | None:
        if device is not None and (reason := cls._unfit(descriptor, sku, device)):
            return reason
        return cls.cannot_hold(descriptor, sku) or preference.refuses(sku, cls.workspace_of(descriptor, sku))

    @classmethod
    def _unfit(cls, descriptor: B, sku: KernelSku, device: Device) -> str | None:
        return sku.fits(device.arch) or cls._too_much_shared(descriptor, sku, device.arch)

    @classmethod
    def cannot_hold(cls, descriptor: B, sku: KernelSku) -> str | None:
        """Why the schedule does not serve the problem, or needs too many blocks or too much shared memory."""
        schedule = str(sku.schedule)
        for serves in cls.SERVES:
            mine = (serves.arch, serves.schedule) == (sku.arch, schedule) and sku.element in serves.elements
            if mine and (reason := serves.refuses(descriptor, *cls._constants(descriptor, sku))):
                return reason
        launched = cls._launched(descriptor, sku)
        refused = next((reason for kernel in launched if (reason := kernel.refused)), None)
        return refused or cls._too_much_shared(descriptor, sku, sku.arch) or cls._unsized(descriptor, sku)

    @classmethod
    def _unsized(cls, descriptor: B, sku: KernelSku) -> str | None:
        for (name, _), count in zip(cls.WORKSPACE, cls._scratch_counts(descriptor, sku), strict=True):
            if not 0 <= count < _MOST_SCRATCH:
                return f"needs {count} elements of workspace for {name}"
        return None

    @classmethod
    def _too_much_shared(cls, descriptor: B, sku: KernelSku, arch: str) -> str | None:
        used = max((kernel.shared for kernel in cls._launched(descriptor, sku)), default=0)
        held = shared_bytes(arch)
        return f"takes {used} bytes of shared memory a block, {arch} has {held}" if used > held else None

    @classmethod
    @lru_cache(maxsize=_RECENT)
    def _launched(cls, descriptor: B, sku: KernelSku, multiprocessors: int = 1) -> tuple[BodyKernel, ...]:
        """The kernels with a non-empty grid."""
        constants = cls._constants(descriptor, sku, multiprocessors)
        with computing(descriptor):
            return tuple(kernel for kernel in cls._kernels_of(descriptor, *constants) if 0 not in kernel.grid)

    @classmethod
    @lru_cache(maxsize=_RECENT)
    def _constants(cls, descriptor: B, sku: KernelSku, multiprocessors: int = 1) -> tuple[Any, Any]:
        schedule, row = sku.schedule, sku.element.row
        assert isinstance(schedule, Schedule)
        numbers = SimpleNamespace(
            threads=schedule.threads,
            itemsize=row.bytes,
            accsize=row.acc.row.bytes,
            multiprocessors=multiprocessors,
            **{**dict.fromkeys(cls._schedule_numbers(), 0), **dict(schedule.numbers)},
        )
        with computing(descriptor):
            settings = SimpleNamespace(**cls._settings_of(descriptor))
            cls._add_terms(descriptor, numbers, settings)
        return numbers, settings

    @classmethod
    @lru_cache(maxsize=_RECENT)
    def _schedule_numbers(cls) -> frozenset[str]:
        """All numbers that schedules of the plan have; for a kernel whose schedule lacks one, it is 0."""
        schedules = {row.sku.schedule for row in cls.kernels()}
        return frozenset(name for one in schedules if isinstance(one, Schedule) for name, _ in one.numbers)

    @classmethod
    def workspace_of(cls, descriptor: B, sku: KernelSku) -> int:
        """Bytes of workspace that `sku` needs for `descriptor`."""
        return sum(cls._scratch_bytes(descriptor, sku))

    @classmethod
    def _scratch_counts(cls, descriptor: B, sku: KernelSku) -> tuple[int, ...]:
        constants = cls._constants(descriptor, sku)
        with computing(descriptor):
            return cls._scratch_of(descriptor, *constants)

    @classmethod
    def _scratch_bytes(cls, descriptor: B, sku: KernelSku) -> list[int]:
        kinds = {"T": sku.element, "acc": sku.element.row.acc}
        counts = cls._scratch_counts(descriptor, sku)
        sizes = [(kinds.get(k) or ElementKind(k)).row.bytes for _, k in cls.WORKSPACE]
        return [rounded(count * size) for count, size in zip(counts, sizes, strict=True)]

    @classmethod
    def _works_on(cls, sku: KernelSku) -> tuple[str, ...]:
        """The layouts that arrays for `sku` may have: its own, or those that no other SKU owns.

        Among several, a SKU with tensor maps takes the first, strictest one: maps have rules of their own.
        """
        own = {row.sku.layout for row in cls.kernels() if row.sku.layout}
        held = (sku.layout,) if sku.layout else tuple(name for name in cls.LAYOUTS if name not in own)
        mapped, *_ = held
        return (mapped,) if sku.arch in cls.MAPS else held


def listed(refused: Sequence[tuple[KernelSku, str]]) -> str:
    """The reasons of the candidates; one that all share is given once."""
    if len(refused) > 1 and len({reason for _, reason in refused}) == 1:
        return f"; each of its {len(refused)} kernels: {refused[0][1]}"
    return "".join(f"\n  {sku}: {reason}" for sku, reason in refused)


def own_first(rows: Sequence[Registered], device: Device) -> list[Registered]:
    """`rows` with those made for the device's own architecture first, except for those marked `first`."""
    return sorted(rows, key=lambda row: not row.first and row.sku.arch.rstrip("a") != device.arch)
