"""Invariant: attention for sm_90a compiles to what makes it fast, and tensor maps name the arrays they cannot hold."""

from __future__ import annotations

import ctypes
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from baracuda.checking.audit.facts import serialised
from baracuda.checking.audit.image import machine_code
from baracuda.checking.audit.sass import disassembler
from baracuda.cli.kernels.explain import Architecture
from baracuda.generated import FlashSdpaDescriptor, FlashSdpaSm90Plan
from baracuda.runtime import KernelSku, KernelSource, Schedule
from baracuda.runtime.arrays.element import ElementKind
from baracuda.runtime.arrays.tensor_view import TensorView
from baracuda.runtime.compile.cubin import assemble
from baracuda.runtime.devices import tensor_map
from baracuda.runtime.errors import DriverError, Unsupported

HOPPER = Architecture("sm_90", "sm_90")


class Case(NamedTuple):
    d_k: int
    d_v: int
    element: str
    causal: bool
    capped: bool
    length: int = 512
    window: int = -1

    def __str__(self) -> str:
        marks = "-band" * self.causal + "-cap" * self.capped + "-window" * (self.window >= 0)
        return f"{self.element}-{self.d_k}-{self.d_v}-{self.length}{marks}"


CASES = [
    Case(64, 64, "bf16", True, False),
    Case(64, 64, "bf16", False, False),
    Case(64, 64, "bf16", True, False, 8192),
    Case(64, 64, "bf16", False, False, 8192),
    Case(64, 64, "f16", False, True),
    Case(128, 128, "bf16", False, False),
    Case(128, 128, "f16", True, False),
    Case(128, 128, "f16", False, False, window=100),
    Case(192, 128, "bf16", True, False),
    Case(192, 192, "bf16", True, False),
    Case(256, 256, "bf16", True, True),
    Case(256, 256, "bf16", True, True, window=100),
]


def chosen(case: Case) -> tuple[KernelSku, KernelSource]:
    """The SKU and the source that the plan has for a problem."""
    lengths = {"query_len": case.length, "key_len": case.length, "window_left": case.window}
    sizes = {"batch_size": 1, "num_heads": 1, "d_k": case.d_k, "d_v": case.d_v, **lengths}
    descriptor = FlashSdpaDescriptor(
        **sizes, scale=0.1, is_causal=case.causal, softcap=float(case.capped), element=case.element
    )
    plan = FlashSdpaSm90Plan.select(descriptor, device=HOPPER)
    (source,) = plan.sources()
    return plan.sku, source


def instructions(image: bytes, folder: Path) -> list[str]:
    file = folder / "code"
    file.write_bytes(machine_code(image))
    command = [str(disassembler()[0]), "--no-dataflow", "--binary", "SM90a", str(file)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return re.findall(r"/\*[0-9a-f]{4,}\*/\s+([^;]+);", listing)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_makes_it_fast(case: Case, tmp_path: Path) -> None:
    """No spill, no product that waits for another, and a tile's exponentials run while products are in flight."""
    sku, source = chosen(case)
    made = assemble(source, "sm_90a")
    used = made.cubin.resources
    assert (used.spill_bytes, used.stack_bytes, serialised(made.log)) == (0, 0, ())
    assert isinstance(sku.schedule, Schedule)
    assert used.registers == (128 if sku.schedule["block_q"] == 192 else 168)  # what setmaxnreg divides
    code = instructions(made.cubin.image, tmp_path)
    start = next(i for i, line in enumerate(code) if "DEPBAR" in line and "gsb0, 0x1" in line)
    end = next(i for i, line in enumerate(code) if i > start and "DEPBAR" in line and "gsb0, 0x0" in line)
    assert sum("MUFU.EX2" in line for line in code[start:end]) >= sku.schedule["block_k"] // 2
    assert sum(line.startswith("USETMAXREG") for line in code) == 2


def test_too_few_registers_are_noticed() -> None:
    """What is written for 128 rows a block does not fit the registers that 192 rows leave."""
    _, source = chosen(Case(128, 128, "bf16", True, False))
    changes = {"BLOCK_Q=128": "BLOCK_Q=192", "QUERY_REGISTERS=1": "QUERY_REGISTERS=0", "THREADS=384": "THREADS=512"}
    reserved = "DYN_SHARED_BYTES={}"  # two bytes of 64 more rows of 128 columns
    changes[reserved.format(source.dynamic_shared)] = reserved.format(source.dynamic_shared + 2 * 64 * 128)
    defines = "\n".join(source.defines)
    for old, new in changes.items():
        assert old in defines
        defines = defines.replace(old, new)
    made = assemble(replace(source, defines=tuple(defines.split("\n"))), "sm_90a")
    assert made.cubin.resources.spill_bytes > 0 and serialised(made.log)


def array(**changes: Any) -> TensorView:
    """A packed [2, 3, 77, 64] of bf16."""
    facts = {"pointer": 4096, "shape": (2, 3, 77, 64), "strides": (14784, 4928, 64, 1), "element": ElementKind.BF16}
    return TensorView(**{**facts, "device": "cuda:0", "readonly": True, "capacity": None, "owner": None, **changes})


REFUSED: dict[str, dict[str, Any]] = {
    "starts at 0x1008; a tensor map needs a multiple of 16 bytes": {"pointer": 4104},
    "has strides (14784, 4928, 65, 1); a tensor map needs multiples of 8": {"strides": (14784, 4928, 65, 1)},
    "has strides (14784, -4928, 64, 1); a tensor map needs multiples of 8": {"strides": (14784, -4928, 64, 1)},
    "needs 1 along the last axis": {"strides": (14784, 4928, 64, 2)},
    "below 549755813888": {"strides": (1 << 39, 4928, 64, 1)},
    "cannot repeat one row": {"strides": (14784, 4928, 0, 1)},
    "extents must be 1 to 2147483647": {"shape": (2, 3, 0, 64)},
    "is of bool": {"element": ElementKind.BOOL},
    "has 1 axes": {"shape": (64,), "strides": (1,)},
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refused(reason: str) -> None:
    reported = tensor_map.cannot_map(array(**REFUSED[reason]), "q")
    assert reported is not None and reported.startswith("'q' ") and reason in reported
    with pytest.raises(Unsupported, match="the tensor"):
        tensor_map.encode(array(**REFUSED[reason]), (128, 64))


@pytest.mark.parametrize("box", [(257, 64), (0, 64), (128, 0)])
def test_refused_box(box: tuple[int, int]) -> None:
    with pytest.raises(Unsupported, match="1 to 256 rows and a column"):
        tensor_map.encode(array(), box)


class Driver:
    """Stands in for cuTensorMapEncodeTiled and keeps what it was told."""

    def __init__(self, code: int = 0) -> None:
        self.code, self.calls = code, list[tuple[Any, ...]]()

    def __call__(
        self, to: int, kind: int, rank: int, pointer: int, extents: Any, strides: Any, box: Any, *rest: Any
    ) -> int:
        assert to % 64 == 0
        ctypes.memmove(to, (ctypes.c_int64 * 16)(*range(-8, 8)), 128)
        self.calls.append((kind, rank, pointer, list(extents), list(strides), list(box)))
        return self.code


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    tensor_map._encoded.cache_clear()
    standing_in = Driver()
    monkeypatch.setattr(tensor_map, "_function", lambda: standing_in)
    return standing_in


def test_encoded_once(driver: Driver) -> None:
    """Extents and strides go in with the columns first; the same memory and box need one call."""
    assert tensor_map.encode(array(), (128, 128)) == tuple(range(-8, 8))
    assert tensor_map.encode(array(owner=object()), [128, 128]) == tuple(range(-8, 8))
    assert driver.calls == [(9, 4, 4096, [64, 77, 3, 2], [128, 9856, 29568], [64, 128, 1, 1])]
    tensor_map.encode(array(pointer=8192), (128, 128))
    tensor_map.encode(array(), (64, 96))
    assert len(driver.calls) == 3 and driver.calls[2][5] == [64, 64, 1, 1]


def test_axes_that_never_move(driver: Driver) -> None:
    """An axis that repeats is one matrix, and the stride of a single index, which may be anything, a legal one."""
    tensor_map.encode(array(strides=(14784, 0, 64, 1)), (128, 64))
    tensor_map.encode(array(shape=(1, 3, 1, 64), strides=(-7, 64, 5, 1)), (128, 64))
    assert [call[3:5] for call in driver.calls] == [
        ([64, 77, 1, 2], [128, 16, 29568]),
        ([64, 1, 3, 1], [16, 128, 16]),
    ]


def test_the_driver_refuses(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.code = 1
    monkeypatch.setattr(tensor_map, "driver", lambda: None)
    monkeypatch.setattr(tensor_map, "error_text", lambda library, name, code: f"{name}: {code}")
    with pytest.raises(DriverError, match=r"cuTensorMapEncodeTiled: 1: shape \(2, 3, 77, 64\)"):
        tensor_map.encode(array(), (128, 64))
