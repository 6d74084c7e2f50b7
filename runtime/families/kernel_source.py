"""What a kernel of any family is compiled from: its generated text, and the macros that a plan settles for it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..arrays.element import ElementKind
from ..device import KernelSource
from ..errors import InvalidProblem
from ..plans.registry import Registered
from ..values import short_repr

_MACRO = re.compile(r"[A-Za-z_]\w*=[\w ,=]+", re.ASCII)  # names, numbers, types and lists of them; no text


def kernel_source(
    row: Registered,
    constants: Mapping[str, object],
    *,
    present: Mapping[str, bool],
    types: Mapping[str, ElementKind],
    kernel: str = "",
    element: str = "",
    shared: int = 0,
) -> KernelSource:
    """The source of kernel `row`, or of its entry point `kernel` where it has several.

    Every macro is called BARACUDA_ and the name of its constant: SYMBOL, the name of the entry point; ELEMENT, the type
    of the elements, by default the SKU's; SCHEDULE, the numbers of the tile or schedule; HAS_ of each optional argument
    (`present`); TYPE_ of each whose type the caller chooses (`types`); and what the family adds (`constants`). `shared`
    is the dynamic shared memory of a block in bytes. Raises InvalidProblem for a macro that is more than names, numbers
    and types.
    """
    sku, file = row.sku, row.source
    symbol = f"{sku.symbol}_{kernel}" if kernel else sku.symbol
    numbers = ",".join(f"{name}={value}" for name, value in sku.schedule.constants)
    macros: dict[str, object] = {"SYMBOL": symbol, "ELEMENT": element or sku.element.row.cuda, "SCHEDULE": numbers}
    macros |= constants
    macros |= {f"HAS_{name.upper()}": int(is_present) for name, is_present in present.items()}
    macros |= {f"TYPE_{name.upper()}": kind.row.cuda for name, kind in types.items()}
    defines = [f"BARACUDA_{name}={value}" for name, value in macros.items()]
    defines += [f"DYN_SHARED_BYTES={shared}"] if shared else []
    for define in defines:
        if not _MACRO.fullmatch(define):
            raise InvalidProblem(f"{sku}: {short_repr(define)} is no macro of names, numbers and types")
    only = sku.arch if sku.arch.endswith("a") else ""
    policy = file.contraction, file.flush_subnormals
    return KernelSource(file.path, file.raw, symbol, tuple(defines), *policy, shared, only)
