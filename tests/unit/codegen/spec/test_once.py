"""Invariant: what is computed once of a spec is of its own values, and says nothing of whether two are equal."""

from __future__ import annotations

from repository import project

from baracuda.codegen.families.map.spec import MapSpec
from baracuda.codegen.spec.once import once

ASKED: list[object] = []


@once
def doc(spec: MapSpec, times: int = 1) -> str:
    ASKED.append(spec)
    return spec.doc * times


def fresh() -> MapSpec:
    return project().loaded["repeat"].spec.model_copy()


def test_a_spec_is_asked_once_for_the_same_arguments() -> None:
    ASKED.clear()
    spec = fresh()
    assert doc(spec) == doc(spec) == spec.doc
    assert doc(spec, 2) == doc(spec, 2) == spec.doc * 2
    assert len(ASKED) == 2


def test_a_copy_is_asked_anew() -> None:
    spec = fresh()
    doc(spec)
    assert doc(spec.model_copy(update={"doc": "other"})) == "other"


def test_specs_are_compared_by_what_they_say() -> None:
    asked, other = fresh(), fresh()
    doc(asked)
    assert asked == other
    doc(other)
    assert asked.by_kind[""] is asked and other.by_kind[""] is other  # kept with themselves
    assert asked == other
    assert asked != asked.model_copy(update={"doc": "other"})
