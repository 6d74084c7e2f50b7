"""Causal convolution along time by its definition: each sequence is extended by the values before it.

The bounds count one rounding for each multiply-add of the filter, and for the gradients of its taps and bias chains
of at most `_CHAIN` additions: of a thread, of its block, and of the blocks' sums with what additions lose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from . import Arrays, Definition, Fields, Units

_CHAIN = 64

# -------------------------------------------------------------------------------------------------------- definitions


def _causal_conv1d(xp: Any, fields: Fields, arrays: Arrays) -> dict[str, Any]:
    results = [_one(xp, fields, arrays, before, x) for before, x in _sequences(xp, fields, arrays)]
    states = [_last(extended, _halo(arrays)) for _, extended in results]
    return {
        "y": _along_time(xp, [y for y, _ in results], arrays["x"]),
        "final_states": xp.concatenate([_no_states(arrays, 0), *states]),
    }


def _causal_conv1d_update(xp: Any, fields: Fields, arrays: Arrays) -> dict[str, Any]:
    state = arrays["conv_state"]
    y, _ = _one(xp, fields, arrays, _last(state, _halo(arrays)), arrays["x"])
    return {"y": y, "new_state": _last(xp.concatenate([state, arrays["x"]], axis=2), state.shape[2])}


def _one(xp: Any, fields: Fields, arrays: Arrays, before: Any, x: Any) -> tuple[Any, Any]:
    """The result for sequences x [n, C, t] that continue `before`, and the two concatenated."""
    extended = xp.concatenate([before, x], axis=2)
    pre = _filtered(arrays["weight"], extended, x.shape[2])
    if "bias" in arrays:
        pre = pre + arrays["bias"][:, None]
    return (pre * _sigmoid(xp, pre) if fields["use_silu"] else pre), extended


def _filtered(weight: Any, extended: Any, steps: int) -> Any:
    return sum(weight[:, k, None] * extended[:, :, k : k + steps] for k in range(weight.shape[1]))


def _sigmoid(xp: Any, p: Any) -> Any:
    """The sigmoid, accurate near 0; its derivative at p = 0 is irrelevant to p times it."""
    small = xp.exp(-xp.abs(p))
    return xp.where(p < 0, small, 1.0) / (1.0 + small)


def _halo(arrays: Arrays) -> int:
    """How many earlier values enter the result of a step."""
    return int(arrays["weight"].shape[1]) - 1


def _sequences(xp: Any, fields: Fields, arrays: Arrays) -> Iterator[tuple[Any, Any]]:
    """The values before and x, of all sequences at once or of packed ones in turn."""
    x, states = arrays["x"], arrays.get("initial_states")
    if "cu_seqlens" not in arrays:
        yield (_no_states(arrays, x.shape[0]) if states is None else states), x
        return
    for index, part in enumerate(_parts(arrays)):
        yield (_no_states(arrays, 1) if states is None else states[index : index + 1]), x[:, :, part]


def _parts(arrays: Arrays) -> list[slice]:
    """The time steps of each sequence."""
    ends = [int(end) for end in arrays["cu_seqlens"]]
    return [slice(first, end) for first, end in pairwise(ends)]


def _no_states(arrays: Arrays, count: int) -> Any:
    return np.zeros((count, arrays["x"].shape[1], _halo(arrays)), arrays["x"].dtype)


def _last(x: Any, count: int) -> Any:
    return x[:, :, x.shape[2] - count :]


def _along_time(xp: Any, parts: list[Any], x: Any) -> Any:
    """Results in the layout of x: packed sequences share the time axis."""
    return xp.concatenate(parts, axis=2) if parts else np.zeros(x.shape, x.dtype)


# ------------------------------------------------------------------------------------------------------------- bounds


def _forward_errors(fields: Fields, arrays: Arrays, slack: Mapping[str, Any], units: Units) -> dict[str, Any]:
    arrays = _plain(arrays)
    states = _causal_conv1d(np, fields, arrays)["final_states"]
    return {"y": _y_error(_causal_conv1d, fields, arrays, units.acc), "final_states": np.zeros_like(states)}


def _update_errors(fields: Fields, arrays: Arrays, slack: Mapping[str, Any], units: Units) -> dict[str, Any]:
    arrays = _plain(arrays)
    state = np.zeros_like(arrays["conv_state"])
    return {"y": _y_error(_causal_conv1d_update, fields, arrays, units.acc), "new_state": state}


def _y_error(values: Any, fields: Fields, arrays: Arrays, u: float) -> Any:
    pre, error = _before_silu(values, fields, arrays, u)
    if not fields["use_silu"]:
        return error
    sigmoid, slope, _ = _silu(pre)
    return (np.abs(slope) + 0.5 * error) * error + 10 * u * np.abs(pre * sigmoid) + np.abs(pre) * _smallest(u)


def _before_silu(values: Any, fields: Fields, arrays: Arrays, u: float) -> tuple[Any, Any]:
    """The pre-activation by `values`, and a bound on its error."""
    plain = {**fields, "use_silu": False}
    size = values(np, plain, _magnitudes(arrays))["y"]
    return values(np, plain, arrays)["y"], (_halo(arrays) + 2) * u * size


def _silu(p: Any) -> tuple[Any, Any, Any]:
    """The sigmoid of p, and two derivatives of p times it; the third is below a half."""
    sigmoid, rest = _sigmoid(np, p), _sigmoid(np, -p)
    return sigmoid, sigmoid + p * sigmoid * rest, sigmoid * rest * (2 + p * (rest - sigmoid))


def _backward_errors(fields: Fields, arrays: Arrays, slack: Mapping[str, Any], units: Units) -> dict[str, Any]:
    arrays, u = _plain(arrays), units.acc
    large, taps = _magnitudes(arrays), _halo(arrays) + 1
    pre, pre_error = _before_silu(_causal_conv1d, fields, arrays, u)
    g, g_error = large["dy"], np.zeros_like(pre)
    if fields["use_silu"]:
        sigmoid, slope, bend = _silu(pre)
        rounding = 10 * u * (sigmoid + np.abs(slope - sigmoid)) + np.abs(pre) * _smallest(u)
        g_error = g * ((np.abs(bend) + 0.5 * pre_error) * pre_error + rounding)
        g = g * np.abs(slope) + g_error
    chain = g_error + min(_CHAIN, pre.shape[0] * pre.shape[2] + 2) * u * g
    back = g_error + (taps + 1) * u * g
    finals = large.get("dfinal_states")
    dx, initial = [], [_no_states(arrays, 0)]
    dw, db = np.zeros_like(arrays["weight"]), chain.sum(axis=(0, 2))
    parts = _parts(arrays) if "cu_seqlens" in arrays else [slice(None)]
    for index, (part, (before, x)) in enumerate(zip(parts, _sequences(np, fields, large), strict=True)):
        steps, extended = x.shape[2], np.concatenate([before, x], axis=2)
        reach = np.zeros_like(extended)
        for k in range(taps):
            reach[:, :, k : k + steps] += large["weight"][:, k, None] * back[:, :, part]
            dw[:, k] += (extended[:, :, k : k + steps] * chain[:, :, part]).sum(axis=(0, 2))
        if finals is not None:
            reach[:, :, steps:] += (taps + 1) * u * (finals[index : index + 1] if "cu_seqlens" in arrays else finals)
        initial.append(reach[:, :, : taps - 1])
        dx.append(reach[:, :, taps - 1 :])
    return {
        "dx": _along_time(np, dx, arrays["x"]),
        "dw": dw,
        "db": db,
        "dinitial_states": np.concatenate(initial),
    }


def _plain(arrays: Arrays) -> dict[str, Any]:
    return {n: x if n == "cu_seqlens" else np.asarray(x, np.float64) for n, x in arrays.items()}


def _magnitudes(arrays: Arrays) -> dict[str, Any]:
    return {n: x if n == "cu_seqlens" else np.abs(x) for n, x in arrays.items()}


def _smallest(u: float) -> float:
    """The smallest normal number of a type with unit roundoff u: the absolute error of powers in a sigmoid."""
    return 2.0**-149 if u > 2.0**-50 else 2.0**-1074


causal_conv1d = Definition(errors=_forward_errors, values=_causal_conv1d)
causal_conv1d_backward = Definition(errors=_backward_errors)
causal_conv1d_update = Definition(errors=_update_errors, values=_causal_conv1d_update)
