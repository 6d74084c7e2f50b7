"""Spec-driven tests: errors against the oracle, memory layouts, guarantees, and every error that the spec declares."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from baracuda.codegen.project import refuse_none, refuse_ungenerated, refuse_unknown, specs_folder
from baracuda.codegen.spec.load import load_folder
from baracuda.runtime import DriverError, InvalidProblem, Unsupported
from baracuda.runtime.devices.cuda import CudaDevice
from baracuda.runtime.host.toolchain import find_toolchain

from .. import variables


def run(
    specs: Path | None,
    package: str,
    ops: Sequence[str] = (),
    device: str = "host",
    check: bool = False,
    repro: Path | None = None,
    extra: Sequence[str] = (),
) -> int:
    """Run the spec-driven tests of `ops` (all if empty) below `specs` on "host" or "cuda"; return pytest's exit code.

    `package` holds the generated plans. `check` checks every memory access on the host device. Failures are saved in
    the folder `repro`. `extra` are arguments for pytest.
    """
    if check and device != "host":
        raise InvalidProblem("--check needs the host device; on a GPU use 'baracuda-gen sanitize'")
    if device == "cuda" and not CudaDevice.available():
        raise DriverError("no CUDA device to test on; use the host device")
    chosen = environment(specs, package, ops, "check" if check else device)
    _check_names_and_cases(ops, specs_folder(specs), package)
    if repro is not None:
        chosen[variables.REPRO] = str(repro.resolve())
    return subprocess.run([*pytest_command(), *extra], env={**os.environ, **chosen}).returncode


def pytest_command() -> list[str]:
    """The command that runs the suite, as `environment` says."""
    command = [sys.executable, "-m", "pytest", "--pyargs", "baracuda.checking.verify", "-p", "no:cacheprovider"]
    # No conftest.py: those of the folder that the command runs in are for other tests.
    quiet = ["-o", "python_files=suite.py", "-o", "addopts=", "-q", "--import-mode=importlib", "--noconftest"]
    return [*command, *quiet, "--rootdir", str(Path.cwd())]


def _check_names_and_cases(ops: Sequence[str], specs: Path, package: str) -> None:
    from ..problems.cases import refuse_bad_cases
    from ..problems.subject import Subject

    loaded = load_folder(specs, ops)
    refuse_none(loaded, specs)
    refuse_unknown(ops, loaded)
    refuse_ungenerated(ops or loaded, loaded, package)
    refuse_bad_cases(Subject(loaded[name], loaded, package) for name in ops or loaded)


def require_tools() -> None:
    """Raise Unsupported if pytest, autograd or scipy is missing."""
    for name in ("autograd", "pytest", "scipy"):
        if find_spec(name) is None:
            raise Unsupported(f"{name} is not installed, which tests need; pip install 'baracuda-gen[test]'")


def environment(specs: Path | None, package: str, ops: Sequence[str], device: str) -> dict[str, str]:
    """Environment variables that tell a child process what to test; it also imports from the current folder.

    Raises Unsupported if pytest, autograd or scipy is missing, CompileError if the host device has no compiler.
    """
    require_tools()
    if device != "cuda":
        find_toolchain()
    chosen = {variables.PACKAGE: package, variables.OPS: " ".join(ops), variables.DEVICE: device}
    if specs is not None:
        chosen[variables.SPECS] = str(specs.resolve())
    chosen["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])])
    return chosen
