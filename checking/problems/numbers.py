"""Random numbers of several styles, each of which shows other errors."""

from __future__ import annotations

from typing import Any

import numpy as np


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Of both signs, a few columns far larger than the rest."""
    outliers = np.where(rng.random(shape[-1:]) < 0.01, 30.0, 1.0)
    return rng.standard_normal(shape) * (outliers if len(shape) > 1 else 1.0)


def spread(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Positive, with widely varying magnitudes, so that sums grow and every addition rounds."""
    return 2.0 ** rng.uniform(-6, 6, shape)


def constant(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """One value everywhere, so that every addition of a sum rounds alike."""
    return np.full(shape, rng.uniform(1.0, 2.0))


def below(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Far below zero, which exposes the start value of a maximum and overflow without one."""
    return rng.standard_normal(shape) - 1000.0


def cancelling(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Large numbers that cancel along any axis, with small ones between them, which an accumulator in a half loses."""
    turn = np.indices(shape).sum(0) % 4 if shape else np.zeros((), int)
    return np.where(turn % 2, rng.standard_normal(shape), 256.0 * (1 - turn))


def ties(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Zeros of either sign, and in the second half equal numbers and NaNs of either sign among them."""
    drawn = rng.choice([-0.0, 0.0], shape)
    second = drawn.reshape(-1)[drawn.size // 2 :]
    others = rng.choice([-1.0, 1.0, np.nan, -np.nan], second.shape)
    second[...] = np.where(rng.random(second.shape) < 0.2, others, second)
    return drawn


def lowest(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Nothing but the infinity with which a maximum begins."""
    return np.full(shape, -np.inf)


def highest(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Nothing but the infinity with which a minimum begins."""
    return np.full(shape, np.inf)


def extremes(rng: np.random.Generator, shape: tuple[int, ...], of: np.iinfo[Any]) -> np.ndarray[Any, Any]:
    """The first and the last whole numbers of a type, and those about 0; of the first half of elements the first."""
    drawn = rng.choice(np.array([of.min, of.max, of.max // 2, 0, 1, of.min // 2], of.dtype), shape)
    drawn.reshape(-1)[: drawn.size // 2] = of.min
    return drawn


def far(rng: np.random.Generator, drawn: np.ndarray[Any, Any]) -> Any:
    """`drawn` whole numbers of 64 bits, two thirds of them far away, of which the lower half is as it was."""
    return drawn + rng.choice(np.array([-1 << 32, 0, 1 << 32]), drawn.shape)


STYLES = {"normal": normal, "below": below, "spread": spread, "constant": constant, "cancelling": cancelling}
STYLES |= {"ties": ties, "lowest": lowest, "highest": highest}
