"""Drop-in replacements for torch modules, with the same parameters and state."""

from __future__ import annotations

from typing import Any

import torch

from .functional import rms_norm


class RMSNorm(torch.nn.RMSNorm):
    """As torch.nn.RMSNorm."""

    def forward(self, x: Any) -> Any:
        """`x`, each row of its last axes divided by its root mean square."""
        return rms_norm(x, self.normalized_shape, self.weight, self.eps)


class CausalConv1d(torch.nn.Conv1d):
    """A causal depthwise convolution over ``(batch, channels, time)``, with an optional SiLU.

    It has the parameters of ``torch.nn.Conv1d(channels, channels, kernel_size, groups=channels)``, and gives what that
    gives with ``padding=kernel_size - 1`` and the last ``kernel_size - 1`` time steps cut off.
    """

    def __init__(
        self,
        channels: int,
        kernel_size: int,
        bias: bool = True,
        *,
        silu: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if not 2 <= kernel_size <= 8:
            raise ValueError(f"kernel_size is {kernel_size}; needs 2 to 8")
        shape = {"groups": channels, "padding": kernel_size - 1}
        super().__init__(channels, channels, kernel_size, bias=bias, device=device, dtype=dtype, **shape)
        self.silu = silu

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, silu={self.silu}"

    def forward(self, x: Any, initial_states: Any = None, cu_seqlens: Any = None) -> Any:
        """`x` filtered; sequences go on from `initial_states`, and `cu_seqlens` says where packed ones begin."""
        return self._filtered(x, initial_states, cu_seqlens, with_states=False)[0]

    def forward_with_states(self, x: Any, initial_states: Any = None, cu_seqlens: Any = None) -> tuple[Any, Any]:
        """As `forward`, plus the last values of each sequence, from which `step` or another call continues."""
        y, states = self._filtered(x, initial_states, cu_seqlens, with_states=True)
        return y, states

    def step(self, x: Any, states: Any) -> Any:
        """Continue sequences from `states`, which are updated in place; no gradients."""
        with torch.no_grad():
            return torch.ops.baracuda.causal_conv1d_update(x, self.weight[:, 0], self.bias, states, use_silu=self.silu)

    def _filtered(self, x: Any, initial_states: Any, cu_seqlens: Any, *, with_states: bool) -> Any:
        return torch.ops.baracuda.causal_conv1d(
            x,
            self.weight[:, 0],
            self.bias,
            initial_states,
            cu_seqlens,
            use_silu=self.silu,
            has_final_states=with_states,
        )
