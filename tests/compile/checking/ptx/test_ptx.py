"""The model of PTX: a row for each instruction of the device headers, and conversions on both of their sides."""

from __future__ import annotations

import re

import numpy as np
import pytest

from baracuda.checking.ptx.actions import has_row
from baracuda.checking.ptx.device import ptx_mode
from baracuda.checking.verify.conversions import check_conversions
from baracuda.runtime import KernelInternal, KernelSource, get_device
from baracuda.runtime.compile.cubin import INCLUDE

SLEEP = 'extern "C" __global__ void sleep(long long) { asm volatile("nanosleep.u32 20;"); }'
MACROS = {"mma.sync.aligned.", "ldmatrix.sync.aligned.m8n8."}  # which complete the opcode


@pytest.mark.parametrize("target", ["host", "sm_80", "sm_90"])
def test_conversions_round_as_ml_dtypes_does(target: str) -> None:
    check_conversions(target)


def test_every_instruction_of_the_headers_has_a_row() -> None:
    headers = [path for path in INCLUDE.rglob("*.cuh") if not path.stem.endswith("_sm90")]
    texts = re.findall(r'asm(?: volatile)?\(\s*"([a-z][^" ;]*)', "\n".join(path.read_text() for path in headers))
    assert len(set(texts)) > 20
    assert not [opcode for opcode in set(texts) - MACROS if not has_row(opcode)]


def test_an_instruction_without_a_row_is_an_error() -> None:
    assert has_row("max.NaN.f32")
    assert not has_row("max.xorsign.abs.f32")
    words = np.zeros(1, np.int64)
    with ptx_mode("sm_90"), pytest.raises(KernelInternal, match=r"nanosleep\.u32 has no row in the table"):
        kernel = get_device("host").load(KernelSource("sleep.cu", SLEEP, "sleep"))
        kernel.launch((1, 1, 1), 32, words.ctypes.data, words.nbytes, 0)
