"""Invariant: a model of the generated ops trains as one of torch's own does."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT

torch = pytest.importorskip("torch")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example's script, imported as Python imports what a script stands beside."""
    monkeypatch.syspath_prepend(ROOT / "examples" / "transformer")
    for name in ("model", "train"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    found = pytest.importorskip("train")
    small = replace(found.SETTINGS["cpu"], size=found.Size(layers=1, width=32, heads=4, kv_heads=2, context=16))
    monkeypatch.setitem(found.SETTINGS, "cpu", small)
    return found


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("halves", [False, True])
def test_losses_are_torchs(example: Any, halves: bool, device: str) -> None:
    setting = replace(example.SETTINGS["cpu"], dtype=torch.bfloat16 if halves else torch.float32)
    ours, theirs = (example.train(setting, ops, 8, device) for ops in (example.OURS, example.TORCHS))
    assert example.distance(ours, theirs) < (2e-2 if halves else 1e-4)
    assert ours.losses[-1] < ours.losses[0]


def test_weights_fit_either_model(example: Any) -> None:
    size = example.SETTINGS["cpu"].size
    ours, theirs = (example.Decoder(size, ops) for ops in (example.OURS, example.TORCHS))
    ours.load_state_dict(theirs.state_dict())


def test_the_script_reports_losses_and_speeds(
    example: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    example.main(["--device", "cpu", "--steps", "2", "--plot", str(tmp_path / "losses.svg")])
    told = capsys.readouterr().out
    for expected in ("largest difference to torch, ours: ", "tokens/s, ours: ", "tokens/s, torch: "):
        assert expected in told
    assert "<svg" in (tmp_path / "losses.svg").read_text()
