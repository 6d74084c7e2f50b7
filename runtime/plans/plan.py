"""Plans: a kernel selected for one descriptor, and everything between the caller's arrays and its launch."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from ..arrays.arguments import Argument, Named, Views, check, check_aliasing, check_shapes, take
from ..arrays.element import ElementKind
from ..arrays.tensor import TensorView, may_share, view
from ..arrays.workspace import Workspace, take_workspace
from ..device import Device, Kernel, KernelSource, WatchedArray
from ..devices.named import as_device, get_device
from ..devices.stream import current_stream, raw_stream
from ..errors import BaracudaError, DriverError, InvalidProblem, NotCompiled, Unsupported
from ..observe import in_nvtx_range
from ..values import as_float, as_mapping, short_repr, some_of
from .declarations import Extent, Gradient
from .descriptor import Descriptor
from .entry_points import document
from .prepared import BoundLaunch, Calls, Prepared, Start, in_sequence, start_of
from .recorded import pack_command, record
from .registry import Registered, SourceFile
from .schedule import Schedule
from .selection import Selectable, Verdict
from .sku import FIRST_REVISION, BackendKind, Direction, KernelSku, PrecisionGuarantee, Tile

D = TypeVar("D", bound=Descriptor)
Array = object  # what `baracuda.runtime.view` reads: NumPy, CuPy, torch, DLPack, __cuda_array_interface__, TensorRef
Arrays = tuple[Array, ...]
Stream = object  # None (the current stream of the arrays' library), a raw handle, or an object with __cuda_stream__
_REMEMBERED = 1024  # selections and geometries kept per plan class and plan


class Launch(NamedTuple):
    """One kernel launch: source, grid, block, and the argument struct as 8-byte words.

    With `overlaps`, it uses programmatic dependent launch: it may start while the previous one ends.
    """

    source: KernelSource
    grid: tuple[int, int, int]
    block: int
    words: Any  # array of 64-bit ints
    overlaps: bool = False


class Plan(Selectable[D]):
    """What all plans share. A generated class declares its arguments; its family says how they become launches.

    A plan is immutable and may be used from several threads at once. `sku` is the kernel that it starts for contiguous
    arrays. Where arrays decide (their layout, or whether a tensor map addresses them), `skus` are all that it may
    start; `can_implement(...).sku`, `bind(...).sku` and `for_arrays(...).sku` say which.
    """

    TENSORS: ClassVar[tuple[Argument, ...]]  # ARGUMENTS, CHECK_ORDER and CHOSEN follow from it
    ARGUMENTS: ClassVar[dict[str, Argument]]
    CHECK_ORDER: ClassVar[tuple[str, ...]]
    CHOSEN: ClassVar[tuple[str, ...]]  # arguments whose element type the caller chooses
    RUNGS: ClassVar[tuple[str, ...]] = ()  # what every output promises
    PROMISES: ClassVar[dict[str, tuple[str, ...]]]  # what each does: RUNGS, where it is not declared
    EXTENTS: ClassVar[tuple[Extent, ...]] = ()  # fields of the descriptor that the inputs' shapes show
    GRADIENT: ClassVar[Gradient | None] = None
    NUMERICS: ClassVar[int] = FIRST_REVISION  # the revision of the bits that it computes
    DIRECTION: ClassVar[Direction]  # backward with a gradient, where it is not declared

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if tensors := vars(cls).get("TENSORS"):
            cls.ARGUMENTS = {a.name: a for a in tensors}
            cls.CHECK_ORDER = vars(cls).get("CHECK_ORDER") or tuple(cls.ARGUMENTS)
            cls.CHOSEN = tuple(a.name for a in tensors if len(a.dtypes) > 1)
            cls._complete(vars(cls))
            if "run" in vars(cls):
                document(cls)

    @classmethod
    def _complete(cls, own: Mapping[str, Any]) -> None:
        """Derive what a class does not declare from what it does."""
        descriptors = [of for base in own.get("__orig_bases__", ()) for of in base.__args__]
        if "DESCRIPTOR" not in own and descriptors:
            (cls.DESCRIPTOR,) = descriptors
        cls.DIRECTION = Direction(own.get("DIRECTION") or ("backward" if cls.GRADIENT else "forward"))
        if "PROMISES" not in own:
            cls.PROMISES = {a.name: cls.RUNGS for a in cls.TENSORS if a.written}
        elif cls.PROMISES:
            first, *others = cls.PROMISES.values()
            cls.RUNGS = tuple([rung for rung in first if all(rung in other for other in others)])

    @classmethod
    def shape_text(cls, argument: Argument) -> str:
        """An argument's shape, as documentation has it."""
        raise AssertionError("families define this")

    @classmethod
    def dims_text(cls) -> str:
        """What the names of dims in shapes stand for."""
        return ""

    @classmethod
    def source_file(cls, inline: str | None, contraction: bool, flush_subnormals: bool) -> SourceFile:
        """The kernels beside the plan's module, or the text that stands for them."""
        return SourceFile(cls._package(), f"{cls.OP}.cu", contraction, flush_subnormals, inline)

    @classmethod
    def promised_of(cls, element: ElementKind, math: str = "acc") -> PrecisionGuarantee:
        """What the plan's kernels of `element` promise of every output; for `math` see `PrecisionGuarantee.of`."""
        return PrecisionGuarantee.of(element, cls.RUNGS, math, cls.NUMERICS)

    @classmethod
    def sku_of(
        cls, element: ElementKind, arch: str, promised: PrecisionGuarantee, schedule: Tile | Schedule, layout: str = ""
    ) -> KernelSku:
        """The identity of one of the plan's kernels."""
        category = cls._package().rpartition(".")[2]
        of = category, cls.OP, cls.DIRECTION, element, arch, BackendKind.BESPOKE, promised, schedule
        return KernelSku(*of, layout=layout or None)

    def __init__(self, descriptor: D, row: Registered, layouts: frozenset[str]) -> None:
        super().__init__(descriptor, row, layouts)
        self.element = ElementKind(descriptor.element)
        self._named = Named(type(self).__name__)
        self._sources: dict[Any, KernelSource] = {}
        self._calls, self._unchecked_calls = Calls(), Calls()
        self._accepted: set[Any] = set()
        self._checked_archs: set[str] = set()

    @cached_property
    def workspace_bytes(self) -> int:
        """The exact number of bytes of workspace that `run` needs."""
        return self.workspace_of(self.descriptor, self.sku)

    @property
    def precision_guarantee(self) -> PrecisionGuarantee:
        """The guarantees that hold for every output; `promises` has those of each."""
        return self.sku.precision_guarantee

    @property
    def promises(self) -> dict[str, tuple[str, ...]]:
        """The guarantees of each output: `PROMISES`, without what its kernel lacks."""
        lacking = self.sku.asked.get("waives", ())
        return {name: tuple([rung for rung in rungs if rung not in lacking]) for name, rungs in self.PROMISES.items()}

    @classmethod
    def shapes_of(cls, descriptor: D) -> dict[str, tuple[tuple[int, ...], ...]]:
        """The allowed shapes of each argument, the default first."""
        raise AssertionError("families define this")

    @classmethod
    def viewed(cls, array: Array, name: str) -> TensorView:
        """A view of argument `name`."""
        return view(array, name)

    @cached_property
    def _shapes(self) -> dict[str, tuple[tuple[int, ...], ...]]:
        return self.shapes_of(self.descriptor)

    def shapes(self) -> dict[str, tuple[tuple[int, ...], ...]]:
        """The allowed shapes of each argument, the default first."""
        return self._shapes

    def present(self, name: str) -> bool:
        """Whether the descriptor says that argument `name` is present."""
        flag = self._argument(name).optional
        return not flag or bool(getattr(self.descriptor, flag))

    @cached_property
    def _absent(self) -> tuple[str, ...]:
        """The arguments that are absent."""
        return tuple(name for name in self.ARGUMENTS if not self.present(name))

    def elements_of(self, name: str) -> tuple[ElementKind, ...]:
        """The allowed element types of argument `name`, the default first."""
        return self._argument(name).elements(self.element)

    def _argument(self, name: str) -> Argument:
        try:
            return self.ARGUMENTS[name]
        except (KeyError, TypeError):
            names = some_of(self.ARGUMENTS)
            raise InvalidProblem(f"no argument {short_repr(name)}; arguments are {names}") from None

    def _chosen_types(self, dtypes: Mapping[str, ElementKind | str] | None) -> tuple[ElementKind, ...]:
        """The element type of each of `CHOSEN`: the default, or the one that a caller chooses."""
        chosen = as_mapping("dtypes", dtypes)
        if unknown := chosen.keys() - self.ARGUMENTS.keys():
            raise InvalidProblem(f"'dtypes' names {some_of(unknown)}; arguments are {', '.join(self.ARGUMENTS)}")
        types = {name: ElementKind.of(element, f"element of {name!r} in 'dtypes'") for name, element in chosen.items()}
        for name, element in types.items():
            if element not in (allowed := self.elements_of(name)):
                raise Unsupported(f"{name!r} must hold {' or '.join(allowed)}, got 'dtypes' of {element}")
        return tuple([types.get(name, self.elements_of(name)[0]) for name in self.CHOSEN])

    def _other_layout(self, layout: str) -> Unsupported:
        accepted = " or ".join(name for name in self.LAYOUTS if name in self.layouts)
        return Unsupported(f"{type(self).__name__}: the arrays are {layout}, this plan was selected for {accepted}")

    def _words_of(self, fields: Iterable[str]) -> tuple[int, ...]:
        """Fields of the descriptor as kernels read them: numbers of 8 bytes."""
        codes = {name: "d" if convert is as_float else "q" for name, convert in self.descriptor._types.items()}
        packed = [struct.pack(codes[name], getattr(self.descriptor, name)) for name in fields]
        return struct.unpack(f"{len(packed)}q", b"".join(packed))

    def _launches(self, views: Views, workspace: int) -> list[Launch]:
        raise AssertionError("families define this")

    def sources(self, *, dtypes: Mapping[str, ElementKind | str] | None = None) -> Iterator[KernelSource]:
        """Every source that `run` may need, for arguments of the default element types or of `dtypes`."""
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

    @property
    def skus(self) -> tuple[KernelSku, ...]:
        """Every kernel that `run` may start, `sku` first; which of several it is, arrays and their device decide."""
        return (self.sku,)

    def for_arrays(self, **arrays: Array) -> Self:
        """The plan of the one kernel that `run` starts for these arrays (by argument, without workspace).

        Its `sku` is the kernel that runs, whichever arrays it is given then, and `workspace_bytes` what that one needs;
        arrays that it cannot address are refused. Raises what `run` would.
        """
        for name in arrays:
            self._argument(name)
        views = self._checked(tuple([arrays.get(name) for name in self.ARGUMENTS]))
        device, sku = self._device_of(views), self._sku_for(views)
        self._launches(views, 0)
        if self.skus == (sku,):
            return self
        only = replace(self._preference, archs=frozenset({sku.arch}), schedules=frozenset({str(sku.schedule)}))
        return self.select(self.descriptor, only, device=device, layouts=self.layouts)

    def __repr__(self) -> str:
        others = f" or {len(self.skus) - 1} others, by arrays and device" if len(self.skus) > 1 else ""
        return f"<{type(self).__name__} {self.sku}{others}>"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle holds descriptor and preference; unpickling selects again."""
        return partial(type(self).select, layouts=self.layouts), (self.descriptor, self._preference)

    def prepare(self, device: str | Device, *, dtypes: Mapping[str, ElementKind | str] | None = None) -> Self:
        """Compile and load all that `run` may need on `device`, so that `run` never waits and can be captured."""
        target = as_device(device)
        self._fit(target)
        self._load(target, self._sources_on(target, dtypes), lambda: dtypes or {})
        return self

    def _sources_on(self, device: Device, dtypes: Mapping[str, ElementKind | str] | None) -> Iterable[KernelSource]:
        """Every source that `run` may need on `device`."""
        return self.sources(dtypes=dtypes)

    def _run(self, arrays: Arrays, workspace: Workspace, stream: Stream) -> None:
        buffers = (*arrays, workspace) if self.workspace_bytes else arrays
        prepared = self._calls.find(buffers)
        if prepared is None or prepared.device.watch is not None:
            self._start(self._checked(arrays), workspace, stream, buffers, (self._calls, self._unchecked_calls))
        else:
            self._start_again(prepared, stream)

    def _run_unchecked(self, arrays: Arrays, workspace: Workspace, stream: Stream) -> None:
        buffers = (*arrays, workspace) if self.workspace_bytes else arrays
        prepared = self._unchecked_calls.find(buffers)
        if prepared is None or prepared.device.watch is not None:
            views = self._unchecked(arrays)
            self._start(views, workspace, stream, buffers, (self._unchecked_calls,))
        else:
            self._start_again(prepared, stream)

    def _by_name(self, arrays: Arrays) -> dict[str, Array]:
        return dict(zip(self.ARGUMENTS, arrays, strict=True))

    def _start_again(self, prepared: Prepared, stream: Stream) -> None:
        try:
            handle = prepared.current() if stream is None else raw_stream(stream, ())
        except BaracudaError as error:
            self._named.put_before(error)
            raise
        prepared.start(handle)

    def _start(
        self, views: Views, workspace: Workspace, stream: Stream, buffers: Arrays, memories: tuple[Calls, ...]
    ) -> None:
        device, scratch, handle = self._placed(views, workspace, stream)
        start = self._starter(device, views, scratch, handle)
        if device.watch is None:
            prepared = Prepared(device, start, current_stream(views.values()))
            for calls in memories:
                calls.remember(buffers, prepared)
            start(handle)
        else:
            with device.watch(self._watched(views, scratch)):
                start(handle)

    def _starter(self, device: Device, views: Views, scratch: TensorView | None, stream: int) -> Start:
        """One function that launches all kernels of a call; they are loaded."""
        launches = self._launches(views, scratch.pointer if scratch else 0)
        sources = [launch.source for launch in launches]
        for source in sources:
            if not device.is_loaded(source) and device.is_capturing(stream):
                raise DriverError(f"{source.symbol} is not loaded while a graph is captured; prepare the plan first")
        kernels = self._load(device, sources, lambda: {n.partition("[")[0]: v.element for n, v in views.items()})
        loaded = zip(kernels, launches, strict=True)
        starts = [start_of(k, launch.grid, launch.block, launch.words, launch.overlaps) for k, launch in loaded]
        names = ", ".join(launch.source.symbol for launch in launches)
        return in_nvtx_range(f"{type(self).__name__}: {names}", in_sequence(starts))

    def _watched(self, views: Views, scratch: TensorView | None) -> list[WatchedArray]:
        roles = {name: self.ARGUMENTS[name.partition("[")[0]].role for name in views}
        arrays = [
            WatchedArray(name, roles[name], v.pointer, v.shape, v.strides, v.element.row.bytes)
            for name, v in views.items()
        ]
        if scratch is not None:  # its kernels divide it into words
            words = self.workspace_bytes // 4
            arrays.append(WatchedArray("workspace", "workspace", scratch.pointer, (words,), (1,), 4))
        return arrays

    def _bind(self, arrays: Arrays, workspace: Workspace, stream: Stream) -> BoundLaunch:
        views = self._checked(arrays)
        device, scratch, handle = self._placed(views, workspace, stream)
        start = self._starter(device, views, scratch, handle)
        keep = (*arrays, workspace, *views.values(), scratch)
        return BoundLaunch(start, handle, keep, device, tuple(self._watched(views, scratch)), self._sku_for(views))

    def _unchecked(self, arrays: Arrays) -> Views:
        with self._named:
            views = take(self.ARGUMENTS, self._by_name(arrays), self._absent)
            check_shapes(self.ARGUMENTS, self.CHECK_ORDER, views, self.shapes(), self.present)
        return views

    def _checked(self, arrays: Arrays) -> Views:
        with self._named:
            views = take(self.ARGUMENTS, self._by_name(arrays), self._absent)
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

    def _placed(self, views: Views, workspace: Workspace, stream: Stream) -> tuple[Device, TensorView | None, int]:
        """Device, scratch memory and stream of a call."""
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
        """The hint to select with a device, if that finds a kernel that runs there."""
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
            for name, tensor in views.items():
                if may_share(scratch, tensor):
                    raise InvalidProblem(f"workspace overlaps {name!r}; give it memory of its own")
        return scratch

    def _load(
        self, device: Device, sources: Iterable[KernelSource], dtypes: Callable[[], Mapping[str, ElementKind | str]]
    ) -> list[Kernel]:
        """The kernels of `sources`, for arguments of `dtypes`."""
        record(self, dtypes)
        try:
            return [device.load(source) for source in sources]
        except NotCompiled as error:
            raise NotCompiled(f"{error}; to add it: {pack_command(self, dtypes, device.arch)}") from None
