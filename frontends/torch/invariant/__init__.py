"""Batch-invariant kernels in the place of aten's: a sequence's bits do not depend on what it is computed beside."""

from .mode import are_batch_invariant_ops_enabled, batch_invariant, use_batch_invariant_ops

__all__ = ["are_batch_invariant_ops_enabled", "batch_invariant", "use_batch_invariant_ops"]
