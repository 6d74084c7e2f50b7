"""Invariant: kernels and the runtime are the same with CUDA 12 and CUDA 13, whichever of them is installed.

The other one's compiler is put into an environment of its own: 76 MB, which pip keeps. Of kernels a sample is compiled,
and of tests that compile some run unless all are wanted; all of both are what `make test CUDA=13` and
`baracuda-gen check --all-archs` are for.
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
from repository import ROOT

from baracuda.checking.variables import SAMPLE
from baracuda.runtime.compile.cubin import nvrtc_version

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
    install(site, *wanted)
    (site / "others.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")  # looked at last
    return folder / "bin" / "python"


def install(site: Path, *wanted: str) -> None:
    """Put packages into a folder; skip where their index cannot be reached, and fail for whatever else is wrong."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "--retries", "1"]
    done = subprocess.run([*pip, "install", "--no-deps", "--target", site, *wanted], capture_output=True, text=True)
    if done.returncode:
        said = f"{', '.join(wanted)} cannot be had: {done.stderr.strip()}"
        pytest.skip(said.splitlines()[-1]) if "Retrying (" in done.stderr else pytest.fail(said)


@pytest.mark.parametrize(
    ("index", "wanted", "outcome"),
    [
        ("file:", ["thing>=2"], pytest.fail.Exception),
        ("file:", ["thing>=1", "thing<1"], pytest.fail.Exception),
        ("file:", ["thing2"], pytest.fail.Exception),
        ("http://127.0.0.1:9", ["thing"], pytest.skip.Exception),
    ],
)
def test_what_cannot_be_had_is_no_reason_to_skip(
    index: str, wanted: list[str], outcome: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But an index that cannot be reached is."""
    (tmp_path / "thing").mkdir()
    (tmp_path / "thing" / "index.html").write_text('<a href="thing-1-py3-none-any.whl">thing-1-py3-none-any.whl</a>')
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", tmp_path.as_uri() if index == "file:" else index)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(outcome, match="thing"):
        install(tmp_path / "site", *wanted)


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
    found: dict[str, Any] = json.loads(run(python, "tests/compile/runtime/compile/compiled_sample.py", "specs"))
    return found


def test_kernels_are_held_to_the_same_contracts(other: Path) -> None:
    """A sample of them compiles, without a violation, to the same spills, memory and widths."""
    ours, theirs = sample(sys.executable), sample(other)
    majors = [[int(version.partition(".")[0]) for version in found["cuda"]] for found in (ours, theirs)]
    assert majors == [[OURS, OURS], [OTHER, OTHER]]
    assert ours["violations"] == theirs["violations"] == []
    assert ours["kernels"] == theirs["kernels"] and len(ours["kernels"]) == 12
    assert not [name for name, told in ours["kernels"].items() if "error" in told]


@pytest.mark.parametrize(
    ("tests", "few"),
    [
        ("cubin_cache cuda_launch", "not sixteen_processes"),
        ("flash_sm90 flash_backward_sm90", "not makes_it_fast or bf16-128-128-512 or bf16-256-256-512"),
    ],
    ids=["cache and launches", "attention"],
)
def test_what_needs_no_gpu_is_the_same(other: Path, tests: str, few: str) -> None:
    """The cache, its keys and the launches; no spill and no product in series where registers are fewest."""
    files = [str(next(ROOT.glob(f"tests/**/test_{name}.py"))) for name in tests.split()]
    some = ["-k", few] if SAMPLE in os.environ else []
    printed = run(other, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *files, *some)
    assert re.search(r"^\d+ passed", printed.splitlines()[-1])
