"""Activations as an RMSNorm in a transformer sees them: a few channels and tokens are far larger than the rest."""

from __future__ import annotations

from typing import Any

import numpy as np

from baracuda.runtime import ElementKind

Arrays = dict[str, np.ndarray[Any, Any]]

OUTLIER_CHANNELS = 1 / 700  # of all; six of 4096
CHANNEL_SCALE = (20.0, 60.0)
LARGE_TOKENS = 1 / 100
TOKEN_SCALE = (2.0, 16.0)
GAIN_SPREAD = 0.2
GRADIENT = 1e-3


def activations(rows: int, cols: int, seed: int = 0) -> Arrays:
    """Draw x [rows, cols], gamma [cols] and dy [rows, cols], in bf16; the same seed gives the same bits."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, cols), np.float32)
    x *= _outliers(rng, cols, OUTLIER_CHANNELS, CHANNEL_SCALE)
    x *= _outliers(rng, rows, LARGE_TOKENS, TOKEN_SCALE)[:, None]
    gamma = 1 + GAIN_SPREAD * rng.standard_normal(cols, np.float32)
    dy = GRADIENT * rng.standard_normal((rows, cols), np.float32)
    bf16 = ElementKind.BF16.row.numpy
    return {name: array.astype(bf16) for name, array in (("x", x), ("gamma", gamma), ("dy", dy))}


def _outliers(
    rng: np.random.Generator, count: int, share: float, scale: tuple[float, float]
) -> np.ndarray[Any, np.dtype[np.float32]]:
    factors = np.ones(count, np.float32)
    large = rng.choice(count, min(count, round(count * share) or 1), replace=False)
    factors[large] = rng.uniform(*scale, large.size)
    return factors
