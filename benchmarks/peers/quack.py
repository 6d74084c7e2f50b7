"""quack: RMSNorm in the CuTe DSL."""

from __future__ import annotations

from typing import Any

from ..case import Case
from . import Body, Call, Maker, Tensors


def peers() -> dict[str, Maker]:
    """RMSNorm, forward and backward."""
    from quack.rmsnorm import rmsnorm_bwd, rmsnorm_fwd

    def quack(case: Case) -> Body | None:
        eps = case.values.get("eps", 1e-6)

        def forward(tensors: Tensors) -> Call:
            x, gamma = tensors["x"], tensors.get("gamma")
            return lambda: {"y": _first(rmsnorm_fwd(x, gamma, eps=eps))}

        def backward(tensors: Tensors) -> Call:
            x, gamma, dy = tensors["x"], tensors.get("gamma"), tensors["dy"]
            rstd = tensors["rms"].float().reciprocal().flatten()
            return lambda: _named(rmsnorm_bwd(x, gamma, dy, rstd))

        return {"rms_norm": forward, "rms_norm_backward": backward}.get(case.op)

    return {"quack": quack}


def _first(output: Any) -> Any:
    return output[0] if isinstance(output, tuple | list) else output


def _named(outputs: Any) -> dict[str, Any]:
    return {name: tensor for name, tensor in zip(("dx", "dgamma"), outputs, strict=False) if tensor is not None}
