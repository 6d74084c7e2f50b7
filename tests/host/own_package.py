"""A package of one's own, generated from the text of a spec."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from baracuda.codegen.emit.generate import generate
from baracuda.runtime import REGISTRY


def package(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package, whose kernels alone are registered; the spec is in the folder's `specs`."""
    (folder / "specs").mkdir()
    (folder / "specs" / "own.yaml").write_text(text)
    name = f"own_{len(sys.modules)}"
    generate(folder / "specs", folder / name)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(REGISTRY, "_table", type(REGISTRY._table)())
    return import_module(name)
