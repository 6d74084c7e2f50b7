"""What the plans of an op compile, asked of plan classes made from the lowered op; nothing of a spec is executed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, product, tee
from typing import Any

import numpy as np

from baracuda.codegen.emit.plan_classes import TooMuch, plan_of, rows_of
from baracuda.codegen.lower.op import Op
from baracuda.codegen.spec.load import Loaded
from baracuda.runtime import InvalidProblem, KernelSku, PlanPreference, Registered, Unsupported
from baracuda.runtime.devices.architecture import Architecture

from ..problems.cases import drawn_cases
from ..problems.subject import Subject
from .variant import Variant

_LEAST = "sm_86"  # of the least shared memory: what is made for such devices is not chosen on others
_TRIES = 400  # random cases, of all SKUs together, before one goes without a variant
Case = tuple[tuple[str | int, ...] | None, dict[str, Any]]  # the fields of a problem, and where the spec gives them


def planned_variants(
    op: Op, loaded: Loaded, files: Mapping[str, str], package: str, *, archs: Sequence[str], layouts: Sequence[str]
) -> list[Variant]:
    """A kernel for each SKU, layout and architecture, in the variants that the spec's benchmarks and first case need.

    A SKU that none of the spec's cases selects is shown by a random problem, whose caller asks for its schedule.
    """
    subject = Subject(loaded, {}, package)
    rows = rows_of(op, files[f"{op.category}/{op.name}.cu"], package)
    kind = plan_of(op, rows, package)
    tries = iter(range(_TRIES))
    drawn = tee(drawn_cases(subject, np.random.default_rng(0)), len(rows))  # each case once for all
    random = [(case for case, _ in zip(of_row, tries, strict=False)) for of_row in drawn]
    plans = [_plans(kind, subject, row.sku, cases) for row, cases in zip(rows, random, strict=True)]
    return [v for row, of in zip(rows, plans, strict=True) for v in _of_row(row, of, archs, layouts)]


def _of_row(
    row: Registered, plans: Iterator[Any], archs: Sequence[str], layouts: Sequence[str]
) -> Iterator[Variant]:
    seen: set[Any] = set()
    for plan in plans:
        usual = {name: plan.elements_of(name)[0] for name in plan.CHOSEN}
        for layout, stored_types, source in plan.variants():
            is_usual = all(usual[name] == kind for name, kind in stored_types.items())  # a pass may have fewer
            if not is_usual or source in seen or layout not in layouts:
                continue
            seen.add(source)
            for arch in archs:
                if row.sku.fits(arch.rstrip("a")) is None:
                    only = row.sku.arch if row.sku.arch.endswith("a") else arch
                    yield Variant(row, layout, only, source)


def _plans(kind: type[Any], subject: Subject, sku: KernelSku, random: Iterable[dict[str, Any]]) -> Iterator[Any]:
    """Plans that selection gives to `sku`: of all benchmarks, and of the first of the tests' cases, or of `random`."""
    spec, served = subject.spec, False
    shown: set[str] = set()
    own = _cases("bench", spec.bench.cases), _cases("tests", spec.tests.cases)
    for place, case in chain(*own, ((None, case) for case in random)):
        kinds = {case["kind"]} - shown if "kind" in case and place is not None else set()
        if served and place is None:
            return
        if served and not kinds and place and place[0] == "tests":
            continue
        if case.get("dtype", sku.element) != sku.element or case.get("arch", sku.arch) != sku.arch:
            continue
        usual = spec.of_kind(case.get("kind")).tests.defaults
        fields = {k: v for k, v in {**usual, **case}.items() if k not in ("dtype", "arch")}
        try:
            plan = _plan(kind, fields, sku, pinned=place is None)
        except InvalidProblem as error:
            if place is not None:
                raise subject.loaded.source.error(place, str(error)) from None
            continue
        except TooMuch as error:
            if place is not None:
                fix = "list fewer cases or schedules, or shorten what they have in common"
                raise subject.loaded.source.error(("schedules",), f"{error}; {fix}") from None
            return
        if plan is not None:
            served = True
            shown |= kinds
            yield plan


def _cases(section: str, cases: Iterable[dict[str, Any]]) -> Iterator[Case]:
    return (((section, "cases", i), case) for i, case in enumerate(cases))


def _plan(kind: type[Any], fields: dict[str, Any], sku: KernelSku, *, pinned: bool) -> Any:
    """The plan of a problem, if selection gives it to `sku`, whose schedule may be asked for, on a device for it."""
    problem, layouts = kind.DESCRIPTOR(**fields, element=sku.element), [sku.layout] if sku.layout else None
    if kind.cannot_hold(problem, sku):  # which selection would find out too, with all other kernels' reasons
        return None
    own = sku.arch.rstrip("a")
    schedules = frozenset({str(sku.schedule)}) if pinned else None
    own_only = PlanPreference(archs=frozenset({sku.arch}), schedules=schedules, **sku.asked)
    # Some kernels serve only callers who allow no workspace.
    preferences = own_only, replace(own_only, max_workspace_bytes=0)
    archs = [own] if sku.fits(_LEAST) else [own, _LEAST]  # not whatever this machine happens to have
    for arch, preference in product(archs, preferences):
        with suppress(Unsupported):
            plan = kind.select(problem, preference, device=Architecture(arch, arch), layouts=layouts)
            if plan.sku == sku:
                return plan
    return None
