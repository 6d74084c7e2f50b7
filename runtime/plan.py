"""Plans: a kernel chosen for one descriptor, and everything between the caller's arrays and its launch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

from .arguments import Argument, Views, check, take
from .descriptor import Descriptor
from .device import Device, Kernel, KernelSource, WatchedArray
from .devices import get_device
from .element import ElementKind
from .errors import BaracudaError, DriverError, InvalidProblem, Unsupported
from .preference import DEFAULT, PlanPreference
from .registry import REGISTRY, Registered
from .sku import KernelSku, PrecisionGuarantee
from .stream import raw_stream
from .tensor import TensorView, may_share
from .workspace import Workspace, take_workspace

D = TypeVar("D", bound=Descriptor)
Array = object  # what `baracuda.runtime.view` reads: NumPy, CuPy, torch, DLPack, __cuda_array_interface__, TensorRef
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
    """How selection went: a verdict for every candidate, in order of preference. The first accepted one is chosen."""

    descriptor: Descriptor
    verdicts: tuple[Verdict, ...]

    @property
    def chosen(self) -> KernelSku | None:
        return next((v.sku for v in self.verdicts if v.accepted), None)

    def __str__(self) -> str:
        marks = [f"  {'->' if v.sku == self.chosen else '  '} {v}" for v in self.verdicts]
        return "\n".join([str(self.descriptor), *marks])


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch, but for its device: what to compile, the grid, and the argument struct as 8-byte words."""

    source: KernelSource
    grid: tuple[int, int, int]
    block: int
    words: Any  # array of 64-bit ints


@dataclass(slots=True)
class BoundLaunch:
    """A plan bound to fixed buffers, which it keeps alive: calling it only starts the kernels."""

    launches: tuple[tuple[Kernel, tuple[int, int, int], int, Any, int, int], ...]
    stream: int
    keep: tuple[object, ...]
    device: Device
    watched: tuple[WatchedArray, ...]

    def __call__(self, stream: Stream = None) -> None:
        """Start the kernels on `stream`; by default on the one that was current when the plan was bound."""
        handle = self.stream if stream is None else raw_stream(stream, ())
        if self.device.watch is None:
            self._launch(handle)
        else:
            with self.device.watch(self.watched):
                self._launch(handle)

    def _launch(self, handle: int) -> None:
        for kernel, grid, block, _words, address, nbytes in self.launches:
            kernel.launch(grid, block, address, nbytes, handle)


class Plan(Generic[D]):
    """What all plans share. A generated class declares its arguments; its family says how they become launches.

    A plan is immutable and may be used from several threads at once.
    """

    OP: ClassVar[str]
    ARGUMENTS: ClassVar[dict[str, Argument]]
    CHECK_ORDER: ClassVar[tuple[str, ...]]
    PROMISES: ClassVar[dict[str, tuple[str, ...]]]
    LAYOUTS: ClassVar[tuple[str, ...]]
    _selected: ClassVar[dict[Any, Any]]

    def __init_subclass__(cls) -> None:
        cls._selected = {}

    def __init__(self, descriptor: D, row: Registered, layouts: frozenset[str]) -> None:
        self.descriptor = descriptor
        self.element = ElementKind(descriptor.element)
        self.sku = row.sku
        self.layouts = layouts
        self._row = row
        self._sources: dict[Any, KernelSource] = {}
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
        """Choose a kernel for `descriptor`, the first candidate that nothing refuses.

        `device` ("cuda:0", "host", a device, or None for whichever the arrays will be on) rules out kernels that it
        cannot run. `layouts` (by default all of `LAYOUTS`) are the memory layouts that `run` will accept.

        Raises the descriptor's own error, or Unsupported with the reason of every candidate.
        """
        where = cls._device_called(device)
        allowed = None if layouts is None else frozenset(layouts)
        key = (descriptor, preference, where and where.arch, allowed)
        plan = cls._selected.get(key)
        if plan is None:
            plan = cls._select(descriptor, preference or DEFAULT, where, allowed)
            if len(cls._selected) >= _REMEMBERED:
                cls._selected.clear()
            cls._selected[key] = plan
        return plan

    @classmethod
    def _select(
        cls, descriptor: D, preference: PlanPreference, device: Device | None, layouts: frozenset[str] | None
    ) -> Self:
        descriptor.check()
        cls._known_layouts(layouts)
        refused = []
        for row in REGISTRY.candidates(cls.OP, descriptor.element):
            reason = cls._refusal(descriptor, row.sku, preference, device)
            if reason is None:
                return cls(descriptor, row, layouts or frozenset(cls.LAYOUTS))
            refused.append(f"\n  {row.sku}: {reason}")
        raise Unsupported(f"{cls.__name__}: no kernel for {descriptor}{''.join(refused)}")

    @classmethod
    def _known_layouts(cls, layouts: frozenset[str] | None) -> None:
        if layouts is not None and (unknown := layouts - set(cls.LAYOUTS)):
            raise InvalidProblem(f"{cls.__name__}: unknown layouts {sorted(unknown)}; known are {cls.LAYOUTS}")

    @staticmethod
    def _device_called(device: str | Device | None) -> Device | None:
        return get_device(device) if isinstance(device, str) else device

    @classmethod
    def explain(
        cls, descriptor: D, preference: PlanPreference | None = None, *, device: str | Device | None = None
    ) -> Explanation:
        """Return the verdict on every candidate for `descriptor`, as `select` would reach it."""
        descriptor.check()
        where = cls._device_called(device)
        verdicts = []
        for row in REGISTRY.candidates(cls.OP, descriptor.element):
            reason = cls._refusal(descriptor, row.sku, preference or DEFAULT, where)
            verdicts.append(Verdict(reason is None, row.sku, None, reason or ""))
        return Explanation(descriptor, tuple(verdicts))

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

    @property
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

    def _can_implement(self, arrays: Mapping[str, Array], workspace: Workspace, stream: Stream) -> Verdict:
        try:
            views = self._checked(arrays)
            self._device_of(views)
            self._scratch(views, workspace)
            self._launches(views, 0)
            raw_stream(stream, views.values())
        except BaracudaError as error:
            return Verdict(False, self.sku, error, f"{type(error).__name__}: {error}")
        return Verdict(True, self.sku)

    def prepare(self, device: str | Device, *, dtypes: Mapping[str, ElementKind | str] | None = None) -> Self:
        """Compile and load for `device` all that `run` may need, so that `run` never waits and can be captured."""
        where = self._device_called(device)
        assert where is not None
        self._fit(where)
        for source in self.sources(dtypes=dtypes):
            where.load(source)
        return self

    def _run(self, arrays: Mapping[str, Array], workspace: Workspace, stream: Stream) -> None:
        self._start(self._checked(arrays), workspace, stream)

    def _run_unchecked(self, arrays: Mapping[str, Array], workspace: Workspace, stream: Stream) -> None:
        self._start(take(type(self).__name__, tuple(self.ARGUMENTS.values()), arrays), workspace, stream)

    def _start(self, views: Views, workspace: Workspace, stream: Stream) -> None:
        device = self._device_of(views)
        scratch = self._scratch(views, workspace)
        handle = raw_stream(stream, views.values())
        launches = self._launches(views, scratch.pointer if scratch else 0)
        if device.watch is None:
            self._launch(device, launches, handle)
        else:
            with device.watch(self._watched(views, scratch)):
                self._launch(device, launches, handle)

    def _launch(self, device: Device, launches: Sequence[Launch], stream: int) -> None:
        for launch in launches:
            kernel = self._load(device, launch.source, stream)
            address, length = launch.words.buffer_info()
            kernel.launch(launch.grid, launch.block, address, 8 * length, stream)

    def _watched(self, views: Views, scratch: TensorView | None) -> list[WatchedArray]:
        arrays = [
            WatchedArray(name, self.ARGUMENTS[name].role, v.pointer, v.shape, v.strides, v.element.row.bytes)
            for name, v in views.items()
        ]
        if scratch is not None:  # its kernels divide it into words
            words = self.workspace_bytes // 4
            arrays.append(WatchedArray("workspace", "workspace", scratch.pointer, (words,), (1,), 4))
        return arrays

    def _bind(self, arrays: Mapping[str, Array], workspace: Workspace, stream: Stream) -> BoundLaunch:
        views = self._checked(arrays)
        device = self._device_of(views)
        scratch = self._scratch(views, workspace)
        handle = raw_stream(stream, views.values())
        prepared = []
        for launch in self._launches(views, scratch.pointer if scratch else 0):
            kernel = self._load(device, launch.source, handle)
            address, length = launch.words.buffer_info()
            prepared.append((kernel, launch.grid, launch.block, launch.words, address, 8 * length))
        keep = (*arrays.values(), workspace, *views.values(), scratch)
        return BoundLaunch(tuple(prepared), handle, keep, device, tuple(self._watched(views, scratch)))

    def _checked(self, arrays: Mapping[str, Array]) -> Views:
        name, arguments = type(self).__name__, self.ARGUMENTS
        views = take(name, tuple(arguments.values()), arrays)
        check(name, arguments, self.CHECK_ORDER, views, self.shapes(), self.present, self.element)
        return views

    def _device_of(self, views: Views) -> Device:
        device = get_device(next(iter(views.values())).device)
        if device.arch not in self._checked_archs:
            self._fit(device)
        return device

    def _fit(self, device: Device) -> None:
        if reason := self.sku.fits(device.arch):
            raise Unsupported(f"{type(self).__name__}: {self.sku} {reason}; select with device={device.name!r}")
        self._checked_archs.add(device.arch)

    def _scratch(self, views: Views, workspace: Workspace) -> TensorView | None:
        scratch = take_workspace(type(self).__name__, workspace, self.workspace_bytes)
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

