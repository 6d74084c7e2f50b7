"""The kernel table: KernelSku -> the generated source that contains the kernel."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any

from ..arrays.element import ElementKind
from ..compile.line_map import with_line_directives
from ..errors import InvalidProblem, Unsupported
from .package_files import text_of
from .sku import KernelSku


@dataclass(frozen=True)
class SourceFile:
    """A generated `.cu` beside the module that registers it; read once, on demand."""

    package: str
    name: str
    contraction: bool = False
    flush_subnormals: bool = False
    inline: str | None = field(default=None, compare=False, repr=False)  # the text, where there is no file of it

    @cached_property
    def text(self) -> str:
        """The source for compilers, whose messages then name the template's lines."""
        return with_line_directives(self.raw)

    @cached_property
    def raw(self) -> str:
        """The file's content."""
        if self.inline is not None:
            return self.inline
        return text_of(self.package, self.name)

    @property
    def path(self) -> str:
        return "/".join([*self.package.split(".")[1:], self.name])


@dataclass(frozen=True)
class Registered:
    """A row of the table."""

    sku: KernelSku
    source: SourceFile
    first: bool = False  # whether it comes before kernels that are made for the device's own architecture


class KernelRows(Iterable[Registered]):
    """The rows of a plan, made when they are asked for: a process's first call needs those of one element type.

    `make` gives the rows of some element types, in the order of preference.
    """

    def __init__(self, plan: Any, make: Callable[[Collection[str]], Iterator[Registered]]) -> None:
        self.op = plan.OP
        self._elements, self._make = plan.DESCRIPTOR._elements, make
        self._made: dict[str, tuple[Registered, ...]] = {}

    def of(self, element: str) -> tuple[Registered, ...]:
        """The rows of one element type; none, if the plan lacks it."""
        tag = next((of for of in self._elements if of == element), None)
        if tag is None:
            return ()
        if tag not in self._made:
            self._made[tag] = tuple(self._make((tag,)))
        return self._made[tag]

    def __iter__(self) -> Iterator[Registered]:
        return self._make(self._elements)


def by_element(elements: Collection[str], texts: Iterable[str]) -> list[tuple[str, str]]:
    """Each schedule with each of its element types: "t256.packs2" is one of all, "t256.packs2 f16 bf16" of these."""
    split = [text.split(" ") for text in texts]
    return [(tag, text) for text, *tags in split for tag in elements if tag in tags or not tags]


_PLANS = "baracuda.generated"  # where plans are that may not be imported yet


class _Table:
    """Rows by SKU and by op, and behind them those that nobody has asked for."""

    def __init__(self) -> None:
        self.by_sku: dict[KernelSku, Registered] = {}
        self.by_op: dict[str, list[Registered]] = {}
        self.waiting: dict[str, KernelRows] = {}  # by op

    def add(self, rows: Iterable[Registered]) -> None:
        for row in rows:
            if (there := self.by_sku.get(row.sku)) is None:
                self.by_sku[row.sku] = row
                self.by_op.setdefault(row.sku.op, []).append(row)
            elif there != row:
                sources = f"{there.source} and {row.source}"
                raise InvalidProblem(f"{row.sku} is registered twice, by {sources}; rename one op or its category")

    def complete(self) -> None:
        """Make the rows that wait."""
        waiting, self.waiting = self.waiting, {}
        for rows in waiting.values():
            self.add(rows)


class KernelRegistry:
    """Every imported kernel, in order of registration, which is the order of preference."""

    def __init__(self) -> None:
        self._table = _Table()
        self._lock = threading.RLock()

    def register(self, rows: Iterable[Registered]) -> None:
        """Add rows. A row may be registered twice (modules may be reloaded), but no other row of the same SKU.

        Those of an op that has none yet are made when they are needed.
        """
        with self._lock:
            table = self._table
            if isinstance(rows, KernelRows) and rows.op not in table.by_op and rows.op not in table.waiting:
                table.waiting[rows.op] = rows
            else:
                table.complete()
                table.add(rows)

    @property
    def _rows(self) -> dict[KernelSku, Registered]:
        """Every row."""
        with self._lock:
            self._table.complete()
            return self._table.by_sku

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Use an empty table in the meantime; what is registered in it is dropped at the end."""
        before, self._table = self._table, _Table()
        try:
            yield
        finally:
            self._table = before

    def lookup(self, sku: KernelSku | str) -> Registered:
        """The row of `sku` (or of the SKU that prints so); raises Unsupported if there is none."""
        key = sku if type(sku) is KernelSku else KernelSku.parse(sku)  # type: ignore[arg-type]
        row = self._rows.get(key)
        if row is None:
            raise Unsupported(f"no kernel {str(key)!r}; {self._closest(key)}")
        return row

    def _closest(self, sku: KernelSku) -> str:
        """A hint: the most similar kernel of the same op, or what to import to register some."""
        if siblings := [str(other) for other in self._rows if (other.category, other.op) == (sku.category, sku.op)]:
            from difflib import get_close_matches

            return f"closest is {get_close_matches(str(sku), siblings, n=1, cutoff=0)[0]!r}"
        modules: dict[str, str] = import_module(_PLANS).MODULES
        plans = [n for n, of in modules.items() if of == f"{sku.category}.{sku.op}" and n.endswith("Plan")]
        if not plans:
            return f"no imported plan is of op '{sku.category}/{sku.op}', and {_PLANS} has none"
        return f"import its plan first: from {_PLANS} import {min(plans, key=len)}"

    def candidates(
        self,
        op: str,
        element: ElementKind | str | None = None,
        arch: str | None = None,
        package: str | None = None,
    ) -> tuple[Registered, ...]:
        """Rows of an op and element type, registered by `package`, that a device of architecture `arch` can run.

        Two packages may have ops of the same name.
        """
        return tuple(
            row
            for row in self._of(op, element)
            if (element is None or row.sku.element == element)
            and (arch is None or row.sku.fits(arch) is None)
            and (package is None or row.source.package == package)
        )

    def _of(self, op: str, element: str | None) -> Sequence[Registered]:
        """The rows of an op; with an element type at least those of it."""
        with self._lock:
            if element is not None and (rows := self._table.waiting.get(op)) is not None:
                return rows.of(element)
            self._table.complete()
            return self._table.by_op.get(op, ())

    def __iter__(self) -> Iterator[Registered]:
        return iter(tuple(self._rows.values()))

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, sku: Any) -> bool:
        return sku in self._rows


REGISTRY = KernelRegistry()
_lock = REGISTRY._lock  # which no other thread holds while a process forks
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
