"""Philox4x32-10 with torch, and what ops of random numbers make of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Fields = Mapping[str, Any]
Tensors = Mapping[str, Any]

_LOW = 0xFFFFFFFF


def dropout(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    """`x` divided by 1 - p, or 0 where a uniform number is less than p."""
    x, p = tensors["x"], fields["p"]
    uniform = (_words(torch, tensors, _elements(torch, x.shape, x.device)) >> 8) * 2.0**-24
    return {"y": torch.where(uniform >= p, x / (1 - p), torch.zeros_like(x))}


def random_values(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    """Uniform or normal numbers, or zeros and ones."""
    element = _elements(torch, fields["input_shape"], tensors["seed"].device)
    if fields["kind"] == "normal":
        first, second = (_words(torch, tensors, element // 2 * 2 + place).double() for place in (0, 1))
        radius, angle = torch.sqrt(-2 * torch.log((first + 0.5) * 2.0**-32)), second * (2 * math.pi * 2.0**-32)
        return {"y": radius * torch.where(element % 2 == 0, torch.cos(angle), torch.sin(angle))}
    uniform = (_words(torch, tensors, element) >> 8).double() * 2.0**-24
    return {"y": uniform if fields["kind"] == "uniform" else (uniform < fields["p"]).double()}


def _elements(torch: Any, shape: tuple[int, ...], device: Any) -> Any:
    return torch.arange(math.prod(shape), device=device).reshape(tuple(shape))


def _words(torch: Any, tensors: Tensors, element: Any) -> Any:
    """The word of 32 bits of each element."""
    zero, offset, seed = torch.zeros_like(element), tensors["offset"], tensors["seed"]
    a, b, c, d = (element >> 2) & _LOW, element >> 34, zero + (offset & _LOW), zero + (offset >> 32 & _LOW)
    key, other = seed & _LOW, seed >> 32 & _LOW
    for _ in range(10):
        first, second = a * 0xD2511F53, c * 0xCD9E8D57  # modulo 2^64
        a, b = (second >> 32 & _LOW) ^ b ^ key, second & _LOW
        c, d = (first >> 32 & _LOW) ^ d ^ other, first & _LOW
        key, other = key + 0x9E3779B9 & _LOW, other + 0xBB67AE85 & _LOW
    return torch.stack((a, b, c, d)).gather(0, (element & 3)[None])[0]
