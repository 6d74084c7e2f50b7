"""Rules of what an op is tested on and by: random problems, and the op that a gradient differentiates."""

from __future__ import annotations

from collections.abc import Iterator

from ..parts import RangeSpec
from ..spec import OpSpec
from ..types import Place
from .finding import Finding, fits, meant

_WORD = 2**63


def draws(spec: OpSpec) -> Iterator[Finding]:
    """What random problems are made of: values of fields; and a batch where something is promised of it."""
    if spec.by_hand and spec.tests.batch is None:
        for name, rungs in spec.reproducibility.items():
            if "batch_invariant" in rungs:
                fix = "batch_invariant is tested on half of a batch; name the batch in tests.batch"
                yield ("reproducibility", name), 0, fix
    for name, drawn in spec.tests.draw.items():
        place = ("tests", "draw", name)
        if name not in spec.descriptor:
            yield place, 0, f"unknown field {name!r}; {meant(name, spec.descriptor)}"
        elif isinstance(drawn, RangeSpec):
            yield from _range(drawn, spec.descriptor[name].type, place)
        elif not all(fits(spec.descriptor[name].type, value) for value in drawn):
            yield place, 0, f"needs values of type {spec.descriptor[name].type} to choose among"
    batch = spec.descriptor.get(spec.tests.batch) if spec.tests.batch else None
    if spec.tests.batch is not None and batch is None:
        yield ("tests", "batch"), 0, f"unknown field {spec.tests.batch!r}; {meant(spec.tests.batch, spec.descriptor)}"
    elif batch is not None and batch.type not in ("int", "shape"):
        yield ("tests", "batch"), 0, f"needs an int or a shape, whose first extent counts; got a {batch.type}"


def _range(drawn: RangeSpec, kind: str, place: Place) -> Iterator[Finding]:
    """What is wrong with a range of ints or, with a rank, of extents."""
    if kind not in ("int", "shape"):
        yield place, 0, f"a range is of ints or extents; list the values of a {kind} to choose among"
    elif (kind == "shape") != (drawn.rank is not None):
        yield place, 0, "a shape is drawn with a rank, and nothing else is; for example {low: 0, high: 9, rank: [1, 4]}"
    elif not (-_WORD if kind == "int" else 0) <= drawn.low <= drawn.high < _WORD:
        yield place, 0, f"a range goes from low to high in 64 bits, extents from 0 on; got {drawn.low} to {drawn.high}"
    elif drawn.rank is not None and drawn.rank[0] > drawn.rank[1]:
        yield place, 0, f"ranks go from the least to the most, got {drawn.rank[0]} to {drawn.rank[1]}"


def gradient(spec: OpSpec) -> Iterator[Finding]:
    """What a gradient names is there, and each output differentiates something of its own."""
    if (grad := spec.gradient) is None:
        return
    if spec.backward is not None:
        yield ("backward",), 0, "a gradient has no `backward`; say it of the forward op"
    if not grad.cotangents:
        yield ("gradient",), 0, "none of the gradients that come in is read; use what is called d and an output's name"
    for section, names, tensors in (
        ("cotangents", grad.cotangents, spec.inputs),
        ("wrt", grad.wrt, spec.outputs),
        ("saved", grad.saved, spec.inputs),
    ):
        for name in names:
            if name not in tensors:
                yield ("gradient", section), 0, f"unknown tensor {name!r}; {meant(name, tensors)}"
    for section, mapping in (("cotangents", grad.cotangents), ("wrt", grad.wrt)):
        targets = list(mapping.values())
        for name in dict.fromkeys(name for name in targets if targets.count(name) > 1):
            yield ("gradient", section), 0, f"names {name!r} twice; each is of one tensor there"
    for name in spec.outputs:
        if name not in grad.wrt:
            text = f"{name!r} is not there: every output of a gradient differentiates an input"
            yield ("gradient", "wrt"), 0, text
