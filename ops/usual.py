"""What fields of a descriptor usually are, by their names: for calls that leave them out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

USUAL: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {  # of the fields that the arrays show
    "norm_axes_mask": lambda shown: 1 << max(len(shown["input_shape"]) - 1, 0),  # the last axis
    "softmax_axis": lambda shown: len(shown["input_shape"]) - 1,
    "eps": lambda _: 1e-6,
    "scale": lambda shown: shown["d_k"] ** -0.5 if shown["d_k"] > 0 else 1.0,
    "is_causal": lambda _: False,
    "use_silu": lambda _: False,
}
