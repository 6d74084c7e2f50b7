"""Plans: a kernel chosen for one descriptor, and everything between the caller's arrays and its launch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, ClassVar, Generic, Self, TypeVar

from .arguments import Argument, Named, Views, check, check_aliasing, take
from .descriptor import Descriptor
from .device import Device, Kernel, KernelSource, WatchedArray
from .devices import default_device, get_device
from .element import ElementKind
from .errors import BaracudaError, DriverError, InvalidProblem, Unsupported
from .preference import DEFAULT, PlanPreference, names_in
from .prepared import BoundLaunch, Calls, Place, Prepared, Start, place_of, start_of
from .registry import REGISTRY, Registered
from .sku import KernelSku, PrecisionGuarantee
from .stream import current_stream, raw_stream
from .tensor import TensorView, may_share
from .tuned import Choice, Facts, Tuned, choose, nearest
from .workspace import Workspace, take_workspace

D = TypeVar("D", bound=Descriptor)
Array = object  # what `baracuda.runtime.view` reads: NumPy, CuPy, torch, DLPack, __cuda_array_interface__, TensorRef
Arrays = tuple[Array, ...]
Stream = object  # None (the current stream of the arrays' library), a raw handle, or an object with __cuda_stream__
_REMEMBERED = 1024  # selections and geometries kept per plan class and plan


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether something was accepted, and if not, why; true exactly when it was."""

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
    """How selection went: a verdict for every candidate, in order of preference. The first accepted one is chosen.

    `decided` says whether a measurement or the rule has put it first.
    """

    descriptor: Descriptor
    verdicts: tuple[Verdict, ...]
    decided: str = ""

    @classmethod
    def of(cls, descriptor: Descriptor, verdicts: Iterable[Verdict], choice: Choice) -> Explanation:
        """With what a measurement has chosen before the others."""
        first = choice.row.sku if choice.row is not None else None
        return cls(descriptor, tuple(sorted(verdicts, key=lambda v: v.sku != first)), choice.why)

    @property
    def chosen(self) -> KernelSku | None:
        return next((v.sku for v in self.verdicts if v.accepted), None)

    def __str__(self) -> str:
        marks = [f"  {'->' if v.sku == self.chosen else '  '} {v}" for v in self.verdicts]
        decided = [f"  {self.decided}"] if self.decided and self.chosen else []
        return "\n".join([str(self.descriptor), *marks, *decided])


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch, but for its device: what to compile, the grid, and the argument struct as 8-byte words.

    One that `overlaps` waits itself for the launch before it, and may be started while that one ends.
    """

    source: KernelSource
    grid: tuple[int, int, int]
    block: int
    words: Any  # array of 64-bit ints
    overlaps: bool = False


class Plan(Generic[D]):
    """What all plans share. A generated class declares its arguments; its family says how they become launches.

    A plan is immutable and may be used from several threads at once.
    """

    OP: ClassVar[str]
    ARGUMENTS: ClassVar[dict[str, Argument]]
    CHECK_ORDER: ClassVar[tuple[str, ...]]
    PROMISES: ClassVar[dict[str, tuple[str, ...]]]
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
        self.element = ElementKind(descriptor.element)
        self.sku = row.sku
        self.layouts = layouts
        self._row = row
        self._named = Named(type(self).__name__)
        self._sources: dict[Any, KernelSource] = {}
        self._calls, self._unchecked_calls = Calls(), Calls()
        self._accepted: set[Any] = set()
        self._checked_archs: set[str] = set()

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
        cannot run. `layouts` (by default all of `LAYOUTS`) are the memory layouts that `run` will accept.

        Raises the descriptor's own error, or Unsupported with the reason of every candidate.
        """
        cls._check_kind(descriptor)
        where = cls._device_called(device)
        allowed = None if layouts is None else names_in("layouts", layouts)
        key = (descriptor, preference, where and where.arch, allowed)
        plan = cls._selected.get(key)
        if plan is None:
            plan = cls._select(descriptor, preference or DEFAULT, where, allowed)
            plan._preference = preference or DEFAULT
            if len(cls._selected) >= _REMEMBERED:
                cls._selected.clear()
            cls._selected[key] = plan
        return plan

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
                return cls(descriptor, measured.row or row, layouts or frozenset(cls.LAYOUTS))
            refused.append(f"\n  {row.sku}: {reason}")
        raise Unsupported(f"{cls.__name__}: no kernel for {descriptor}{''.join(refused)}")

    @classmethod
    def _check_kind(cls, descriptor: D) -> None:
        """Raise InvalidProblem for what is no descriptor of this plan."""
        if not isinstance(descriptor, Descriptor):
            got = f"{type(descriptor).__qualname__}, no descriptor"
        elif descriptor._plan not in cls._names:
            got = f"{type(descriptor).__name__} of {descriptor._plan}"
        else:
            return
        raise InvalidProblem(f"{cls.__name__}: needs a descriptor of its own, got {got}")

    @classmethod
    def _check(cls, descriptor: D) -> None:
        """Raise what is wrong with `descriptor`, whichever kernel were to serve it."""
        descriptor.check()
        cls._check_sizes(descriptor)

    @classmethod
    def _check_sizes(cls, descriptor: D) -> None:
        """Raise InvalidProblem where elements cannot be counted in 63 bits and the descriptor does not see it."""

    @classmethod
    def _candidates(cls, descriptor: D) -> tuple[Registered, ...]:
        return REGISTRY.candidates(cls.OP, descriptor.element)

    @classmethod
    def _known_layouts(cls, layouts: frozenset[str] | None) -> None:
        if layouts is None:
            return
        if unknown := layouts - set(cls.LAYOUTS):
            raise InvalidProblem(f"{cls.__name__}: unknown layouts {sorted(unknown)}; known are {cls.LAYOUTS}")
        if not layouts:
            raise InvalidProblem(f"{cls.__name__}: layouts names none; pass some of {cls.LAYOUTS}, or None for all")

    @staticmethod
    def _device_called(device: str | Device | None) -> Device | None:
        return get_device(device) if isinstance(device, str) else device

    @classmethod
    def explain(
        cls, descriptor: D, preference: PlanPreference | None = None, *, device: str | Device | None = None
    ) -> Explanation:
        """Return the verdict on every candidate for `descriptor`, as `select` would reach it."""
        cls._check_kind(descriptor)
        cls._check(descriptor)
        where = cls._device_called(device)
        verdicts = []
        for row in cls._candidates(descriptor):
            reason = cls._refusal(descriptor, row.sku, preference or DEFAULT, where)
            verdicts.append(Verdict(reason is None, row.sku, None, reason or ""))
        return cls._explained(descriptor, verdicts, preference or DEFAULT, where)

    @classmethod
    def _explained(
        cls, descriptor: D, verdicts: list[Verdict], preference: PlanPreference, device: Device | None
    ) -> Explanation:
        """The verdicts, with what a measurement puts before the first that the rule accepts."""
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
        """The kernel measured to be faster than the rule's; never one of other promises or that anything refuses.

        Measurements are of arrays side by side in memory, which have the first of the plan's layouts or what the
        problem leaves them; where no device is named, those on the default one count.
        """
        if cls.TUNED is None:
            return Choice(None, "by rule: nothing of this op was measured")
        if preference.pins or (layouts is not None and cls.LAYOUTS[0] not in layouts):
            return Choice(None, "by rule: the caller says which kernels to choose from")
        where = device or default_device()
        found = nearest(cls.TUNED.by_arch.get(where.arch, ()), str(descriptor.element), cls.facts_of(descriptor))
        if found is None:
            return Choice(None, f"by rule: nothing near was measured on {where.arch}")
        rows, promised = cls._candidates(descriptor), by_rule.precision_guarantee
        return choose(found, rows, promised, lambda sku: cls._refusal(descriptor, sku, preference, where))

    @classmethod
    def facts_of(cls, descriptor: D) -> Facts:
        """The problem as measurements know it: flags must be the same, ints and numbers of elements near."""
        given = {name: getattr(descriptor, name) for name in descriptor._types}
        flags = {name: int(value) for name, value in given.items() if isinstance(value, bool)}
        sizes = {name: prod(value) if isinstance(value, tuple) else value for name, value in given.items()}
        return Facts(flags, {n: v for n, v in sizes.items() if isinstance(v, int) and n not in flags})

    @classmethod
    def _refusal(cls, descriptor: D, sku: KernelSku, preference: PlanPreference, device: Device | None) -> str | None:
        if device is not None and (reason := sku.fits(device.arch)):
            return reason
        return cls.cannot_hold(descriptor, sku) or preference.refuses(sku, cls.workspace_of(descriptor, sku))

    @classmethod
    def cannot_hold(cls, descriptor: D, sku: KernelSku) -> str | None:
        """Why the kernel's schedule does not fit the problem, or None."""
        raise AssertionError("families define this")

    @classmethod
    def workspace_of(cls, descriptor: D, sku: KernelSku) -> int:
        """Bytes of workspace that `sku` needs for `descriptor`."""
        raise AssertionError("families define this")

    @cached_property
    def workspace_bytes(self) -> int:
        """How many bytes of workspace `run` needs, exactly."""
        return self.workspace_of(self.descriptor, self.sku)

    @property
    def precision_guarantee(self) -> PrecisionGuarantee:
        """What holds for every output; `PROMISES` lists what holds for each."""
        return self.sku.precision_guarantee

    def shapes(self) -> dict[str, tuple[tuple[int, ...], ...]]:
        """The shapes each argument may have, the usual one first."""
        raise AssertionError("families define this")

    def present(self, name: str) -> bool:
        """Whether the descriptor says that argument `name` takes part."""
        flag = self.ARGUMENTS[name].optional
        return not flag or bool(getattr(self.descriptor, flag))

    def elements_of(self, name: str) -> tuple[ElementKind, ...]:
        """The element types argument `name` may hold, the usual one first."""
        return self.ARGUMENTS[name].elements(self.element)

    def _launches(self, views: Views, workspace: int) -> list[Launch]:
        raise AssertionError("families define this")

    def sources(self, *, dtypes: Mapping[str, ElementKind | str] | None = None) -> Iterator[KernelSource]:
        """Every source that `run` may need, for arguments of the usual element types or of those given."""
        raise AssertionError("families define this")

    # The generated methods give the arguments in the order of ARGUMENTS, None for those that are absent.

    def _can_implement(self, arrays: Arrays, workspace: Workspace, stream: Stream) -> Verdict:
        try:
            views = self._checked(arrays)
            self._placed(views, workspace, stream)
            self._launches(views, 0)
        except BaracudaError as error:
            return Verdict(False, self.sku, error, f"{type(error).__name__}: {error}")
        return Verdict(True, self._sku_for(views))

    def _sku_for(self, views: Views) -> KernelSku:
        """The kernel that `run` would start for these arrays."""
        return self.sku

    def prepare(self, device: str | Device, *, dtypes: Mapping[str, ElementKind | str] | None = None) -> Self:
        """Compile and load for `device` all that `run` may need, so that `run` never waits and can be captured."""
        where = self._device_called(device)
        assert where is not None
        self._fit(where)
        for source in self.sources(dtypes=dtypes):
            where.load(source)
        return self

    def _run(self, arrays: Arrays, workspace: Workspace, stream: Stream) -> None:
        place = self._place_of(arrays, workspace)
        known = self._calls.find(place)
        if known is None or known.device.watch is not None:
            self._start(self._checked(arrays), workspace, stream, place, (self._calls, self._unchecked_calls))
        else:
            self._start_again(known, stream)

    def _run_unchecked(self, arrays: Arrays, workspace: Workspace, stream: Stream) -> None:
        place = self._place_of(arrays, workspace)
        known = self._unchecked_calls.find(place)
        if known is None or known.device.watch is not None:
            with self._named:
                views = take(self.ARGUMENTS, self._by_name(arrays))
            self._start(views, workspace, stream, place, (self._unchecked_calls,))
        else:
            self._start_again(known, stream)

    def _by_name(self, arrays: Arrays) -> dict[str, Array]:
        return dict(zip(self.ARGUMENTS, arrays, strict=True))

    def _place_of(self, arrays: Arrays, workspace: Workspace) -> Place | None:
        return place_of((*arrays, workspace) if self.workspace_bytes else arrays)

    def _start_again(self, known: Prepared, stream: Stream) -> None:
        try:
            handle = known.current() if stream is None else raw_stream(stream, ())
        except BaracudaError as error:
            self._named.put_before(error)
            raise
        for start in known.starts:
            start(handle)

    def _start(
        self, views: Views, workspace: Workspace, stream: Stream, place: Place | None, memories: tuple[Calls, ...]
    ) -> None:
        device, scratch, handle = self._placed(views, workspace, stream)
        starts = self._starts(device, views, scratch, handle)
        if device.watch is None:
            known = Prepared(device, starts, current_stream(views.values()))
            for calls in memories:
                calls.remember(place, known)
            for start in starts:
                start(handle)
        else:
            with device.watch(self._watched(views, scratch)):
                for start in starts:
                    start(handle)

    def _starts(self, device: Device, views: Views, scratch: TensorView | None, stream: int) -> tuple[Start, ...]:
        launches = self._launches(views, scratch.pointer if scratch else 0)
        loaded = [(self._load(device, launch.source, stream), launch) for launch in launches]
        return tuple([start_of(k, launch.grid, launch.block, launch.words, launch.overlaps) for k, launch in loaded])

    def _watched(self, views: Views, scratch: TensorView | None) -> list[WatchedArray]:
        arrays = [
            WatchedArray(name, self.ARGUMENTS[name].role, v.pointer, v.shape, v.strides, v.element.row.bytes)
            for name, v in views.items()
        ]
        if scratch is not None:  # its kernels divide it into words
            words = self.workspace_bytes // 4
            arrays.append(WatchedArray("workspace", "workspace", scratch.pointer, (words,), (1,), 4))
        return arrays

    def _bind(self, arrays: Arrays, workspace: Workspace, stream: Stream) -> BoundLaunch:
        views = self._checked(arrays)
        device, scratch, handle = self._placed(views, workspace, stream)
        starts = self._starts(device, views, scratch, handle)
        keep = (*arrays, workspace, *views.values(), scratch)
        return BoundLaunch(starts, handle, keep, device, tuple(self._watched(views, scratch)))

    def _checked(self, arrays: Arrays) -> Views:
        with self._named:
            views = take(self.ARGUMENTS, self._by_name(arrays))
            # All that is checked but aliasing, which needs the pointers.
            facts = tuple([(name, v[1:7]) for name, v in views.items()])
            if facts in self._accepted:
                check_aliasing(self.ARGUMENTS, views)
            else:
                check(self.ARGUMENTS, self.CHECK_ORDER, views, self.shapes(), self.present, self.element)
                if len(self._accepted) >= _REMEMBERED:
                    self._accepted.clear()
                self._accepted.add(facts)
        return views

    def _placed(
        self, views: Views, workspace: Workspace, stream: Stream
    ) -> tuple[Device, TensorView | None, int]:
        """Where the kernels run: the device, the scratch memory and the stream."""
        device = self._device_of(views)
        with self._named:
            return device, self._scratch(views, workspace), raw_stream(stream, views.values())

    def _device_of(self, views: Views) -> Device:
        device = get_device(next(iter(views.values())).device)
        if device.arch not in self._checked_archs:
            self._fit(device)
        return device

    def _fit(self, device: Device) -> None:
        if reason := self.sku.fits(device.arch):
            raise Unsupported(f"{type(self).__name__}: {self.sku} {reason}{self._advice(device)}")
        self._checked_archs.add(device.arch)

    def _advice(self, device: Device) -> str:
        """What would help where `device` runs none of this plan's kernels: to select there, if another one is found."""
        helps = any(self._is_candidate(row.sku, device) for row in self._candidates(self.descriptor))
        return f"; select with device={device.name!r}" if helps else ""

    def _is_candidate(self, sku: KernelSku, device: Device) -> bool:
        return self._refusal(self.descriptor, sku, self._preference, device) is None

    def _scratch(self, views: Views, workspace: Workspace) -> TensorView | None:
        scratch = take_workspace(workspace, self.workspace_bytes)
        if scratch is not None:
            device = next(iter(views.values())).device
            if scratch.device != device:
                raise InvalidProblem(f"workspace is on {scratch.device}, the arrays are on {device}")
            for name, there in views.items():
                if may_share(scratch, there):
                    raise InvalidProblem(f"workspace overlaps {name!r}; give it memory of its own")
        return scratch

    @staticmethod
    def _load(device: Device, source: KernelSource, stream: int) -> Kernel:
        if not device.is_loaded(source) and stream and device.name != "host":
            from .driver import stream_is_capturing

            if stream_is_capturing(stream):
                raise DriverError(f"{source.symbol} is not loaded while a graph is captured; prepare the plan first")
        return device.load(source)

