"""Selection: a plan class takes the kernel that was measured fastest, or else the first that nothing refuses."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Generic, Self, TypeVar

from ..arrays.element import ElementKind
from ..device import Device
from ..devices.named import as_device, default_device
from ..errors import BaracudaError, InvalidProblem, Unsupported
from ..observe import log
from ..values import as_names, one_line, some_of
from .descriptor import Descriptor
from .preference import DEFAULT, PlanPreference
from .registry import REGISTRY, Registered
from .sku import KernelSku
from .tuned import Choice, Facts, Tuned, choose, nearest

D = TypeVar("D", bound=Descriptor)
_REMEMBERED = 1024  # selections kept per plan class


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether something was accepted, and if not, why; truthy if it was."""

    accepted: bool
    sku: KernelSku | None = None
    error: BaracudaError | None = None
    reason: str = ""

    def __bool__(self) -> bool:
        return self.accepted

    def __str__(self) -> str:
        subject = f"{self.sku}: " if self.sku is not None else ""
        return f"{subject}{'accepted' if self.accepted else self.reason}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """A verdict on every candidate, in order of preference; the first accepted one is chosen.

    `decided` says whether a measurement or the rule put it first.
    """

    descriptor: Descriptor
    verdicts: tuple[Verdict, ...]
    decided: str = ""

    @classmethod
    def of(cls, descriptor: Descriptor, verdicts: Iterable[Verdict], choice: Choice) -> Explanation:
        """An explanation with the measured choice first."""
        first = choice.row.sku if choice.row is not None else None
        return cls(descriptor, tuple(sorted(verdicts, key=lambda v: v.sku != first)), choice.why)

    @property
    def chosen(self) -> KernelSku | None:
        return next((v.sku for v in self.verdicts if v.accepted), None)

    def __str__(self) -> str:
        marks = [f"  {'->' if v.sku == self.chosen else '  '} {v}" for v in self.verdicts]
        decided = [f"  {self.decided}"] if self.decided and self.chosen else []
        return "\n".join([str(self.descriptor), *marks, *decided])


class Selectable(Generic[D]):
    """What plan classes do before there is a plan. Families say whether a kernel fits; the SKU says the rest."""

    OP: ClassVar[str]
    DESCRIPTOR: ClassVar[type[Descriptor]]
    LAYOUTS: ClassVar[tuple[str, ...]]
    TUNED: ClassVar[Tuned | None] = None  # what was measured of the op
    _selected: ClassVar[dict[Any, Any]]
    _names: ClassVar[frozenset[str]]  # plans whose descriptors it takes: its own and what it derives from
    _preference: PlanPreference = DEFAULT  # what it was selected with

    def __init_subclass__(cls) -> None:
        cls._selected = {}
        cls._names = frozenset(kind.__name__ for kind in cls.__mro__)

    def __init__(self, descriptor: D, row: Registered, layouts: frozenset[str]) -> None:
        self.descriptor = descriptor
        self.sku = row.sku
        self.layouts = layouts
        self._row = row

    def _served_by(self, row: Registered) -> Self:
        """A plan of the same problem, for another row of the kernel table."""
        return type(self)(self.descriptor, row, self.layouts)

    @classmethod
    def select(
        cls,
        descriptor: D,
        preference: PlanPreference | None = None,
        *,
        device: str | Device | None = None,
        layouts: Collection[str] | None = None,
    ) -> Self:
        """Choose a kernel for `descriptor`: the one measured to be the fastest, or the first that nothing refuses.

        `device` ("cuda:0", "host", a device, or None for whichever the arrays will be on) rules out kernels that it
        cannot run. `layouts` (by default all of `LAYOUTS`) are the memory layouts whose kernels `run` may start; arrays
        take the first that they keep to, strictest first, and are refused where there is none.

        Raises the descriptor's own error, or Unsupported with the reason of every candidate.
        """
        cls._check_kind(descriptor)
        target, wished = cls._device_called(device), PlanPreference.validated(preference)
        allowed = None if layouts is None else as_names("layouts", layouts)
        key = (descriptor, wished, target and target.arch, allowed)
        plan = cls._cached_plan(key)
        if plan is None:
            with cls._renamed(descriptor):
                plan = cls._select(descriptor, wished, target, allowed)
            log.debug("%s: selected %s for %s", cls.__name__, plan.sku, descriptor)
            plan._preference = wished
            if len(cls._selected) >= _REMEMBERED:
                cls._selected.clear()
            cls._selected[key] = plan
        return plan

    @classmethod
    def _cached_plan(cls, key: Any) -> Self | None:
        try:
            plan: Self | None = cls._selected.get(key)
            return plan
        except TypeError:  # a field that cannot be hashed is of no type that descriptors give it
            raise InvalidProblem(f"{cls.__name__}: a field of the descriptor was changed after it was made") from None

    @classmethod
    def _select(
        cls, descriptor: D, preference: PlanPreference, device: Device | None, layouts: frozenset[str] | None
    ) -> Self:
        cls._check(descriptor)
        cls._known_layouts(layouts)
        refused = []
        for row in cls._candidates(descriptor):
            reason = cls._refusal(descriptor, row.sku, preference, device)
            if reason is None:
                measured = cls._measured(descriptor, row.sku, preference, device, layouts)
                log.debug("%s: %s", cls.__name__, measured.why)
                return cls(descriptor, measured.row or row, layouts or frozenset(cls.LAYOUTS))
            log.debug("%s: refused %s: %s", cls.__name__, row.sku, reason)
            refused.append((row.sku, reason))
        reasons = [f"\n  {sku}: {reason}" for sku, reason in refused]
        raise Unsupported(f"{cls.__name__}: no kernel for {descriptor}{''.join(reasons)}")

    @classmethod
    def _check_kind(cls, descriptor: D) -> None:
        """Raise InvalidProblem unless it is a descriptor of this plan."""
        if not issubclass(type(descriptor), Descriptor):
            got = f"{one_line(type(descriptor).__qualname__)}, no descriptor"
        elif descriptor._plan not in cls._names:
            got = f"{type(descriptor).__name__} of {descriptor._plan}"
        else:
            return
        raise InvalidProblem(f"{cls.__name__}: needs a descriptor of its own, got {got}")

    @classmethod
    @contextmanager
    def _renamed(cls, descriptor: D) -> Iterator[None]:
        """Errors that begin with the name of the descriptor's own plan begin with the name of this one."""
        try:
            yield
        except BaracudaError as error:
            error.args = (re.sub(f"^{descriptor._plan}: ", f"{cls.__name__}: ", str(error)), *error.args[1:])
            raise

    @classmethod
    def _check(cls, descriptor: D) -> None:
        """Raise what is wrong with `descriptor`, whichever kernel were to serve it."""
        descriptor.check()
        with descriptor._computing():
            cls._check_sizes(descriptor)

    @classmethod
    def _check_sizes(cls, descriptor: D) -> None:
        """Raise InvalidProblem if element counts exceed 63 bits and the descriptor's own checks miss it."""

    @classmethod
    def kernels(cls, element: ElementKind | str | None = None) -> tuple[Registered, ...]:
        """Rows of the plan's own kernels, in order of preference."""
        return REGISTRY.candidates(cls.OP, element, package=cls._package())

    @classmethod
    def _package(cls) -> str:
        """Where its module is, and its kernels are."""
        package, _, name = cls.__module__.rpartition(".")
        return package or name

    @classmethod
    def _candidates(cls, descriptor: D) -> tuple[Registered, ...]:
        return cls.kernels(descriptor.element)

    @classmethod
    def _known_layouts(cls, layouts: frozenset[str] | None) -> None:
        if layouts is None:
            return
        if unknown := layouts - set(cls.LAYOUTS):
            raise InvalidProblem(f"{cls.__name__}: unknown layouts {some_of(unknown)}; known are {cls.LAYOUTS}")
        if not layouts:
            raise InvalidProblem(f"{cls.__name__}: layouts names none; pass some of {cls.LAYOUTS}, or None for all")

    @staticmethod
    def _device_called(device: str | Device | None) -> Device | None:
        """The device that a caller names or passes; raises InvalidProblem for anything else."""
        return None if device is None else as_device(device)

    @classmethod
    def explain(
        cls, descriptor: D, preference: PlanPreference | None = None, *, device: str | Device | None = None
    ) -> Explanation:
        """The verdict on every candidate for `descriptor`, as `select` reaches it.

        Without a device, plans whose kernels differ by architecture answer for the default device.
        """
        cls._check_kind(descriptor)
        target, wished = cls._device_called(device), PlanPreference.validated(preference)
        with cls._renamed(descriptor):
            cls._check(descriptor)
            return cls._explain(descriptor, wished, target)

    @classmethod
    def _explain(cls, descriptor: D, preference: PlanPreference, device: Device | None) -> Explanation:
        verdicts = []
        for row in cls._candidates(descriptor):
            reason = cls._refusal(descriptor, row.sku, preference, device)
            verdicts.append(Verdict(reason is None, row.sku, None, reason or ""))
        return cls._explained(descriptor, verdicts, preference, device)

    @classmethod
    def _explained(
        cls, descriptor: D, verdicts: list[Verdict], preference: PlanPreference, device: Device | None
    ) -> Explanation:
        """The verdicts, with a measured choice before the first that the rule accepts."""
        first = next((v.sku for v in verdicts if v.accepted and v.sku), None)
        choice = cls._measured(descriptor, first, preference, device, None) if first else Choice(None, "")
        return Explanation.of(descriptor, verdicts, choice)

    @classmethod
    def _measured(
        cls,
        descriptor: D,
        by_rule: KernelSku,
        preference: PlanPreference,
        device: Device | None,
        layouts: frozenset[str] | None,
    ) -> Choice:
        """The kernel measured to be faster than the rule's, if it has the same guarantees and nothing refuses it.

        Measurements are of contiguous arrays, in the first of the plan's layouts or what the problem leaves of it.
        Without a device, those for the default one count.
        """
        if cls.TUNED is None:
            return Choice(None, "by rule: tuning measured nothing for this op")
        if preference.pins or (layouts is not None and cls.LAYOUTS[0] not in layouts):
            return Choice(None, "by rule: the caller says which kernels to choose from")
        target = device or default_device()
        measurement = nearest(cls.TUNED.by_arch.get(target.arch, ()), str(descriptor.element), cls.facts_of(descriptor))
        if measurement is None:
            return Choice(None, f"by rule: tuning measured nothing similar on {target.arch}")
        rows, promised = cls._candidates(descriptor), by_rule.precision_guarantee
        return choose(measurement, rows, promised, lambda sku: cls._refusal(descriptor, sku, preference, target))

    @classmethod
    def facts_of(cls, descriptor: D) -> Facts:
        """The problem as measurements see it: flags must match, extents must be near."""
        values = {name: getattr(descriptor, name) for name in descriptor._types}
        flags = {name: int(value) for name, value in values.items() if isinstance(value, bool)}
        sizes = {name: prod(value) if isinstance(value, tuple) else value for name, value in values.items()}
        return Facts(flags, {n: v for n, v in sizes.items() if isinstance(v, int) and n not in flags})

    @classmethod
    def _refusal(cls, descriptor: D, sku: KernelSku, preference: PlanPreference, device: Device | None) -> str | None:
        if device is not None and (reason := cls._unfit(descriptor, sku, device)):
            return reason
        return cls.cannot_hold(descriptor, sku) or preference.refuses(sku, lambda: cls.workspace_of(descriptor, sku))

    @classmethod
    def _unfit(cls, descriptor: D, sku: KernelSku, device: Device) -> str | None:
        """Why the device cannot run the kernel, or None."""
        return sku.fits(device.arch)

    @classmethod
    def cannot_hold(cls, descriptor: D, sku: KernelSku) -> str | None:
        """Why the kernel's schedule cannot serve the problem, or None."""
        raise AssertionError("families define this")

    @classmethod
    def workspace_of(cls, descriptor: D, sku: KernelSku) -> int:
        """Bytes of workspace that `sku` needs for `descriptor`."""
        raise AssertionError("families define this")
