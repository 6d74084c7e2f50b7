"""Selection in the body family: by the problems that schedules serve and by their launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from math import prod
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from ...arrays.arguments import Argument
from ...arrays.element import ElementKind
from ...arrays.workspace import rounded
from ...device import Device
from ...devices.limits import shared_bytes
from ...devices.named import default_device
from ...errors import InvalidProblem, Unsupported
from ...observe import log
from ...plans.descriptor import Descriptor
from ...plans.formula import names_in, written_out
from ...plans.preference import PlanPreference
from ...plans.registry import Registered
from ...plans.schedule import Schedule
from ...plans.selection import Explanation, Selectable, Verdict
from ...plans.sku import KernelSku
from ...plans.tuned import Choice, Facts
from ...values import short_repr

B = TypeVar("B", bound=Descriptor)
_LARGEST_GRID = (2**31 - 1, 65535, 65535)  # blocks along x, y and z, of any architecture
_LARGEST_BLOCK = 1024  # threads
_MOST_SCRATCH = 1 << 56  # elements: bytes of several arrays are still counted in 63 bits
_WORD = 1 << 31  # settings are ints of 32 bits in kernels
_RECENT = 64  # problems and SKUs whose launches are kept: selection asks for them several times in a row


class Numbers(dict[str, Any]):
    """What formulas see: fields, settings and the schedule's numbers, and terms, which are evaluated on first use.

    Numbers that only other schedules have are 0.
    """

    def __init__(self, descriptor: Descriptor, terms: Mapping[str, str], values: Mapping[str, Any]) -> None:
        super().__init__({**vars(descriptor), **values})
        self._descriptor, self._terms = descriptor, terms

    def __missing__(self, name: str) -> Any:
        value = self[name] = self._descriptor._value_of(self._terms[name], self)
        return value


class Launched(NamedTuple):
    """One launch: its grid, threads per block and dynamic shared bytes; `overlaps` is programmatic dependent launch."""

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


class BodyKernel(NamedTuple):
    """The declaration of a launch: formulas over fields, settings, terms and the schedule's numbers."""

    name: str
    grid: tuple[str, ...]  # blocks along x, y and z, by default 1
    shared: str = "0"
    threads: str = "threads"
    when: str = ""  # if given, there is a launch only where this holds
    overlaps: bool = False

    def launched(self, numbers: Numbers, value_of: Callable[[str, Numbers], Any]) -> Launched | None:
        """The launch for a problem, or None if its grid is empty."""
        if self.when and not value_of(self.when, numbers):
            return None
        x, y, z = [value_of(blocks, numbers) for blocks in self.grid] + [1] * (3 - len(self.grid))
        if 0 in (x, y, z):
            return None
        threads, shared = value_of(self.threads, numbers), value_of(self.shared, numbers)
        return Launched(self.name, (x, y, z), threads, shared, self.overlaps)


class BodySchedule(NamedTuple):
    """The declaration of a schedule: its architecture and elements, and a formula of the problems that it fits."""

    arch: str
    elements: tuple[str, ...]
    schedule: str
    fits: str = ""
    layout: str = ""  # the only one that it works on
    first: bool = False  # whether it precedes schedules made for the device's own architecture
    math: str = "acc"  # what factors are rounded to: "acc", "T" or a MathPrecision


class Scratch(NamedTuple):
    """An array of the workspace: its element type ("T", "acc" or a tag) and the formula of its length."""

    name: str
    element: str
    size: str


class Box(NamedTuple):
    """What TMA copies at a time: (rows, columns) of a tensor, columns in 128-byte panels."""

    tensor: str
    extent: str


class BodySelection(Selectable[B]):
    """Selection keeps every candidate that serves the descriptor.

    `sku` is the first. Arrays that it cannot address (tensor maps have rules of their own), or a device that it does
    not fit, use the next.
    """

    ARGUMENTS: ClassVar[dict[str, Argument]]
    SHAPES: ClassVar[dict[str, tuple[str, ...]]]  # allowed shapes of each argument, the default first
    SETTINGS: ClassVar[dict[str, str]] = {}  # compile-time constants of the kernel
    TERMS: ClassVar[dict[str, str]] = {}  # shared parts of formulas
    KERNELS: ClassVar[tuple[BodyKernel, ...]]  # in the order of their launches
    SCHEDULES: ClassVar[tuple[BodySchedule, ...]]  # in order of preference
    LAYOUT_AXES: ClassVar[dict[str, dict[str, int]]]  # layout -> tensor -> the axis along which it is packed
    WORKSPACE: ClassVar[tuple[Scratch, ...]] = ()
    MAPS: ClassVar[dict[str, tuple[Box, ...]]] = {}  # architecture -> tensor maps, in the order of the struct
    _conditions: ClassVar[dict[tuple[str, str, str], str]]  # (architecture, element, schedule) -> `fits`
    _no_numbers: ClassVar[dict[str, int]]  # 0 for every number of any schedule
    PINNED: ClassVar[str] = ""  # the only architecture whose SKUs are candidates

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "SCHEDULES" in vars(cls):
            cls.LAYOUTS = tuple(cls.LAYOUT_AXES)
            rows = [(row, element) for row in cls.SCHEDULES for element in row.elements]
            cls._conditions = {(row.arch, element, row.schedule): row.fits for row, element in rows}
            schedules = [Schedule.parse(row.schedule) for row in cls.SCHEDULES]
            cls._no_numbers = {name: 0 for schedule in schedules for name, _ in schedule.numbers}

    @classmethod
    @cache
    def _written_out(cls, text: str) -> str:
        return written_out(text, cls.TERMS)

    def __init__(
        self, descriptor: B, rows: Sequence[Registered], first: Registered, layouts: frozenset[str], arch: str = ""
    ) -> None:
        super().__init__(descriptor, first, layouts)
        self._rows = tuple(rows)
        self._measured_on = arch  # where it was measured that `first` is before the others, or ""

    @classmethod
    def shapes_of(cls, descriptor: B) -> dict[str, tuple[tuple[int, ...], ...]]:
        """The allowed shapes of each argument, the default first."""
        return {name: tuple([descriptor._value_of(text) for text in texts]) for name, texts in cls.SHAPES.items()}

    @classmethod
    def settings_of(cls, descriptor: B) -> dict[str, int]:
        """The compile-time constants of the kernel."""
        return {name: descriptor._value_of(text) for name, text in cls.SETTINGS.items()}

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
            if reason is None and layouts is not None and not layouts & set(supported := cls._works_on(row.sku)):
                reason = f"works on {' and '.join(supported)}, layouts are {', '.join(sorted(layouts))}"
            if reason is None:
                accepted.append(row)
            else:
                log.debug("%s: refused %s: %s", cls.__name__, row.sku, reason)
                refused.append((row.sku, reason))
        if not accepted:
            raise Unsupported(f"{cls.__name__}: no kernel for {descriptor}{listed(refused)}")
        target = device or default_device()
        fitting = (row for row in own_first(accepted, target) if cls._unfit(descriptor, row.sku, target) is None)
        first = next(fitting, accepted[0])
        measured = cls._measured(descriptor, first.sku, preference, target, layouts)
        log.debug("%s: %s", cls.__name__, measured.why)
        arch, first = (target.arch, measured.row) if measured.row in accepted and measured.row else ("", first)
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
        compiled = {name: int(value) for name, value in cls.settings_of(descriptor).items()}
        return Facts({**same, **compiled}, near)

    @classmethod
    def _check_sizes(cls, descriptor: B) -> None:
        for name, value in cls.settings_of(descriptor).items():
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
        if matching := tuple(row for row in rows if row.sku.element == descriptor.element):
            return matching
        elements = ", ".join(dict.fromkeys(row.sku.element for row in rows))
        raise Unsupported(f"{cls.__name__}: no kernel for element {descriptor.element}; its kernels are for {elements}")

    @classmethod
    def _explain(cls, descriptor: B, preference: PlanPreference, device: Device | None) -> Explanation:
        target = device or default_device()
        verdicts = []
        for row in own_first(cls._candidates(descriptor), target):
            reason = cls._refusal(descriptor, row.sku, preference, target)
            verdicts.append(Verdict(reason is None, row.sku, None, reason or ""))
        return cls._explained(descriptor, verdicts, preference, target)

    @classmethod
    def _unfit(cls, descriptor: B, sku: KernelSku, device: Device) -> str | None:
        return sku.fits(device.arch) or cls._too_much_shared(descriptor, sku, device.arch)

    @classmethod
    def cannot_hold(cls, descriptor: B, sku: KernelSku) -> str | None:
        """Why the schedule does not serve the problem, or needs too many blocks or too much shared memory."""
        fits = cls._conditions.get((sku.arch, sku.element, str(sku.schedule)), "")
        if fits and not descriptor._value_of(fits, numbers := cls._numbers(descriptor, sku)):
            text = cls._written_out(fits)
            return f"needs {text}; here {', '.join(f'{n}={short_repr(numbers[n])}' for n in names_in(text))}"
        launched = cls._launched(descriptor, sku)
        refused = next((reason for kernel in launched if (reason := kernel.refused)), None)
        return refused or cls._too_much_shared(descriptor, sku, sku.arch) or cls._unsized(descriptor, sku)

    @classmethod
    def _unsized(cls, descriptor: B, sku: KernelSku) -> str | None:
        for scratch, count in zip(cls.WORKSPACE, cls._scratch_counts(descriptor, sku), strict=True):
            if not 0 <= count < _MOST_SCRATCH:
                return f"needs {count} elements of workspace for {scratch.name}"
        return None

    @classmethod
    def _too_much_shared(cls, descriptor: B, sku: KernelSku, arch: str) -> str | None:
        used = max((kernel.shared for kernel in cls._launched(descriptor, sku)), default=0)
        available = shared_bytes(arch)
        return f"takes {used} bytes of shared memory a block, {arch} has {available}" if used > available else None

    @classmethod
    @lru_cache(maxsize=_RECENT)
    def _launched(cls, descriptor: B, sku: KernelSku, multiprocessors: int = 1) -> tuple[Launched, ...]:
        """The kernels with a non-empty grid."""
        numbers = cls._numbers(descriptor, sku, multiprocessors)
        launched = [kernel.launched(numbers, descriptor._value_of) for kernel in cls.KERNELS]
        return tuple([kernel for kernel in launched if kernel])

    @classmethod
    @lru_cache(maxsize=_RECENT)
    def _numbers(cls, descriptor: B, sku: KernelSku, multiprocessors: int = 1) -> Numbers:
        schedule, row = sku.schedule, sku.element.row
        assert isinstance(schedule, Schedule)
        numbers = {
            **cls._no_numbers,
            "threads": schedule.threads,
            "itemsize": row.bytes,
            "accsize": row.acc.row.bytes,
            "multiprocessors": multiprocessors,
            **dict(schedule.numbers),
        }
        return Numbers(descriptor, cls.TERMS, numbers | cls.settings_of(descriptor))

    @classmethod
    def workspace_of(cls, descriptor: B, sku: KernelSku) -> int:
        """Bytes of workspace that `sku` needs for `descriptor`."""
        return sum(cls._scratch_bytes(descriptor, sku))

    @classmethod
    def _scratch_counts(cls, descriptor: B, sku: KernelSku) -> tuple[int, ...]:
        numbers = cls._numbers(descriptor, sku)
        return tuple([descriptor._value_of(scratch.size, numbers) for scratch in cls.WORKSPACE])

    @classmethod
    def _scratch_bytes(cls, descriptor: B, sku: KernelSku) -> list[int]:
        kinds = {"T": sku.element, "acc": sku.element.row.acc}
        counts = cls._scratch_counts(descriptor, sku)
        sizes = [(kinds.get(scratch.element) or ElementKind(scratch.element)).row.bytes for scratch in cls.WORKSPACE]
        return [rounded(count * size) for count, size in zip(counts, sizes, strict=True)]

    @classmethod
    def _works_on(cls, sku: KernelSku) -> tuple[str, ...]:
        """The layouts that arrays for `sku` may have: its own, or those that no other SKU owns.

        Among several, a SKU with tensor maps takes the first, strictest one: maps have rules of their own.
        """
        own = {row.sku.layout for row in cls.kernels() if row.sku.layout}
        layouts = (sku.layout,) if sku.layout else tuple(name for name in cls.LAYOUTS if name not in own)
        mapped, *_ = layouts
        return (mapped,) if sku.arch in cls.MAPS else layouts


def listed(refused: Sequence[tuple[KernelSku, str]]) -> str:
    """The reasons of the candidates; one that all share is given once."""
    if len(refused) > 1 and len({reason for _, reason in refused}) == 1:
        return f"; each of its {len(refused)} kernels: {refused[0][1]}"
    return "".join(f"\n  {sku}: {reason}" for sku, reason in refused)


def own_first(rows: Sequence[Registered], device: Device) -> list[Registered]:
    """`rows` with those made for the device's own architecture first, except for those marked `first`.

    Portable kernels are the host device's own.
    """
    own = "sm_80" if device.arch == "host" else device.arch
    return sorted(rows, key=lambda row: not row.first and row.sku.arch.rstrip("a") != own)
