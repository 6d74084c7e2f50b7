"""Plans of the body family: hand-written kernels whose shapes, constants, grids and scratch are declared."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Self, TypeVar

from ...arrays.arguments import Argument, Views
from ...arrays.element import ElementKind
from ...device import Device, KernelSource
from ...errors import Unsupported
from ...observe import log
from ...plans.descriptor import Descriptor
from ...plans.plan import Launch, Plan
from ...plans.registry import KernelRows, Registered
from ...plans.schedule import Schedule
from ...plans.sku import VECTOR_BYTES, KernelSku
from ...values import as_shape
from ..kernel_source import kernel_source
from .layout import StructWords, layouts_of
from .selection import BodySelection, Launched, listed, own_first

B = TypeVar("B", bound=Descriptor)
_REMEMBERED = 256  # geometries kept per plan


class BodyPlan(BodySelection[B], Plan[B]):
    """Everything a generated plan of the body family does not declare."""

    BODIES: ClassVar[tuple[str, ...]] = ()  # architectures with a header of their own

    @classmethod
    def shape_text(cls, argument: Argument) -> str:
        """The formulas of the shapes that it may have."""
        return " or ".join(cls.SHAPES[argument.name])

    def __init__(
        self, descriptor: B, rows: Sequence[Registered], first: Registered, layouts: frozenset[str], arch: str = ""
    ) -> None:
        super().__init__(descriptor, rows, first, layouts, arch)
        self._geometries: dict[Any, list[tuple[KernelSource, Launched, StructWords]]] = {}

    def _served_by(self, row: Registered) -> Self:
        return type(self)(self.descriptor, [row], row, self.layouts)

    @cached_property
    def workspace_bytes(self) -> int:
        """How many bytes of workspace `run` needs, whichever candidate serves the arrays."""
        return max(self.workspace_of(self.descriptor, row.sku) for row in self._rows)

    def _fit(self, device: Device) -> None:
        refused = [(row.sku, self._unfit(self.descriptor, row.sku, device)) for row in self._rows]
        if all(reason for _, reason in refused):
            why = listed([(sku, reason or "") for sku, reason in refused])
            raise Unsupported(f"{type(self).__name__}: no kernel for {device.name!r}{self._advice(device)}{why}")
        self._checked_archs.add(device.arch)

    def _is_candidate(self, sku: KernelSku, device: Device) -> bool:
        return bool(self._layouts_of(sku)) and super()._is_candidate(sku, device)

    def sources(self, *, dtypes: Mapping[str, ElementKind | str] | None = None) -> Iterator[KernelSource]:
        """One source for each kernel and layout that the chosen SKU may run with."""
        yield from self._sources_of(self._row, dtypes)

    def _sources_of(
        self, row: Registered, dtypes: Mapping[str, ElementKind | str] | None
    ) -> Iterator[KernelSource]:
        types = self._chosen_types(dtypes)
        for layout in self._layouts_of(row.sku):
            for kernel in self._launched(self.descriptor, row.sku):
                yield self._source(row, kernel, layout, types)

    def _sources_on(
        self, device: Device, dtypes: Mapping[str, ElementKind | str] | None
    ) -> Iterator[KernelSource]:
        """Those of every candidate that fits the device."""
        for row in self._rows:
            if self._unfit(self.descriptor, row.sku, device) is None:
                yield from self._sources_of(row, dtypes)

    def variants(self) -> Iterator[tuple[str, dict[str, ElementKind], KernelSource]]:
        """Every layout with every choice of element types: all that the caller's arrays may ask for."""
        for layout in self._layouts_of(self.sku):
            for types in product(*(self.elements_of(name) for name in self.CHOSEN)):
                for kernel in self._launched(self.descriptor, self.sku):
                    source = self._source(self._row, kernel, layout, types)
                    yield layout, dict(zip(self.CHOSEN, types, strict=True)), source

    def _layouts_of(self, sku: KernelSku) -> tuple[str, ...]:
        return tuple(name for name in self._works_on(sku) if name in self.layouts)

    def _source(
        self, row: Registered, kernel: Launched, layout: str, types: tuple[ElementKind, ...]
    ) -> KernelSource:
        key = row.sku, kernel.name, kernel.shared, layout, types
        source = self._sources.get(key)
        if source is None:
            schedule, settings = row.sku.schedule, self.settings_of(self.descriptor)
            assert isinstance(schedule, Schedule)
            source = self._sources[key] = kernel_source(
                row,
                {
                    "LAYOUT": self.LAYOUTS.index(layout),
                    "KERNEL": f"{row.sku.op}_{kernel.name}",
                    "THREADS": kernel.threads,
                    "BLOCKS_PER_SM": dict(schedule.numbers).get("blocks_per_sm", 1),
                    **({row.sku.arch.upper(): 1} if row.sku.arch in self.BODIES else {}),
                    **{f"SETTING_{name}": int(value) for name, value in settings.items()},
                },
                present={a.name: self.present(a.name) for a in self.ARGUMENTS.values() if a.optional},
                types=dict(zip(self.CHOSEN, types, strict=True)),
                kernel=kernel.name,
                shared=kernel.shared,
            )
        return source

    def _launches(self, views: Views, workspace: int) -> list[Launch]:
        device = self._device_of(views)
        key = device.name, *[(n, v.shape, v.strides, v.pointer % VECTOR_BYTES, v.element) for n, v in views.items()]
        geometry = self._geometries.get(key)
        if geometry is None:
            if len(self._geometries) >= _REMEMBERED:
                self._geometries.clear()
            geometry = self._geometries[key] = self._geometry(views, device)
        words = geometry[0][2].filled(views, workspace) if geometry else None
        return [Launch(source, k.grid, k.threads, words, k.overlaps) for source, k, _ in geometry]

    def _geometry(self, views: Views, device: Device) -> list[tuple[KernelSource, Launched, StructWords]]:
        row, layout = self._serving(views, device)
        types = tuple(views[n].element if n in views else self.elements_of(n)[0] for n in self.CHOSEN)
        words = self._words(row.sku)
        launched = self._launched(self.descriptor, row.sku, device.multiprocessors)
        for kernel in launched:
            if reason := kernel.refused:  # only now is the number of multiprocessors known
                raise Unsupported(f"{type(self).__name__}: {row.sku} {reason}")
        return [(self._source(row, kernel, layout, types), kernel, words) for kernel in launched]

    def _serving(self, views: Views, device: Device) -> tuple[Registered, str]:
        """The first candidate that can address these arrays, and what it takes their layout for.

        The strictest layout that they keep to comes first, then looser ones, as where `layouts` rules the first out.
        """
        layouts = layouts_of(self.LAYOUT_AXES, self.LAYOUTS, views)
        refused: dict[KernelSku, str] = {}
        for layout in layouts:
            for row in self._in_order(device):
                if layout in (accepted := self._layouts_of(row.sku)):
                    reason = self._unfit(self.descriptor, row.sku, device) or self._unmapped(row.sku, views)
                    if reason is None:
                        return row, layout
                    refused[row.sku] = reason
                else:
                    refused.setdefault(row.sku, f"the arrays are {layout}, it works on {' or '.join(accepted)}")
                log.debug("%s: refused %s: %s", type(self).__name__, row.sku, refused[row.sku])
        raise Unsupported(f"{type(self).__name__}: no kernel for these arrays{listed(list(refused.items()))}")

    def _in_order(self, device: Device) -> list[Registered]:
        """The candidates in order of preference on `device`: first the one measured to be the fastest there."""
        rows = own_first(self._rows, device)
        return sorted(rows, key=lambda row: row != self._row) if device.arch == self._measured_on else rows

    @property
    def skus(self) -> tuple[KernelSku, ...]:
        """Every kernel that `run` may start, `sku` first; which of several it is, arrays and their device decide."""
        return tuple(dict.fromkeys((self.sku, *(row.sku for row in self._rows))))

    def _sku_for(self, views: Views) -> KernelSku:
        return self._serving(views, self._device_of(views))[0].sku

    def _unmapped(self, sku: KernelSku, views: Views) -> str | None:
        if not (boxes := self.MAPS.get(sku.arch, ())):
            return None
        from ...devices.tensor_map import cannot_map

        reasons = (cannot_map(views[box.tensor], box.tensor) for box in boxes)
        return next((reason for reason in reasons if reason), None)

    def _words(self, sku: KernelSku) -> StructWords:
        offsets, offset = [], 0
        for size in self._scratch_bytes(self.descriptor, sku):
            offsets.append(offset)
            offset += size
        ranks = {name: len(shapes[0]) for name, shapes in self._shapes.items()}
        numbers = self._numbers(self.descriptor, sku)
        boxes = [(box.tensor, self.descriptor._value_of(box.extent, numbers)) for box in self.MAPS.get(sku.arch, ())]
        return StructWords(tuple(boxes), ranks, self._words_of(self._fields), tuple(offsets))

    @cached_property
    def _fields(self) -> tuple[str, ...]:
        """The fields that kernels read: all but shapes and flags of optional tensors."""
        flags = {argument.optional for argument in self.ARGUMENTS.values()}
        types = self.descriptor._types.items()
        return tuple(name for name, convert in types if convert is not as_shape and name not in flags)


def body_kernels(
    plan: type[BodyPlan[Any]],
    *,
    contraction: bool = False,
    flush_subnormals: bool = False,
    inline: str | None = None,
) -> KernelRows:
    """A row of the kernel table for each element type of each of the plan's schedules, in their order.

    `inline` is the text of the kernels, where there is no file of it.
    """
    source = plan.source_file(inline, contraction, flush_subnormals)

    def make(elements: Collection[str]) -> Iterator[Registered]:
        for row, tag in [(of, tag) for of in plan.SCHEDULES for tag in of.elements if tag in elements]:
            element = ElementKind(tag)
            guarantee = plan.promised_of(element, row.math)
            sku = plan.sku_of(element, row.arch, guarantee, Schedule.parse(row.schedule), row.layout)
            yield Registered(sku, source, row.first)

    return KernelRows(plan, make)
