"""The same functions after torch.compile."""

from __future__ import annotations

from ..case import Case
from . import Body, Maker


def peers() -> dict[str, Maker]:
    """Each op that torch has functions for; compiled for the case's shapes alone."""
    import torch

    from ._torch_ops import body_of

    def compiled(case: Case) -> Body | None:
        torch._dynamo.reset()
        return body_of(case, lambda function: torch.compile(function, dynamic=False))

    return {"torch.compile": compiled}
