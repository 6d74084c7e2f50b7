"""Invariant: on a GPU, kernels under load keep their bits, and a process its size."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from baracuda.cli.main import main


@pytest.mark.gpu
def test_kernels_under_load_keep_their_bits() -> None:
    options = ["softmax", "rope", "dense_gemm", "adamw", "--device", "cuda", "--runs", "200"]
    result = CliRunner().invoke(main, ["soak", *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
