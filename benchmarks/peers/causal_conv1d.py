"""causal-conv1d: the convolution of Mamba in CUDA, called below its autograd."""

from __future__ import annotations

from ..case import Case
from . import Body, Call, Maker, Tensors


def peers() -> dict[str, Maker]:
    """The convolution, its gradients and its decoding step."""
    import causal_conv1d_cuda as kernels
    import torch

    def conv(case: Case) -> Body | None:
        fields = case.values
        silu = fields.get("use_silu", False)

        def forward(tensors: Tensors) -> Call:
            x, weight, bias, y = tensors["x"], tensors["weight"], tensors.get("bias"), torch.empty_like(tensors["x"])

            def call() -> dict[str, object]:
                kernels.causal_conv1d_fwd(x, weight, bias, None, None, y, None, silu)
                return {"y": y}

            return call

        def backward(tensors: Tensors) -> Call:
            x, weight, bias, dy = tensors["x"], tensors["weight"], tensors.get("bias"), tensors["dy"]
            dx, dw = torch.empty_like(x), torch.empty_like(weight, dtype=torch.float32)
            db = None if bias is None else torch.empty_like(bias, dtype=torch.float32)

            def call() -> dict[str, object]:
                dw.zero_()  # it adds to both, so that zeroing them is part of the work
                if db is not None:
                    db.zero_()
                kernels.causal_conv1d_bwd(x, weight, bias, dy, None, None, None, dx, dw, db, None, silu)
                return {"dx": dx, "dw": dw} | ({} if db is None else {"db": db})

            return call

        def update(tensors: Tensors) -> Call:
            x, state, y = tensors["x"], tensors["conv_state"], torch.empty_like(tensors["x"])
            weight, bias = tensors["weight"], tensors.get("bias")

            def call() -> dict[str, object]:
                kernels.causal_conv1d_update(x, state, weight, bias, y, silu, None, None)
                return {"y": y, "conv_state": state}

            return call

        bodies: dict[str, Body] = {
            "causal_conv1d": forward,
            "causal_conv1d_backward": backward,
            "causal_conv1d_update": update,
        }
        return bodies.get(case.op)

    return {"causal-conv1d": conv}
