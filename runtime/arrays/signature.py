"""Whether arrays equal earlier ones in all but their addresses, asked of their library in one call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from .tensor import by_ancestry

Check = Callable[..., bool]


class Likeness:
    """What arrays have in common: types, dtypes, devices, shapes, strides, and which of them are None.

    `kind` is the first array's type, for a quick pre-check.
    """

    __slots__ = ("_absent", "_check", "_present", "kind")

    def __init__(self, check: Check, arrays: Sequence[object]) -> None:
        self._check, self.kind = check, type(arrays[0])
        self._absent = [at for at, array in enumerate(arrays) if array is None]
        self._present = [at for at, array in enumerate(arrays) if array is not None]

    def addresses(self, arrays: Sequence[Any]) -> tuple[int, ...] | None:
        """The start addresses of `arrays`, or None if they differ from the earlier ones; same number of arrays."""
        if self._absent:
            for at in self._absent:
                if arrays[at] is not None:
                    return None
            arrays = [arrays[at] for at in self._present]
        return tuple([array.data_ptr() for array in arrays]) if self._check(*arrays) else None


def likeness_of(arrays: Sequence[object]) -> Likeness | None:
    """What `arrays` have in common; None unless all are torch tensors, each passed once."""
    present = [array for array in arrays if array is not None]
    if not present or any(by_ancestry(type(array), {"torch.Tensor": True}) is None for array in present):
        return None
    check = _torch_check(present)
    return Likeness(check, arrays) if check is not None and check(*present) else None


def _torch_check(tensors: Sequence[Any]) -> Check | None:
    # What torch's compiler asks before each call of a compiled graph: 0.4 us for four tensors, where their attributes
    # take 4 us. It keeps no tensor, and compares dispatch keys, which say whether one is lazily conjugated or negated.
    try:
        guards = sys.modules["torch"]._C._dynamo.guards.TensorGuards
        shapes, strides = [list(t.shape) for t in tensors], [list(t.stride()) for t in tensors]
        check: Check = guards(*tensors, dynamic_dims_sizes=shapes, dynamic_dims_strides=strides).check
    except (AttributeError, TypeError, SystemError, RuntimeError):  # another torch, or no strided tensors
        return None
    return check
