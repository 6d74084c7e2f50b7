"""Unit tests compile nothing: what needs a C++ compiler belongs to tests/host, what needs NVRTC to tests/compile."""

from __future__ import annotations

from typing import NoReturn

import pytest

from baracuda.runtime.compile import cubin
from baracuda.runtime.host import toolchain


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        pytest.fail("a unit test compiles nothing; its place is tests/host or tests/compile")

    monkeypatch.setattr(toolchain, "_run", refuse)
    monkeypatch.setattr(cubin, "_nvrtc_size", refuse)
