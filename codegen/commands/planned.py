"""What the plans of an op compile, asked of the plans themselves: their module is run, and nothing of it is kept."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice, tee
from types import ModuleType
from typing import Any

import numpy as np

from baracuda.runtime import REGISTRY, KernelSku, PlanPreference, Registered, SpecError, Unsupported

from ..load import Loaded
from ..model import Op
from ..verify.cases import drawn_cases
from ..verify.subject import Subject
from .compile_report import Variant
from .explain import Architecture

_LEAST = "sm_86"  # of the least shared memory: what is made for such devices is not chosen on others
_TRIES = 4000  # random cases before a SKU goes without a variant


def planned_variants(
    op: Op, loaded: Loaded, files: dict[str, str], package: str, *, archs: Sequence[str], layouts: Sequence[str]
) -> list[Variant]:
    """A kernel for each SKU, layout and architecture, in the variants that the spec's benchmarks and first case need.

    A SKU that none of the spec's cases selects is shown by a random one.
    """
    subject = Subject(loaded, {}, package)
    path = f"{op.category}/{op.name}"
    with REGISTRY.apart():
        module = _module(f"{package}.{op.category}.{op.name}", files[f"{path}.py"])
        rows = REGISTRY.candidates(op.name)
        for row in rows:
            vars(row.source)["raw"] = files[f"{path}.cu"]  # where the cached property keeps what it has read
        drawn = tee(islice(drawn_cases(subject, np.random.default_rng(0)), _TRIES), len(rows))  # each case once for all
        plans = [_plans(module, subject, row.sku, random) for row, random in zip(rows, drawn, strict=True)]
        return [v for row, of in zip(rows, plans, strict=True) for v in _of_row(row, of, archs, layouts)]


def _module(name: str, text: str) -> ModuleType:
    """The module that `text` is, under another name than an imported one has."""
    module = ModuleType(f"{name}__planned")
    module.__package__ = name.rpartition(".")[0]
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        exec(compile(text, f"<{name}>", "exec"), vars(module))
    except Exception as error:
        raise SpecError(f"{name}: the generated plan does not run: {error!r}") from error
    finally:
        del sys.modules[module.__name__]
    return module


def _of_row(
    row: Registered, plans: Iterator[Any], archs: Sequence[str], layouts: Sequence[str]
) -> Iterator[Variant]:
    seen: set[Any] = set()
    for plan in plans:
        usual = {name: plan.elements_of(name)[0] for name in plan.CHOSEN}
        for layout, held, source in plan.variants():
            if held != usual or source in seen or layout not in layouts:
                continue
            seen.add(source)
            for arch in archs:
                if row.sku.fits(arch.rstrip("a")) is None:
                    only = row.sku.arch if row.sku.arch.endswith("a") else arch
                    yield Variant(row, layout, only, source)


def _plans(
    module: ModuleType, subject: Subject, sku: KernelSku, random: Iterator[dict[str, Any]]
) -> Iterator[Any]:
    """Plans that selection gives to `sku`: of all benchmarks, and of the first of the tests' cases, or of `random`."""
    spec = subject.spec
    kind = getattr(module, spec.plan)
    descriptor = kind.DESCRIPTOR
    preference, served = PlanPreference(archs=frozenset({sku.arch})), False
    own = sku.arch.rstrip("a")
    devices = [own] if sku.fits(_LEAST) else [own, _LEAST]  # not whatever this machine happens to have
    benched = [(case, True) for case in spec.bench.cases]
    for case, always in chain(benched, ((case, False) for case in chain(spec.tests.cases, random))):
        if served and not always:
            return
        if case.get("dtype", sku.element) != sku.element or case.get("arch", sku.arch) != sku.arch:
            continue
        given = {k: v for k, v in {**spec.tests.defaults, **case}.items() if k not in ("dtype", "arch")}
        problem, only = descriptor(**given, element=sku.element), [sku.layout] if sku.layout else None
        if kind.cannot_hold(problem, sku):  # which selection would find out too, with all other kernels' reasons
            continue
        for arch in devices:
            with suppress(Unsupported):
                plan = kind.select(problem, preference, device=Architecture(arch, arch), layouts=only)
                if plan.sku == sku:
                    served = True
                    yield plan
                    break
