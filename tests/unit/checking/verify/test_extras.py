"""Invariant: what needs an extra that is not installed says in one line which."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = """
import importlib.util, sys
from baracuda.cli.main import main

find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "{0}" else find_spec(name, *rest)
sys.modules["{0}"] = None
"""


@pytest.mark.parametrize(
    ("library", "code", "said"),
    [
        ("torch", "import baracuda.frontends.torch", "torch is not installed, which baracuda.frontends.torch needs"),
        ("jax", "import baracuda.frontends.jax", "jax is not installed, which baracuda.frontends.jax needs"),
        ("pytest", "main(['mutate'])", "pytest is not installed, which tests need"),
    ],
)
def test_the_extra_is_named(library: str, code: str, said: str) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT.format(library) + code], capture_output=True, text=True)
    extra = "test" if library == "pytest" else library
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(f"{said}; pip install 'baracuda-gen[{extra}]'")
    assert library != "pytest" or done.stderr.count("\n") == 1
