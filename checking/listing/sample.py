"""Which kernels stand for all of them in an audit: a declared number, whatever the number of ops."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

from baracuda.runtime import Schedule

from ..sampling import share, spread
from .variant import Variant

OF_AN_OP, OF_ALL = 32, 960  # kernels; half a processor second each
_NAMED = "BARACUDA_SYMBOL=", "BARACUDA_SCHEDULE="  # macros that say what the SKU says


def sample(variants: Sequence[Variant], of_an_op: int = OF_AN_OP, of_all: int = OF_ALL) -> list[Variant]:
    """At most `of_an_op` variants of each op and `of_all` together, in their order; always the same ones.

    Those of an op differ as much as possible: every element type, layout, architecture, tile, number of a schedule and
    constant that the kernels have is among them before any comes twice.
    """
    by_op: dict[str, list[Variant]] = {}
    for variant in variants:
        by_op.setdefault(variant.row.sku.op, []).append(variant)
    count = min(of_all, sum(min(of_an_op, len(entries)) for entries in by_op.values()))
    chosen = share({op: _first(entries, of_an_op) for op, entries in by_op.items()}, count, "")
    identities = set(map(id, chosen))
    return [variant for variant in variants if id(variant) in identities]


def ops_of_a_sample(ops: Iterable[str], of_all: int) -> list[str]:
    """The ops that a `sample` of so many kernels is of, where there are more: those of others need no listing."""
    return share({op: [op] for op in ops}, of_all, "")


def _first(variants: Iterable[Variant], count: int) -> Iterator[Variant]:
    return (variant for variant, _ in zip(spread(variants, _traits, _name), range(count), strict=False))


def _traits(variant: Variant) -> Iterator[Hashable]:
    sku = variant.row.sku
    yield "element", sku.element
    yield "arch", sku.arch, variant.arch
    yield "layout", variant.layout
    yield "layout and arch", variant.layout, variant.arch
    yield "element and layout", sku.element, variant.layout
    yield "schedule", sku.schedule
    if isinstance(sku.schedule, Schedule):
        yield from (("number", *number) for number in sku.schedule.numbers)
    yield from (("constant", define) for define in variant.source.defines if not define.startswith(_NAMED))


def _name(variant: Variant) -> str:
    return f"{variant.row.sku} {variant.layout} {variant.arch} {' '.join(sorted(variant.source.defines))}"
