"""A small decoder, given the operations by which two of them may differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import baracuda.frontends.torch as bt

BYTES = 256  # the vocabulary


@dataclass(frozen=True)
class Size:
    """Heads of queries share those of keys and values."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    context: int
    taps: int = 4  # of the convolution


@dataclass(frozen=True)
class Ops:
    """What a block is made of besides products of matrices."""

    norm: Callable[..., Any]  # of a width
    conv: Callable[..., Any]  # of channels and taps
    attend: Callable[..., Any]


class CutConv1d(nn.Conv1d):
    """torch's convolution, without what its padding adds at the end, and SiLU of that."""

    def __init__(self, channels: int, taps: int, *, silu: bool) -> None:
        super().__init__(channels, channels, taps, groups=channels, padding=taps - 1)
        self.silu = silu

    def forward(self, x: Any) -> Any:
        y = super().forward(x)[..., : x.shape[-1]]
        return F.silu(y) if self.silu else y


OURS = Ops(bt.RMSNorm, bt.CausalConv1d, bt.scaled_dot_product_attention)
TORCHS = Ops(nn.RMSNorm, CutConv1d, F.scaled_dot_product_attention)


class Block(nn.Module):
    """A short convolution and attention, then two layers of neurons, each added to what comes in."""

    def __init__(self, size: Size, ops: Ops) -> None:
        super().__init__()
        each = size.width // size.heads
        self.attend, self.parts = ops.attend, (size.heads, size.kv_heads, size.kv_heads)
        self.before, self.between = ops.norm(size.width), ops.norm(size.width)
        self.conv = ops.conv(size.width, size.taps, silu=True)
        self.qkv = nn.Linear(size.width, sum(self.parts) * each, bias=False)
        self.out = nn.Linear(size.width, size.width, bias=False)
        self.wide, self.narrow = nn.Linear(size.width, 4 * size.width), nn.Linear(4 * size.width, size.width)

    def forward(self, x: Any) -> Any:
        x = x + self._attended(self.before(x))
        return x + self.narrow(F.gelu(self.wide(self.between(x))))

    def _attended(self, x: Any) -> Any:
        local = self.conv(x.transpose(1, 2)).transpose(1, 2)
        heads = self.qkv(local).unflatten(-1, (sum(self.parts), -1)).transpose(1, 2)
        q, k, v = heads.split(self.parts, dim=1)
        y = self.attend(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(y.transpose(1, 2).flatten(2))


class Decoder(nn.Module):
    """The scores of each byte that may come next, after each of a text's."""

    def __init__(self, size: Size, ops: Ops) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(BYTES, size.width), nn.Embedding(size.context, size.width)
        self.blocks = nn.Sequential(*(Block(size, ops) for _ in range(size.layers)))
        self.last, self.scores = ops.norm(size.width), nn.Linear(size.width, BYTES, bias=False)

    def forward(self, text: Any) -> Any:
        places = torch.arange(text.shape[1], device=text.device)
        return self.scores(self.last(self.blocks(self.bytes(text) + self.places(places))))
