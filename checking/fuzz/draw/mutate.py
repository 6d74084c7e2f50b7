"""Random changes to data that JSON can hold, to text and to bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random
from typing import Any

_BYTES = (
    b"\0", b"\t", b"\r", b"\n", b"\xef\xbb\xbf", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xc2\x85", b"\xe2\x80\xa8",
    b": ", b"- ", b"#", b"&a ", b"*a", b"<<: *a\n", b"!!str ", b"!!python/name:os.system ", b"%YAML 1.1\n", b"---\n",
    b"...\n", b"? ", b"|\n", b">-\n", b"'", b'"', b"[" * 40, b"{" * 40, b"{{", b"}}", b"\\", b'"""', b"*/", b"`", b"@",
    b"a: " * 50, b"9" * 400, b"-" * 70, b"a: 1\n" * 40,
)  # fmt: skip
Slot = tuple[Any, Any]  # a dict or list, and a key or index of it


def slots(data: Any) -> Iterator[Slot]:
    """Every value of `data`, by what holds it."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, inner in items:
        yield data, key
        yield from slots(inner)


def change(data: Any, rng: Random, value: Callable[[Random, Any], Any]) -> None:
    """Replace, remove, swap, double or move some values of `data`, in place."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = list(slots(data))
        if not places:
            return
        holder, key = rng.choice(places)
        match rng.randrange(7):
            case 0 | 1 | 2:
                holder[key] = value(rng, holder[key])
            case 3:
                del holder[key]
            case 4:
                other, at = rng.choice(places)
                holder[key], other[at] = deepcopy(other[at]), deepcopy(holder[key])
            case 5:
                _repeat(holder, key, rng, value)
            case 6:
                other, at = rng.choice(places)
                holder[key] = deepcopy(other[at])


def _repeat(holder: Any, key: Any, rng: Random, value: Callable[[Random, Any], Any]) -> None:
    if isinstance(holder, list):
        holder[key:key] = [deepcopy(holder[key]) for _ in range(rng.choice((1, 1, 300)))]
    else:
        new = value(rng, key)
        holder[new if isinstance(new, str) else f"{key}_"] = deepcopy(holder[key])


def garble(data: bytes, rng: Random) -> bytes:
    """`data` with some bytes changed, removed, repeated or put in."""
    garbled = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 8, 30))):
        at = rng.randrange(len(garbled) + 1)
        end = min(len(garbled), at + int(2 ** rng.uniform(0, 8)))
        match rng.randrange(7):
            case 0:
                garbled[at : at + 1] = bytes([rng.randrange(256)])
            case 1 | 2:
                garbled[at:at] = rng.choice(_BYTES)
            case 3:
                del garbled[at:end]
            case 4:
                garbled[at:at] = garbled[at:end]
            case 5:
                other = rng.randrange(len(garbled) + 1)
                garbled[other:other] = garbled[at:end]
            case 6 if rng.random() < 0.2:
                del garbled[at:]
    return bytes(garbled)


def as_yaml(data: Any, rng: Random) -> bytes:
    """`data` as flow style, a key on each line."""
    text = json.dumps(data, indent=rng.choice((None, 1, 2)), ensure_ascii=rng.random() < 0.5, default=str)
    return text.encode("utf-8", "surrogatepass")
