"""torch as it is called without a compiler."""

from __future__ import annotations

from . import Maker


def peers() -> dict[str, Maker]:
    """Each op that torch has functions for."""
    from ._torch_ops import body_of

    return {"torch": body_of}
