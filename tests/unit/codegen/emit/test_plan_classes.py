"""Plan classes made from lowered ops are those of the generated modules: neither can drift from the other."""

from __future__ import annotations

import random
from functools import cache
from importlib import import_module
from typing import Any

import pytest
from repository import few, project

from baracuda.codegen.emit.plan_classes import plan_of, rows_of
from baracuda.codegen.project import PACKAGE
from baracuda.runtime import BaracudaError, ElementKind
from baracuda.runtime.devices.architecture import Architecture

PROJECT = project()
CALLS = ("run", "run_unchecked", "bind", "can_implement")  # need the arrays of a caller
APART = (*CALLS, "DESCRIPTOR", "PASS_PLANS", "TUNED", "kernels", "_selected", "_names")
DEVICES = ("sm_80", "sm_86", "sm_90")


def generated(name: str) -> Any:
    op = PROJECT.ops[name]
    return getattr(import_module(f"{PACKAGE}.{op.category}.{op.name}"), op.plan)


@cache
def made(name: str) -> Any:
    op = PROJECT.ops[name]
    return plan_of(op, rows_of(op, PROJECT.files[f"{op.category}/{op.name}.cu"], PACKAGE), PACKAGE)


@pytest.mark.parametrize("name", few(PROJECT.ops, 20))
def test_the_same_is_declared(name: str) -> None:
    """Arguments, promises, extents and all else that is data; the kernels and what they are compiled from."""
    ours, theirs = made(name), generated(name)
    for of in sorted({*vars(ours), *vars(theirs)} - {*APART}):
        if not of.startswith("__"):
            assert getattr(ours, of, "missing") == getattr(theirs, of, "missing"), of
    assert ours.kernels() == theirs.kernels() != ()
    assert [row.source.text for row in ours.kernels()] == [row.source.text for row in theirs.kernels()]
    assert [row.first for row in ours.kernels()] == [row.first for row in theirs.kernels()]
    for of in ("_plan", "_elements", "_types", "_requires", "_shape", "_cols", "_dims", "_space"):
        assert getattr(ours.DESCRIPTOR, of, None) == getattr(theirs.DESCRIPTOR, of, None), of


@pytest.mark.parametrize("name", few(PROJECT.ops, 20))
def test_the_same_is_selected(name: str) -> None:
    """Or refused, in the same words, for the spec's and other problems; and the same sources are compiled."""
    ours, theirs, rng = made(name), generated(name), random.Random(0)
    accepted = refused = 0
    for given in problems(name, rng):
        arch = rng.choice(DEVICES)
        mine, other = outcome(ours, given, arch), outcome(theirs, given, arch)
        assert mine == other, given
        accepted, refused = accepted + (mine[0] != "refused"), refused + (mine[0] == "refused")
    assert accepted and refused


def outcome(kind: Any, given: dict[str, Any], arch: str) -> tuple[Any, ...]:
    device = Architecture(arch, arch)
    try:
        problem = kind.DESCRIPTOR(**given)
        explained = kind.explain(problem, device=device)
        plan = kind.select(problem, device=device)
    except BaracudaError as error:
        return "refused", type(error), str(error)
    verdicts = [(v.sku, v.accepted, v.reason) for v in explained.verdicts]
    maps = getattr(kind, "MAPS", {}).get(plan.sku.arch, ())
    boxes = [problem._value_of(box.extent, kind._numbers(problem, plan.sku)) for box in maps]
    launched = kind._launched(problem, plan.sku) if hasattr(kind, "_launched") else ()
    asked = plan.shapes(), plan.workspace_bytes, list(plan.variants()), list(plan.sources()), boxes, launched
    return repr(problem), verdicts, plan.sku, plan.facts_of(problem), *asked


def problems(name: str, rng: random.Random) -> list[dict[str, Any]]:
    """The spec's own, and each with a field changed to something else."""
    spec = PROJECT.loaded[name].spec
    found: list[dict[str, Any]] = []
    for case in (*spec.tests.cases, *spec.bench.cases):
        given = {k: v for k, v in {**spec.tests.defaults, **case}.items() if k not in ("dtype", "arch")}
        for element in (*rng.sample(spec.dtypes, min(2, len(spec.dtypes))), rng.choice(list(ElementKind))):
            found.append({**given, "element": element})
            field = rng.choice(list(spec.descriptor))
            found.append({**found[-1], field: changed(spec.descriptor[field].type, given.get(field), rng)})
    some = rng.sample(found, min(len(found), 40))
    return [{k: tuple(v) if isinstance(v, list) else v for k, v in given.items()} for given in some]


def changed(kind: str, value: Any, rng: random.Random) -> Any:
    match kind:
        case "bool":
            return not value
        case "float":
            return rng.choice([0.0, -1.0, 0.5, float("inf"), 3])
        case "int":
            return rng.choice([-1, 0, 1, 2, 3, 16, 100, 513, 2**40, 2**63 - 1])
    return [rng.choice([0, 1, 2, 7, 32, 5000]) for _ in range(rng.randint(0, 9))]


@pytest.mark.parametrize("name", ["softmax", "repeat", "flash_sdpa"])
def test_descriptors_are_values(name: str) -> None:
    """Equal by their fields, hashed by them, printed with them, and not changed; defaults as generated ones have."""
    ours, theirs = made(name).DESCRIPTOR, generated(name).DESCRIPTOR
    given = problems(name, random.Random(1))[0]
    one, same, other = ours(**given), ours(**given), theirs(**given)
    assert one == same and hash(one) == hash(same) and one != other
    assert repr(one) == repr(other) and {one: 1}[same] == 1
    with pytest.raises(AttributeError):
        one.element = "f64"
    for wrong in ({**given, "nothing": 1}, {}):
        with pytest.raises(TypeError):
            ours(**wrong)
        with pytest.raises(TypeError):
            theirs(**wrong)


def test_expressions_see_the_numbers_of_all_schedules_and_no_others() -> None:
    """One that the kernel's own schedule lacks is 0, one that no schedule has is an error."""
    kind = generated("flash_sdpa")
    sizes = {"batch_size": 1, "num_heads": 2, "query_len": 1, "key_len": 600, "d_k": 8, "d_v": 8}
    problem = kind.DESCRIPTOR(**sizes, is_causal=False, scale=1.0, element="f32")
    seen = [(row.sku.schedule, kind._numbers(problem, row.sku)) for row in kind.kernels("f32")]
    assert {numbers["splits"] > 0 for _, numbers in seen} == {False, True}
    assert all(numbers["splits"] == dict(schedule.numbers).get("splits", 0) for schedule, numbers in seen)
    with pytest.raises(KeyError, match="split"):
        _ = seen[0][1]["split"]
