"""`why-miss`: whether packs or the cache have the kernels of a problem, and if not, what has changed since."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import click

from baracuda.codegen.project import PACKAGE
from baracuda.runtime import Device, KernelSource, Unsupported, default_device
from baracuda.runtime.cache.root import cache_root
from baracuda.runtime.compile.cubin import cubin_key, key_parts
from baracuda.runtime.compile.cubin_store import CubinStore, cubin_store
from baracuda.runtime.compile.packed import packed_cubin
from baracuda.runtime.compile.provenance import MAKER, Parts

from ..terminal import Row, show_json, show_table
from .explain import descriptor_of, device_called, plan_called

_DIGESTS = ("text", "header ")  # parts whose values say nothing to a person
_VARIANT = ("architecture", "constant ")  # parts that differ between the kernels of one text
_SHOWN = 4  # changes in a line
_Pair = tuple[str | None, str | None]  # as it was and as it is


@dataclass(frozen=True)
class Lookup:
    """The answer for one kernel; `changed` lists what differs from the nearest record: old and new value."""

    kernel: str
    layout: str
    arch: str
    hit: bool
    why: str = ""
    changed: Mapping[str, _Pair] = field(default_factory=dict)


def why_miss(
    plan: str, fields: Iterable[str], device: str | None = None, package: str = PACKAGE, as_json: bool = False
) -> bool:
    """Look up the kernels that `plan` needs for fields given as "name=value"; true if all are cached.

    `device` is "cuda:0" or an architecture such as "sm_90"; None is the first GPU.
    """
    kind = plan_called(plan, package)
    target = _gpu(device)
    chosen = kind.select(descriptor_of(kind, fields), device=target)
    store = cubin_store(cache_root() / "cubin")
    lookups = [lookup(store, layout, source, target.arch) for layout, source in _needed(chosen)]
    if as_json:
        show_json([asdict(answer) for answer in lookups])
    else:
        _show(chosen, target.arch, store, lookups)
    return all(answer.hit for answer in lookups)


def _gpu(name: str | None) -> Device:
    target = device_called(name) if name else default_device()
    if target.arch == "host":
        reason = "the host device has a cache of its own" if name else "there is no GPU"
        raise Unsupported(f"{reason}; name an architecture, as in --device sm_90")
    return target


def _needed(plan: Any) -> Iterator[tuple[str, KernelSource]]:
    """The kernels for arrays of the default element types, in each layout."""
    usual = {name: plan.elements_of(name)[0] for name in plan.CHOSEN}
    seen = set()
    for layout, elements, source in plan.variants():
        if elements == usual and source not in seen:
            seen.add(source)
            yield layout, source


def lookup(store: CubinStore, layout: str, source: KernelSource, arch: str) -> Lookup:
    """Whether a pack or `store` has `source` for `arch`; if not, how the nearest record differs."""
    arch = source.arch or arch
    named = source.symbol, layout, arch
    if packed_cubin(source, arch) is not None:
        return Lookup(*named, hit=True, why="in a pack")
    key = cubin_key(source, arch)
    if store.get(key) is not None:
        return Lookup(*named, hit=True)
    if store.records.get(key) is not None:
        return Lookup(*named, hit=False, why="compiled before; the entry is gone or damaged")
    parts = key_parts(source, arch)
    records = list(store.records.newest_first())
    alike = [changes(record, parts) for record in records if record.get("kernel") == source.symbol]
    if not alike:
        return Lookup(*named, hit=False, why=_unknown(len(store), len(records)))
    nearest = min(alike, key=_distance)
    return Lookup(*named, hit=False, why=_summary(nearest), changed=nearest)


def changes(old: Parts, new: Parts) -> dict[str, _Pair]:
    """The parts that differ, old and new; the key format is compared only if nothing else differs."""
    names = dict.fromkeys((*new, *old))
    differences = {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}
    return {name: pair for name, pair in differences.items() if name != MAKER} or differences


def _distance(changed: Mapping[str, object]) -> tuple[int, int]:
    """Another variant is further away than the same variant with any other source."""
    return sum(name.startswith(_VARIANT) for name in changed), len(changed)


def _unknown(entries: int, records: int) -> str:
    if entries > records:
        return f"no record of this kernel; {entries - records} of {entries} entries have none"
    return "never compiled"


def _summary(changed: Mapping[str, _Pair]) -> str:
    lines = [_change(name, *pair) for name, pair in changed.items()]
    more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    other = "never compiled; nearest: " if any(name.startswith(_VARIANT) for name in changed) else ""
    return other + ", ".join(lines[:_SHOWN]) + more


def _change(name: str, old: str | None, new: str | None) -> str:
    if old is None or new is None:
        return f"{name} {'is gone' if new is None else 'is new'}"
    if name.startswith(_DIGESTS):
        return f"{name} changed"
    return f"{name.removeprefix('constant BARACUDA_')} {old} -> {new}"


def _show(plan: Any, arch: str, store: CubinStore, lookups: Sequence[Lookup]) -> None:
    click.echo(f"{plan.descriptor}\n{plan.sku} for {arch}\nin {store.folder}\n")
    several = {name for name in ("kernel", "arch") if len({getattr(answer, name) for answer in lookups}) > 1}
    show_table([_row(answer, several) for answer in lookups])
    hits = sum(answer.hit for answer in lookups)
    click.echo(f"\n{hits} of {len(lookups)} in packs or the cache, {len(lookups) - hits} to be compiled")


def _row(answer: Lookup, named: Container[str]) -> Row:
    place = {"kernel": answer.kernel, "layout": answer.layout, "arch": answer.arch}
    columns = {name: value for name, value in place.items() if name == "layout" or name in named}
    return {**columns, "cache": "hit" if answer.hit else "miss", "why": answer.why}
