"""Defaults of descriptor fields by name and type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Value = Callable[[Mapping[str, Any]], Any]  # of the fields that arrays show or a call gives


class Usual(NamedTuple):
    """The default of a field of this `kind`, if the descriptor has the fields that it `reads`."""

    kind: str
    value: Value
    reads: Mapping[str, str] = {}


USUAL: Mapping[str, Usual] = {
    "norm_axes_mask": Usual("int", lambda f: 1 << max(len(f["input_shape"]) - 1, 0), {"input_shape": "shape"}),
    "softmax_axis": Usual("int", lambda f: len(f["input_shape"]) - 1, {"input_shape": "shape"}),
    "eps": Usual("float", lambda _: 1e-6),
    "scale": Usual("float", lambda f: f["d_k"] ** -0.5 if f["d_k"] > 0 else 1.0, {"d_k": "int"}),
    "is_causal": Usual("bool", lambda _: False),
    "use_silu": Usual("bool", lambda _: False),
}


def usual_of(kinds: Mapping[str, str]) -> dict[str, Value]:
    """Defaults for those of a descriptor's fields that have one; kinds are "shape", "int", "float", "bool"."""
    return {
        name: usual.value
        for name, usual in USUAL.items()
        if kinds.get(name) == usual.kind and usual.reads.items() <= kinds.items()
    }
