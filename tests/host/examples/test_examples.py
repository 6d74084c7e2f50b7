"""Invariant: each example does what it says, from a copy that knows nothing of where it was."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
from repository import ROOT

from baracuda.checking.variables import SAMPLE

EXAMPLES = ROOT / "examples"
COMMAND = "from baracuda.cli.main import main; main()"
BUILD = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"


def python(*arguments: str, folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """What Python prints when it runs in `folder`, where it finds what this process does."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(environment or {})},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("where", ["host", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_scripts_run(script: Path, where: str, tmp_path: Path) -> None:
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if where == "host" else {}
    assert python(str(script), folder=tmp_path, environment=hidden)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project of its own, with its package generated."""
    folder = tmp_path_factory.mktemp("project") / "fused_norms"
    ignored = shutil.ignore_patterns("fused_norms", "build", "*.egg-info", "__pycache__", ".*")
    shutil.copytree(EXAMPLES / "fused_norms", folder, ignore=ignored)
    python("-c", COMMAND, "generate", "--out", "fused_norms", folder=folder)
    return folder


def test_the_projects_own_tests_pass(project: Path) -> None:
    assert " passed" in python("-m", "pytest", "-p", "no:cacheprovider", folder=project)


def test_the_tests_that_follow_from_its_specs_pass(project: Path) -> None:
    """All of them with `make test-all`; a sampled run takes one check of each op, element type and code path."""
    chosen = ("--", "-k", "test_accuracy and bf16 or test_explicit_formula and f32") if SAMPLE in os.environ else ()
    assert " passed" in python("-c", COMMAND, "test", "--package", "fused_norms", *chosen, folder=project)


@pytest.mark.parametrize("wrong", [False, True])
def test_a_kernel_beside_its_spec(tmp_path: Path, wrong: bool) -> None:
    """A device header and a definition of the project's own are all that it takes; the tests see a wrong header."""
    shutil.copytree(EXAMPLES / "running_sum" / "specs", tmp_path / "specs")
    header = tmp_path / "specs" / "step.cuh"
    header.write_text(header.read_text().replace("sum + value", "sum - value" if wrong else "sum + value"))
    python("-c", COMMAND, "generate", "--out", "own_plans", folder=tmp_path)
    chosen = ("--package", "own_plans", "--", "-k", "test_accuracy and bf16 or test_explicit_formula and f32")
    done = partial(python, "-c", COMMAND, "test", *chosen, folder=tmp_path)
    if wrong:
        with pytest.raises(AssertionError, match="failed"):
            done()
    else:
        assert " passed" in done()


def test_its_wheel_is_all_that_is_needed(project: Path, tmp_path: Path) -> None:
    """The package runs from its wheel alone, with its kernels in it, and checkers see its types."""
    source = shutil.copytree(project, tmp_path / "source")
    with zipfile.ZipFile(source / python("-c", BUILD, folder=source).splitlines()[-1]) as wheel:
        wheel.extractall(tmp_path / "site")
    assert all((tmp_path / "site" / "fused_norms" / name).exists() for name in ("py.typed", "_functions.pyi"))
    shutil.copytree(project / "tests", tmp_path / "tests")
    path = os.pathsep.join([str(tmp_path / "site"), *sys.path])
    assert " passed" in python("-m", "pytest", "tests", folder=tmp_path, environment={"PYTHONPATH": path})
