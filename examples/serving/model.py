"""A Llama of torch's own modules, which reads texts in parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

_BASE = 500_000.0  # of the angles by which places turn


@dataclass(frozen=True)
class Size:
    """Heads of queries share those of keys and values."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    neurons: int
    words: int

    @property
    def each(self) -> int:
        """The width of a head."""
        return self.width // self.heads


class Cache:
    """Keys and values of what has been read, of one layer."""

    def __init__(self, size: Size, batch: int, length: int, like: Any) -> None:
        shape = batch, size.kv_heads, length, size.each
        self.keys, self.values = (torch.empty(shape, dtype=like.dtype, device=like.device) for _ in "kv")

    def extended(self, begin: int, k: Any, v: Any) -> tuple[Any, Any]:
        """All so far, `k` and `v` from `begin` on."""
        end = begin + k.shape[2]
        self.keys[:, :, begin:end], self.values[:, :, begin:end] = k, v
        return self.keys[:, :, :end], self.values[:, :, :end]


class Layer(nn.Module):
    """Attention, then gated neurons, each added to what comes in."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.parts = size.heads, size.kv_heads, size.kv_heads
        self.first, self.second = nn.RMSNorm(size.width, 1e-5), nn.RMSNorm(size.width, 1e-5)
        self.qkv = nn.Linear(size.width, sum(self.parts) * size.each, bias=False)
        self.out = nn.Linear(size.width, size.width, bias=False)
        self.wide = nn.Linear(size.width, 2 * size.neurons, bias=False)
        self.narrow = nn.Linear(size.neurons, size.width, bias=False)

    def forward(self, x: Any, turn: Any, cache: Cache, begin: int) -> Any:
        heads = self.qkv(self.first(x)).unflatten(-1, (sum(self.parts), -1)).transpose(1, 2)
        q, k, v = heads.split(self.parts, dim=1)
        k, v = cache.extended(begin, turned(k, turn), v)
        # One word sees all before it; the first part of a text has the usual mask, and there are no other parts here.
        y = F.scaled_dot_product_attention(turned(q, turn), k, v, is_causal=q.shape[2] > 1, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        gate, up = self.wide(self.second(x)).chunk(2, -1)
        return x + self.narrow(F.silu(gate) * up)


class Llama(nn.Module):
    """The scores of each word that may come next, after the last one of each text."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size, self.words = size, nn.Embedding(size.words, size.width)
        self.layers = nn.ModuleList([Layer(size) for _ in range(size.layers)])
        self.last, self.scores = nn.RMSNorm(size.width, 1e-5), nn.Linear(size.width, size.words, bias=False)

    def forward(self, words: Any, caches: list[Cache], begin: int) -> Any:
        x = self.words(words)
        turn = turns(self.size.each, begin, words.shape[1], x)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, turn, cache, begin)
        return self.scores(self.last(x[:, -1]))


def turns(each: int, begin: int, count: int, like: Any) -> tuple[Any, Any]:
    """Cosines and sines of the angles of `count` places from `begin` on."""
    rates = _BASE ** (-torch.arange(0, each, 2, device=like.device) / each)
    angles = torch.arange(begin, begin + count, device=like.device)[:, None] * rates
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def turned(x: Any, turn: tuple[Any, Any]) -> Any:
    """Heads, each pair of numbers of which is turned by the angle of its place."""
    (cosines, sines), (a, b) = turn, x.chunk(2, -1)
    return torch.cat((a * cosines - b * sines, b * cosines + a * sines), -1)
