"""Invariant: what `pack --hub` writes is a repository that Hugging Face's package `kernels` chooses, loads and runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from baracuda.cli.main import main

torch = pytest.importorskip("torch")
kernels = pytest.importorskip("kernels")
PROBLEM = "SoftmaxPlan input_shape=4,64 softmax_axis=-1 element=f32 select.layouts=packed"

# Loads the repository in a process that has no other pack, calls an op, and looks for its machine code.
LOAD = """
import sys
sys.modules["cuda"] = None
from pathlib import Path
import torch
from kernels import get_local_kernel
module = get_local_kernel(Path(sys.argv[1]))
x = torch.arange(256.0).reshape(4, 64)
torch.testing.assert_close(module.ops.softmax(x, softmax_axis=-1), torch.softmax(x, -1))
torch.testing.assert_close(module.rms_norm(x, (64,)), torch.nn.functional.rms_norm(x, (64,)))
from baracuda.cli.packs.problems import Problem
from baracuda.runtime.compile.packed import packed_cubin
for arch in "sm_80", "sm_90":
    for kernel in Problem.read(sys.argv[2], "baracuda.generated").wanted(arch):
        assert packed_cubin(kernel.source, arch).image[:4] == b"\\x7fELF"
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub") / "repository"
    command = ["pack", "--hub", "--problem", PROBLEM, "--arch", "sm_80,sm_90", "--ptx", "--out", str(folder)]
    for _ in range(2):  # the second replaces the first
        assert CliRunner().invoke(main, command, catch_exceptions=False).exit_code == 0
    return folder


def test_the_package_loads_it_and_its_ops_run(repository: Path) -> None:
    """Its machine code is found in a process that has no compiler for GPUs."""
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(repository / "build/torch-cuda"), PROBLEM],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "BARACUDA_PACKS": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_the_package_chooses_it_where_torch_has_cuda(repository: Path) -> None:
    """Its metadata is read, and its variant is the one for CUDA on any machine."""
    from kernels._rust import Backend, Metadata
    from kernels.archs import _supports_cuda_capability
    from kernels.variants import get_variants_local

    (variant,) = get_variants_local(repository / "build")
    assert (variant.variant_str, variant.arch.backend_name) == ("torch-cuda", "cuda")
    read = Metadata.read_from_file(repository / "build/torch-cuda/metadata.json")
    manifest = json.loads((repository / "build/torch-cuda/pack/manifest.json").read_text())
    assert read.backend.backend_type == Backend.CUDA and read.license == "Apache-2.0" and read.id.isidentifier()
    assert read.id.endswith(manifest["digest"][:16]) and str(read.name.python_name) == "baracuda_pack"
    assert read.backend.archs == ["8.0", "9.0", "9.0+PTX"]
    served = [_supports_cuda_capability(read.backend.archs, of) for of in ((7, 5), (8, 6), (9, 0), (10, 0))]
    assert served == [False, True, True, True]


def test_names_that_the_package_refuses_are_refused(tmp_path: Path) -> None:
    command = ["pack", "--hub", "--name", "My_Pack", "--problem", PROBLEM, "--arch", "sm_80", "--out"]
    result = CliRunner().invoke(main, [*command, str(tmp_path / "repository")])
    assert result.exit_code == 1 and re.match("'My_Pack' is no name of a kernel; ", result.stderr)
    assert not list(tmp_path.iterdir())
