"""Forward ops by functions of NumPy, SciPy and others: second opinions, independent of the specs' references.

A spec names the function under `tests.definition`. An adapter takes a descriptor's fields and the present inputs, in
the caller's shapes and float64, and returns outputs by name; an array of a narrower type is rounded to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from math import e, log, pi, prod, sqrt
from typing import Any

import numpy as np

from baracuda.runtime import SpecError
from baracuda.runtime.values import short_repr

from . import elementwise
from .experts import EXPERTS
from .products import PRODUCTS
from .reduction import INT_REDUCTION, reduced
from .segments import SEGMENTS

Fields = Mapping[str, Any]
Arrays = Mapping[str, Any]
Adapter = Callable[[Fields, Arrays], dict[str, Any]]
_MOST_E4M3 = 448.0  # the largest number of the type


def adapter(name: str) -> Adapter:
    """The adapter of a function that a spec names; SpecError if there is none."""
    if name not in _ADAPTERS:
        known = ", ".join(sorted(_ADAPTERS))
        raise SpecError(f"tests.definition is {short_repr(name)}, for which there is no adapter; known are {known}")
    return _ADAPTERS[name]


def _softmax(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    from scipy.special import softmax

    return {"y": softmax(arrays["x"], axis=fields["softmax_axis"])}


def _log_softmax(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    from scipy.special import log_softmax

    return {"y": log_softmax(arrays["x"], axis=fields["softmax_axis"])}


def _norm(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    x, axes, shape = _normalized(fields, arrays)
    flat = x.reshape(-1, np.prod(shape, dtype=int))
    mean_square = np.linalg.norm(flat, axis=1) ** 2 / flat.shape[1]
    rms = np.sqrt(mean_square + fields["eps"]).reshape([1 if axis in axes else n for axis, n in enumerate(x.shape)])
    return {"y": x / rms * np.reshape(arrays.get("gamma", np.ones(shape)), shape), "rms": rms}


def _var(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    x, axes, shape = _normalized(fields, arrays)
    mean, deviation = x.mean(axes, keepdims=True), np.sqrt(np.var(x, axes, keepdims=True) + fields["eps"])
    gamma, beta = arrays.get("gamma", np.ones(shape)), arrays.get("beta", np.zeros(shape))
    y = (x - mean) / deviation * np.reshape(gamma, shape) + np.reshape(beta, shape)
    return {"y": y, "mu": mean, "rstd": 1 / deviation}


def _group_norm(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    x, count = arrays["x"], fields["groups"] * fields["width"]
    parts = x.reshape(x.shape[0], fields["groups"], -1)
    mu, rstd = parts.mean(-1), 1 / np.sqrt(np.var(parts, -1) + fields["eps"])
    gamma, beta = arrays.get("gamma", np.ones(count)), arrays.get("beta", np.zeros(count))
    y = ((parts - mu[..., None]) * rstd[..., None]).reshape(x.shape[0], count, -1)
    return {"y": (y * gamma[:, None] + beta[:, None]).reshape(x.shape), "mu": mu, "rstd": rstd}


def _batch_norm(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    channels = np.moveaxis(arrays["x"], 1, -1)
    flat = channels.reshape(-1, channels.shape[-1])
    mu, rstd = flat.mean(0), 1 / np.sqrt(np.var(flat, 0) + fields["eps"])
    y = (channels - mu) * (rstd * arrays["gamma"]) + arrays["beta"]
    with np.errstate(all="ignore"):  # of one element
        sample, momentum = np.var(flat, 0) * len(flat) / np.float64(len(flat) - 1), fields["momentum"]
    new_mean = arrays["running_mean"] + momentum * (mu - arrays["running_mean"])
    new_var = arrays["running_var"] + momentum * (sample - arrays["running_var"])
    return {"y": np.moveaxis(y, -1, 1), "mu": mu, "rstd": rstd, "new_mean": new_mean, "new_var": new_var}


def _var_along(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    x = arrays["x"]
    axes = tuple(axis for axis in range(x.ndim) if fields["axes_mask"] >> axis & 1)
    count = float(np.prod([x.shape[axis] for axis in axes]))
    with np.errstate(all="ignore"):  # of no more elements than are taken off
        return {"y": np.var(x, axes) * count / np.float64(max(count - fields["correction"], 0)), "mu": np.mean(x, axes)}


def _loss_along(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    losses = elementwise.by_kind(elementwise.TABLES["loss"])(fields, arrays)["y"]
    axes = tuple(axis for axis in range(losses.ndim) if fields["axes_mask"] >> axis & 1)
    return {"y": losses.mean(axes) if fields["average"] else losses.sum(axes)}


def _normalized(fields: Fields, arrays: Arrays) -> tuple[Any, tuple[int, ...], list[int]]:
    """The input, the axes that bits of the mask name, and their extents."""
    x = arrays["x"]
    axes = tuple(axis for axis in range(x.ndim) if fields["norm_axes_mask"] & (1 << axis))
    return x, axes, [x.shape[axis] for axis in axes]


def _subtract_outer(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    ahead = np.subtract.outer(np.arange(fields["key_len"]), np.arange(fields["query_len"])).T
    return {"y": arrays["scores"] + np.multiply.outer(arrays["slopes"], ahead)}


def _tile(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    return {"y": np.tile(arrays["x"], fields["repeats"])}


def _float8(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    from ml_dtypes import float8_e4m3fn

    largest = np.abs(arrays["x"]).max(fields["quantize_axis"], keepdims=True)
    smallest = float(np.finfo(np.float32).smallest_normal)
    scale = np.where(largest > 0, np.maximum(largest / _MOST_E4M3, smallest), 1.0)
    return {"q": (arrays["x"] / scale).astype(float8_e4m3fn), "scale": scale}


def _int8(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    largest = np.abs(arrays["x"]).max(fields["quantize_axis"], keepdims=True)
    scale = np.where(largest > 0, np.maximum(largest / 127, float(np.finfo(np.float32).smallest_normal)), 1.0)
    return {"q": np.rint(arrays["x"] / scale).astype(np.int8), "scale": scale}


def _einsum(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    """Attention one query at a time, over the keys that it sees."""
    from scipy.special import logsumexp, softmax

    q, queries, keys = arrays["q"], fields["query_len"], fields["key_len"]
    group = fields["num_heads"] // max(1, fields["num_kv_heads"])
    k, v = np.repeat(arrays["k"], group, axis=1), np.repeat(arrays["v"], group, axis=1)
    attn, y = np.zeros((*q.shape[:3], keys)), np.zeros((*q.shape[:3], fields["d_v"]))
    lse = np.full(q.shape[:3], -np.inf)
    for i in range(queries):
        at = i + (keys - queries if fields["bottom_right"] else 0)
        seen = [j for j in range(keys) if _sees(fields, at, j)]
        scores = fields["scale"] * np.einsum("bhd,bhjd->bhj", q[:, :, i], k[:, :, seen])
        if cap := fields.get("softcap", 0.0):
            scores = cap * np.tanh(scores / cap)
        if "alibi_slopes" in arrays:
            slopes = np.reshape(arrays["alibi_slopes"], (-1, fields["num_heads"], 1))
            scores = scores - slopes * np.abs(at - np.asarray(seen, float))
        if "mask" in arrays:
            scores = scores + arrays["mask"][:, :, i, seen]
        if seen:
            lse[:, :, i] = logsumexp(scores, axis=-1)
            some = np.isfinite(lse[:, :, i])[..., None]
            weights = np.where(some, softmax(np.where(some, scores, 0.0), axis=-1), 0.0)
            attn[:, :, i, seen] = weights
            y[:, :, i] = np.einsum("bhj,bhjd->bhd", weights, v[:, :, seen])
    return {"attn": attn, "y": y, "lse": lse}


def _sees(fields: Fields, at: int, key: int) -> bool:
    """Whether a query at place `at` among the keys sees a key."""
    left, right = fields.get("window_left", -1), fields.get("window_right", -1)
    later = fields["is_causal"] and key > at
    return not later and (left < 0 or key >= at - left) and (right < 0 or key <= at + right)


def _lfilter(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    from scipy.signal import lfilter

    x, weight, before = arrays["x"], arrays["weight"], fields["width"] - 1
    count, channels = fields["num_sequences"], fields["channels"]
    states = arrays.get("initial_states", np.zeros((count, channels, before)))
    if "cu_seqlens" in arrays:
        ends = arrays["cu_seqlens"]
        sequences = [x[0, :, start:end] for start, end in pairwise(ends)]
    else:
        sequences = list(x)
    y, final = [], np.zeros_like(states)
    for number, sequence in enumerate(sequences):
        full = np.concatenate([states[number], sequence], axis=1)
        pre = [lfilter(taps[::-1], [1.0], channel)[before:] for taps, channel in zip(weight, full, strict=True)]
        y.append(_activated(fields, arrays, np.reshape(pre, sequence.shape)))
        final[number] = full[:, full.shape[1] - before :]
    joined = np.concatenate(y, axis=1)[None] if "cu_seqlens" in arrays and y else np.reshape(y, x.shape)
    return {"y": joined, "final_states": final}


def _expit(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    from scipy.special import expit

    return {"y": arrays["gate"] * expit(arrays["gate"]) * arrays["up"]}


def _ndtr(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    from scipy.special import ndtr

    return {"y": arrays["gate"] * ndtr(arrays["gate"]) * arrays["up"]}


def _random(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    shape, kind, p = fields["input_shape"], fields.get("kind", "dropout"), fields["p"]
    words = [_philox4x32(int(arrays["seed"]), int(arrays["offset"]), element) for element in range(prod(shape) + 1)]
    uniform = np.reshape([(word >> 8) * 2.0**-24 for word in words[:-1]], shape)
    if kind == "dropout":
        return {"y": np.where(uniform >= p, arrays["x"] / (1 - p), 0.0)}
    if kind == "normal":
        pairs = [words[i // 2 * 2 : i // 2 * 2 + 2] for i in range(prod(shape))]
        numbers = [sqrt(-2 * log((a + 0.5) / 2**32)) * e ** (2j * pi * b / 2**32) for a, b in pairs]
        return {"y": np.reshape([(z.real, z.imag)[i % 2] for i, z in enumerate(numbers)], shape)}
    return {"y": uniform if kind == "uniform" else (uniform < p) * 1.0}


def _philox4x32(seed: int, offset: int, element: int) -> int:
    """One word of Random123's philox4x32_R(10, counter, key), in Python's integers."""
    half = 2**32
    key = [seed % half, (seed >> 32) % half]
    counter = [element // 4 % half, element // 4 >> 32, offset % half, (offset >> 32) % half]
    for _ in range(10):
        high, low = zip(divmod(0xD2511F53 * counter[0], half), divmod(0xCD9E8D57 * counter[2], half), strict=True)
        counter = [high[1] ^ counter[1] ^ key[0], low[1], high[0] ^ counter[3] ^ key[1], low[0]]
        key = [(key[0] + 0x9E3779B9) % half, (key[1] + 0xBB67AE85) % half]
    return counter[element % 4]


def _convolve(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    full, before = np.concatenate([arrays["conv_state"], arrays["x"]], axis=2), fields["width"] - 1
    recent = full[:, :, fields["state_len"] - before :]
    y = np.empty_like(arrays["x"])
    for sample, channel in np.ndindex(y.shape[:2]) if y.size else ():
        y[sample, channel] = np.convolve(recent[sample, channel], arrays["weight"][channel][::-1], "valid")
    y = np.stack([_activated(fields, arrays, sample) for sample in y]) if y.size else y
    return {"y": y, "new_state": full[:, :, fields["seq_len"] :]}


def _activated(fields: Fields, arrays: Arrays, pre: Any) -> Any:
    """Of one sequence, with the bias of each channel and perhaps the SiLU."""
    from scipy.special import expit

    biased = pre + np.reshape(arrays.get("bias", 0.0), (-1, 1))
    return biased * expit(biased) if fields["use_silu"] else biased


def _powers(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    """AdamW as its paper's algorithm 2 has it, with the powers of both betas."""
    p = "w" if "w" in arrays else "p"
    betas, step, g = np.array([fields["beta1"], fields["beta2"]]), arrays["step"], arrays["g"]
    m, v = betas[0] * arrays["m"] + (1 - betas[0]) * g, betas[1] * arrays["v"] + (1 - betas[1]) * np.square(g)
    m_hat, v_hat = np.array([m, v]) / (1 - np.power(betas, np.float64(step)))[:, None]
    rate = arrays["lr"] * (m_hat / (np.sqrt(v_hat) + fields["eps"]))
    new = arrays[p] - rate - arrays["lr"] * fields["weight_decay"] * arrays[p]
    return {f"{p}_new": new, "m_new": m, "v_new": v} | ({"p": new} if p == "w" else {})


def _sign(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    betas, steps = [fields["beta1"], fields["beta2"]], np.stack([arrays["m"], arrays["g"]])
    way, m = (np.average(steps, axis=0, weights=[beta, 1 - beta]) for beta in betas)
    return {"p_new": arrays["p"] - arrays["lr"] * (np.sign(way) + fields["weight_decay"] * arrays["p"]), "m_new": m}


def _momentum(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    d = np.dot([1.0, fields["weight_decay"]], np.stack([arrays["g"], arrays["p"]]))
    m = np.dot([fields["momentum"], 1 - fields["dampening"]], np.stack([arrays["m"], d]))
    way = np.dot([1.0, fields["momentum"]], np.stack([d, m])) if fields["nesterov"] else m
    return {"p_new": arrays["p"] - arrays["lr"] * way, "m_new": m}


def _average(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    both, decay = np.stack([arrays["average"], arrays["x"]]), float(arrays["decay"])
    return {"average_new": np.average(both, axis=0, weights=[decay, 1 - decay])}


def _mean(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    x = arrays["x"]
    axes = tuple(axis for axis in range(x.ndim) if fields["axes_mask"] >> axis & 1)
    count = prod(x.shape[axis] for axis in axes)
    with np.errstate(all="ignore"):  # of no elements
        return {"total": np.sum(x, axes, keepdims=True), "average": np.sum(x, axes, keepdims=True) / np.float64(count)}


def _clipped(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    norm = np.linalg.norm(arrays["g"])
    return {"g_new": arrays["g"] * np.clip(fields["limit"] / (norm + fields["eps"]), None, 1), "norm": norm}


def _pad(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    """By NumPy where it adds, by slices where it takes away."""
    widths = ((fields["top"], fields["bottom"]), (fields["left"], fields["right"]))
    added = [(0, 0), *((max(0, before), max(0, after)) for before, after in widths)]
    y = np.pad(arrays["x"], added, constant_values=fields["value"])
    taken = [slice(max(0, -before), n - max(0, -after)) for (before, after), n in zip(widths, y.shape[1:], strict=True)]
    return {"y": y[:, taken[0], taken[1]]}


def _concatenate(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    return {"y": np.concatenate([arrays["a"], arrays["b"]], axis=1)}


def _take(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    ids, table = arrays["ids"].astype(np.int64), np.pad(arrays["table"], ((0, 1), (0, 0)))
    return {"y": np.take(table, np.where((ids >= 0) & (ids < fields["vocab_size"]), ids, -1), axis=0)}


def _complex(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    """Each half with cosines and sines of its own, which need be of no angle."""
    x, half = arrays["x"], fields["head_dim"] // 2
    order = np.arange(2 * half).reshape((half, 2) if fields["kind"] == "neighbours" else (2, half)).reshape(-1)
    if fields["kind"] == "neighbours":
        order = np.concatenate([order[0::2], order[1::2]])
    first, second = (x[..., order[part]] for part in (slice(half), slice(half, None)))
    y = np.empty_like(x)
    for part, real, imag in ((slice(half), first, second), (slice(half, None), second, -first)):
        cosines, sines = (arrays[name][:, None, order[part]] for name in ("cosines", "sines"))
        with np.errstate(invalid="ignore"):  # of imaginary parts
            y[..., order[part]] = (_complex_of(real, imag) * _complex_of(cosines, sines)).real
    return {"y": y}


def _complex_of(real: Any, imag: Any) -> Any:
    """Of any parts: infinity times 1j has a real part that is NaN."""
    numbers = np.empty(real.shape, np.complex128)
    numbers.real, numbers.imag = real, imag
    return numbers


def _pad_reflected(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    widths = (0, 0), (fields["top"], fields["bottom"]), (fields["left"], fields["right"])
    return {"y": np.pad(arrays["x"], widths, mode="reflect") if arrays["x"].size else np.pad(arrays["x"], widths)}


def _windows(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    kernel, stride, pad = fields["kernel"], fields["stride"], fields["pad"]
    padded = np.pad(arrays["x"], ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(2, 3))
    return {"y": windows[:, :, ::stride, ::stride].mean((-2, -1))}


def _max_windows(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    """By masked windows, element by element."""
    stride, pad, dilation = (fields[name] for name in ("stride", "pad", "dilation"))
    x, span = arrays["x"], dilation * (fields["kernel"] - 1) + 1
    counted = [range(-pad, n + pad - span + 1, stride) for n in x.shape[2:]]
    y = np.empty((*x.shape[:2], *map(len, counted)), x.dtype)
    indices = np.empty(y.shape, np.int64)
    places = np.arange(x.shape[2] * x.shape[3]).reshape(x.shape[2:])
    for i, j in np.ndindex(y.shape[2:]):
        first = counted[0][i], counted[1][j]
        rows, columns = (slice(a % dilation if a < 0 else a, a + span, dilation) for a in first)
        taken = np.broadcast_to(places[rows, columns].reshape(-1), (*x.shape[:2], places[rows, columns].size))
        window = x[:, :, rows, columns].reshape(taken.shape)
        at = np.argmax(window, -1)[..., None]
        y[..., i, j] = np.take_along_axis(window, at, -1)[..., 0]
        indices[..., i, j] = np.take_along_axis(taken, at, -1)[..., 0]
    return {"y": y, "indices": indices}


def _logaddexp(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    axis = fields["class_axis"]
    logits, target = np.moveaxis(arrays["logits"], axis, -1), np.moveaxis(arrays["target"], axis, -1)[..., 0]
    lse, count = np.logaddexp.reduce(logits, axis=-1, initial=-np.inf), logits.shape[-1]
    loss, slopes, slope = np.zeros(lse.shape), np.zeros(logits.shape), arrays.get("dloss")
    for place in np.ndindex(lse.shape):
        right = int(target[place])
        if right == fields["ignore_index"] or not 0 <= right < count:
            continue
        surprise = lse[place] - logits[place]
        even = fields["smoothing"] * surprise.mean() if fields["smoothing"] else 0.0
        loss[place] = (1 - fields["smoothing"]) * surprise[right] + even + fields["z_weight"] * lse[place] ** 2
        slopes[place] = np.exp(-surprise) * (1 + 2 * fields["z_weight"] * lse[place]) - fields["smoothing"] / count
        slopes[place][right] -= 1 - fields["smoothing"]
    slopes = np.moveaxis(slopes, -1, axis) * (1 if slope is None else slope)
    return {"loss": np.expand_dims(loss, axis), "lse": np.expand_dims(lse, axis), "dlogits": slopes}


def _linear_logaddexp(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    given = {"logits": np.inner(arrays["x"], arrays["w"]), "target": arrays["target"][:, None]}
    of = _logaddexp({**fields, "class_axis": -1}, given)
    return {name: of[name][:, 0] for name in ("loss", "lse")}


_ADAPTERS: dict[str, Adapter] = {
    **EXPERTS,
    **PRODUCTS,
    **SEGMENTS,
    "numpy.reduce_axes": lambda fields, arrays: {"y": reduced(fields, arrays["x"])},
    "numpy.reduce_axes_complex": lambda fields, arrays: {"y": reduced(fields, arrays["x"])},
    "numpy.reduce_axes_modulus": lambda fields, arrays: {"y": reduced(fields, arrays["x"])},
    "numpy.reduce_axes_int": lambda fields, arrays: {"y": reduced(fields, arrays["x"], INT_REDUCTION)},
    "numpy.reduce_axes_bool": lambda fields, arrays: {"y": reduced(fields, arrays["x"])},
    "numpy.reduce_axes_arg": lambda fields, arrays: {"at": reduced(fields, arrays["x"])},
    **{f"numpy.{name}": elementwise.by_kind(table) for name, table in elementwise.TABLES.items()},
    "Random123.philox4x32": _random,
    "ml_dtypes.float8_e4m3fn": _float8,
    "numpy.average": _average,
    "numpy.batch_norm": _batch_norm,
    "numpy.clip": _clipped,
    "numpy.complex128": _complex,
    "numpy.concatenate": _concatenate,
    "numpy.convolve": _convolve,
    "numpy.dot": _momentum,
    "numpy.einsum": _einsum,
    "numpy.group_norm": _group_norm,
    "numpy.lib.stride_tricks.sliding_window_view": _windows,
    "numpy.linalg.norm": _norm,
    "numpy.logaddexp.reduce": _logaddexp,
    "numpy.logaddexp.reduce_products": _linear_logaddexp,
    "numpy.max_windows": _max_windows,
    "numpy.mean": _mean,
    "numpy.pad": _pad,
    "numpy.pad_reflected": _pad_reflected,
    "numpy.power": _powers,
    "numpy.rint": _int8,
    "numpy.sign": _sign,
    "numpy.subtract.outer": _subtract_outer,
    "numpy.take": _take,
    "numpy.loss_along": _loss_along,
    "numpy.tile": _tile,
    "numpy.var": _var,
    "numpy.var_along": _var_along,
    "numpy.where": lambda fields, arrays: {"y": np.where(arrays["condition"], arrays["a"], arrays["b"])},
    "scipy.signal.lfilter": _lfilter,
    "scipy.special.expit": _expit,
    "scipy.special.log_softmax": _log_softmax,
    "scipy.special.ndtr": _ndtr,
    "scipy.special.softmax": _softmax,
}
