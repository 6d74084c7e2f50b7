"""Invariant: the serving example says which kernels keep a text's scores, and how fast each serves."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from repository import ROOT

torch = pytest.importorskip("torch")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example's script, imported as Python imports what a script stands beside."""
    monkeypatch.syspath_prepend(ROOT / "examples" / "serving")
    for name in ("model", "serve"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield pytest.importorskip("serve")
    for name in ("model", "serve"):
        sys.modules.pop(name, None)


def test_a_text_has_the_same_scores_in_a_batch(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    example.main(["--device", "cpu", "--batches", "1", "3", "--prompt", "9", "--new", "3", "--repeats", "1"])
    told = capsys.readouterr().out
    assert "baracuda: 0 of 3 texts have other scores in a batch" in told
    assert "batch   3  torch " in told and "batch   1  baracuda " in told
