"""Generated kernels as aten's callers expect them: required to be batch-invariant, with row-major results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import baracuda.generated as generated
import baracuda.runtime as rt

from ..op import Op, Spec
from ..signature import Signature

_INVARIANT = rt.PlanPreference(rungs=frozenset({"deterministic", "batch_invariant"}))


class Exact(Exception):
    """Raised for calls that torch's own kernel gives the same bits in every batch: of integers, or of nothing."""


class Kernel(Op):
    """An op of which selection takes no kernel whose outputs depend on the batch."""

    def _selected(self, descriptor: Any, device: str) -> rt.Plan[Any]:
        return self.signature.plan.select(descriptor, _INVARIANT, device=device)

    @staticmethod
    def _allocated(specs: tuple[Spec, ...], first: Any, device: Any) -> list[Any]:
        return [torch.empty(shape, dtype=dtype, device=device) for shape, dtype, _ in specs]


def _kernel(plan: Any) -> Kernel:
    return Kernel(Signature(plan))


PRODUCTS = _kernel(generated.DenseGemmPlan)
SCALED_PRODUCTS = _kernel(generated.BaddbmmPlan)
SCALED_BYTES = _kernel(generated.ScaledMmPlan)
SCALED_BLOCKS = _kernel(generated.BlockScaledMmPlan)
GROUPED = _kernel(generated.GroupedMmPlan)
LINEAR = _kernel(generated.LinearPlan)
ROWS = _kernel(generated.ReduceRowsPlan)
SOFTMAX = _kernel(generated.SoftmaxPlan)
SOFTMAX_BACKWARD = _kernel(generated.SoftmaxBackwardPlan)
LOG_SOFTMAX = _kernel(generated.LogSoftmaxPlan)
LOG_SOFTMAX_BACKWARD = _kernel(generated.LogSoftmaxBackwardPlan)
RMS_NORM = _kernel(generated.RMSNormPlan)
LAYER_NORM = _kernel(generated.LayerNormPlan)


def floats(*tensors: Any) -> None:
    """Raise Exact unless these are floats or complex numbers, and there are some."""
    for tensor in tensors:
        if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.numel() == 0:
            raise Exact


def fits(condition: bool, what: str) -> None:
    """Raise InvalidProblem, which lets torch say in its own words what is wrong, unless `condition`."""
    if not condition:
        raise rt.InvalidProblem(what)


def suffix_mask(rank: int, axes: int) -> int:
    """The mask of the last `axes` of `rank` axes."""
    return (1 << axes) - 1 << rank - axes


def sized(tensors: Sequence[Any]) -> str:
    """Types and shapes, as messages have them."""
    return ", ".join(f"{t.dtype}{list(t.shape)}" for t in tensors)
