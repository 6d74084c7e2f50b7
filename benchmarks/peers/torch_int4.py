"""torch's product with weights of four bits, which it wants packed in its own order: that is done before the clock."""

from __future__ import annotations

from typing import Any

from ..case import Case
from . import Body, Call, Maker, Tensors

_TILES = 8  # of 16 weights along the depth that a thread's pack has
_GROUPS = (32, 64, 128, 256)


def peers() -> dict[str, Maker]:
    """`int4_linear` of bf16."""
    import torch

    def packed(case: Case) -> Body | None:
        fields = case.values
        depth, columns, each = fields["in_features"], fields["out_features"], fields.get("group_size", 128)
        is_whole = depth % max(each, 16 * _TILES) == 0 and columns % 16 == 0 and each in _GROUPS
        if case.element.value != "bf16" or not is_whole:
            return None

        def prepared(t: Tensors) -> Call:
            """Weights are `(code - 8) * scale + zero`."""
            codes = (t["codes"][..., None] >> torch.arange(0, 32, 4, device=t["codes"].device) & 15).flatten(1).int()
            zeros = (8 - t["zero"]) * t["scale"]
            scales = torch.stack((t["scale"], zeros), 2).transpose(0, 1).contiguous()
            if codes.is_cuda:
                halves = (codes[:, ::2] << 4 | codes[:, 1::2]).to(torch.uint8)
                weights, multiply = torch._convert_weight_to_int4pack(halves, _TILES), torch._weight_int4pack_mm
            else:
                weights = torch._convert_weight_to_int4pack_for_cpu(codes, _TILES)
                multiply = torch._weight_int4pack_mm_for_cpu

            def call() -> dict[str, Any]:
                return {"y": multiply(t["x"], weights, each, scales)}

            return call

        return prepared

    return {"torch-int4": lambda case: packed(case) if case.op == "int4_linear" else None}
