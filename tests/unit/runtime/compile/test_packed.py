"""Which code of a pack runs on a GPU, and the key it is found by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from baracuda.runtime.compile.kernel_key import kernel_key
from baracuda.runtime.compile.packed import stand_ins
from baracuda.runtime.device import KernelSource

SOURCE = KernelSource("map/axpy.cu", "#include <baracuda/a.cuh>\n", "axpy", ("A=1",))
PACKED = ("compute_80", "compute_100", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100")


@pytest.mark.parametrize(
    ("arch", "served"),
    [
        ("sm_80", ["sm_80", "compute_80"]),
        ("sm_89", ["sm_89", "sm_86", "sm_80", "compute_80"]),
        ("sm_90", ["sm_90", "compute_80"]),
        ("sm_90a", ["sm_90a"]),
        ("sm_103", ["sm_100", "compute_100", "compute_80"]),
        ("sm_120", ["compute_100", "compute_80"]),
        ("sm_75", []),
        ("sm_120a", []),
    ],
)
def test_code_runs_on_its_generation_and_ptx_on_what_comes_later(arch: str, served: list[str]) -> None:
    """The own architecture comes first, then the nearest before it, then PTX; code of a letter runs nowhere else."""
    assert stand_ins(arch, PACKED) == served


def test_the_key_covers_all_but_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each field that decides code, the architecture, the options and each header change the key; nothing else does."""
    (tmp_path / "baracuda").mkdir()
    header = tmp_path / "baracuda/a.cuh"
    header.write_text("// 1\n")
    key = kernel_key(SOURCE, "sm_90", include=tmp_path)
    other = [
        replace(SOURCE, text=SOURCE.text + "\n"),
        replace(SOURCE, symbol="other"),
        replace(SOURCE, path="map/other.cu"),
        replace(SOURCE, defines=("A=2",)),
        replace(SOURCE, contraction=True),
        replace(SOURCE, flush_subnormals=True),
    ]
    keys = [kernel_key(source, "sm_90", include=tmp_path) for source in other]
    keys.append(kernel_key(SOURCE, "sm_90a", include=tmp_path))
    monkeypatch.setenv("BARACUDA_LINEINFO", "1")
    keys.append(kernel_key(SOURCE, "sm_90", include=tmp_path))
    monkeypatch.delenv("BARACUDA_LINEINFO")
    assert kernel_key(replace(SOURCE, dynamic_shared=64), "sm_90", include=tmp_path) == key
    header.write_text("// 2!\n")
    keys.append(kernel_key(SOURCE, "sm_90", include=tmp_path))
    assert len({key, *keys}) == 10
