"""Invariant: what plans declare of shapes and gradients is enough to find a descriptor, and a backward's arguments."""

from __future__ import annotations

from typing import Any

import pytest
from repository import SPECS, few

import baracuda.runtime as rt
from baracuda.checking.oracles.oracle import Problem
from baracuda.checking.problems.subject import Subject
from baracuda.codegen.lower.extents import extents_of
from baracuda.codegen.spec.load import load_folder

LOADED = load_folder(SPECS)
SUBJECTS = {op: Subject(one, LOADED, "baracuda.generated") for op, one in LOADED.items()}


@pytest.mark.parametrize("op", few(SUBJECTS, 20))
def test_shapes_show_the_fields_that_a_plan_says_they_show(op: str) -> None:
    subject = SUBJECTS[op]
    for case in subject.spec.tests.cases:
        problem = Problem.of(subject, case, subject.spec.dtypes[0])
        for e in subject.plan.EXTENTS:
            if problem.plan.present(e.tensor):
                shown = e.of(problem.shape_of(e.tensor), problem.values)
                assert shown == getattr(problem.descriptor, e.field), e


@pytest.mark.parametrize("op", few([op for op, s in SUBJECTS.items() if s.spec.gradient], 10))
def test_a_backward_finds_all_its_inputs_in_a_call_of_its_forward(op: str) -> None:
    gradient = SUBJECTS[op].plan.GRADIENT
    forward, backward = SUBJECTS[gradient.of].plan.ARGUMENTS, SUBJECTS[op].plan.ARGUMENTS
    inputs = {name for name, a in backward.items() if not a.written}
    assert inputs - set(gradient.cotangents) <= set(forward)
    assert set(gradient.wrt) == set(backward) - inputs
    assert {*gradient.cotangents.values(), *gradient.wrt.values()} <= set(forward)


def test_what_is_always_there_is_asked_alone() -> None:
    shown: dict[str, list[rt.Extent]] = {}
    for e in SUBJECTS["causal_conv1d"].plan.EXTENTS:
        shown.setdefault(e.field, []).append(e)
    assert shown["width"] == [rt.Extent("width", "weight", 1)]
    assert shown["num_sequences"] == [
        rt.Extent("num_sequences", "initial_states", 0),
        rt.Extent("num_sequences", "cu_seqlens", 0, less=1),
    ]


def test_a_product_of_dims_shows_neither() -> None:
    assert extents_of(LOADED["repeat_backward"].spec) == ()
    assert extents_of(LOADED["repeat"].spec) == (rt.Extent("input_shape", "x"),)


class Symbol:
    """An extent that is no int and cannot be hashed, as tracers have them."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, text: str) -> None:
        self.text = text

    def __mul__(self, other: Any) -> Symbol:
        return Symbol(f"{self.text}*{getattr(other, 'text', other)}")

    def __rmul__(self, other: Any) -> Symbol:
        return self if other == 1 else Symbol(f"{other}*{self.text}")

    def __sub__(self, other: int) -> Symbol:
        return Symbol(f"{self.text}-{other}")

    def __add__(self, other: int) -> Symbol:
        return Symbol(f"{self.text}+{other}")

    def __neg__(self) -> Symbol:
        return Symbol(f"-{self.text}")

    def __floordiv__(self, other: int) -> Symbol:
        return Symbol(f"{self.text}//{other}")


@pytest.mark.parametrize("op", few(SUBJECTS, 20))
def test_shapes_follow_from_extents_that_are_no_numbers(op: str) -> None:
    subject = SUBJECTS[op]
    problem = Problem.of(subject, subject.spec.tests.cases[0], subject.spec.dtypes[0])
    symbols = {
        name: tuple(Symbol(f"{name}{axis}") for axis in range(len(value))) if isinstance(value, tuple) else Symbol(name)
        for name in {e.field for e in subject.plan.EXTENTS}
        for value in [getattr(problem.descriptor, name)]
    }
    given = {name: getattr(problem.descriptor, name) for name in problem.values if name not in symbols}
    shapes = subject.plan.shapes_of(subject.plan.DESCRIPTOR.unchecked(element="f32", **given, **symbols))
    for name, (shape, *_) in shapes.items():
        assert len(shape) == len(problem.shape_of(name))


def test_unchecked_descriptors_take_the_defaults_of_others() -> None:
    kind = SUBJECTS["causal_conv1d"].plan.DESCRIPTOR
    made = kind.unchecked(batch_size=3, channels=1, seq_len=2, width=2, use_silu=False, element="f32")
    assert (made.num_sequences, made.has_bias) == (3, True)
