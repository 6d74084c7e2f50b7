"""Invariant: kernels and the runtime are the same with CUDA 12 and CUDA 13, whichever of them is installed.

The other one's compiler is put into an environment of its own: 76 MB, which pip keeps. Of kernels a sample is compiled;
all of them, and all tests, are what `make test CUDA=13` and `baracuda-gen check --all-archs` are for.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import pytest

from baracuda.runtime.cubin import nvrtc_version

ROOT = Path(__file__).resolve().parents[1]
OURS = int(nvrtc_version().partition(".")[0])
OTHER = {12: 13, 13: 12}[OURS]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the other CUDA, and everything else from this environment."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [r for r in project["optional-dependencies"][f"cuda{OTHER}"] if not r.startswith("cupy")]
    folder = tmp_path_factory.mktemp(f"cuda{OTHER}")
    subprocess.check_call([sys.executable, "-m", "venv", "--without-pip", folder])
    (site,) = folder.glob("lib/python*/site-packages")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq", "--retries", "1"]
    done = subprocess.run([*pip, "install", "--no-deps", "--target", site, *wanted], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"CUDA {OTHER} cannot be had: {done.stderr.strip().splitlines()[-1]}")
    (site / "others.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")  # looked at last
    return folder / "bin" / "python"


def run(python: Path | str, *arguments: str) -> str:
    """Run a program on this repository's packages."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST", "COV"))}
    done = subprocess.run(
        [python, *arguments],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT / ".imports"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def sample(python: Path | str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(python, "tests/compiled_sample.py", "specs"))
    return found


def test_kernels_are_held_to_the_same_contracts(other: Path) -> None:
    """Of every op and element type one compiles, without a violation, to the same spills, memory and widths."""
    ours, theirs = sample(sys.executable), sample(other)
    majors = [[int(version.partition(".")[0]) for version in found["cuda"]] for found in (ours, theirs)]
    assert majors == [[OURS, OURS], [OTHER, OTHER]]
    assert ours["violations"] == theirs["violations"] == []
    assert ours["kernels"] == theirs["kernels"] and len(ours["kernels"]) > 50
    assert not [name for name, told in ours["kernels"].items() if "error" in told]


def test_compiling_caching_and_launching_work_the_same(other: Path) -> None:
    """The tests of the cache, its keys and the launches, which need no GPU, pass."""
    tests = ["tests/test_cubin_cache.py", "tests/test_cuda_launch.py"]
    printed = run(other, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests)
    assert re.search(r"^\d+ passed", printed.splitlines()[-1])
