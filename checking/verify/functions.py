"""What programs compute of whole numbers, as both sides of the device headers make it, against NumPy."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import numpy as np

from baracuda.codegen.program import ProgramError, kind_of
from baracuda.codegen.program.cuda import to_cuda
from baracuda.codegen.program.ops import OPS, NumPy
from baracuda.codegen.program.tree import Call, Name
from baracuda.runtime import KernelSource, get_device

from ..ptx.device import ptx_mode
from ..trials.memory import gpu_text
from .conversions import TEXTS

# Around where shifts, words of 32 bits, doubles and words of 64 bits end; pairs meet, with a few third operands.
_NUMBERS = [0, 1, -1, 2, 3, -7, 63, 64, 2**31 - 1, -(2**31), 2**32 + 5, 2**35 + 6, 2**53 + 1, 2**63 - 1, -(2**63)]
_THIRD = [6, 2**34 + 7, -(2**63)]
_OPERANDS = np.array(list(product(_NUMBERS, _NUMBERS, _THIRD)), np.int64)
_THREADS, _RUN = 64, 3  # operands that a thread takes one after another
_KERNEL = """
#include <baracuda/math.cuh>
using namespace baracuda;
struct Arguments {{ const i64* operands; i64* results; i64 count; }};
extern "C" __global__ void functions(Arguments of) {{
    [[maybe_unused]] Philox philox;  // as kernels have one, which keeps what it computed
    const i64 first = (blockIdx.x * {threads}ll + threadIdx.x) * {run};
    for (i64 i = first; i < first + {run} && i < of.count; ++i) {{
        const i64 *const from = of.operands + 3 * i, a_ = from[0], b_ = from[1], c_ = from[2];
        i64* const to = of.results + {each} * i;
        {lines}
    }}
}}
"""


def check_functions(target: str) -> None:
    """All rows of OPS that give a whole number or a truth value of whole numbers are exact for `target`.

    `target` as for conversions. Raises AssertionError.
    """
    texts = _texts()
    results = _computed(tuple(texts.values()), target)
    for number, name in enumerate(texts):
        operands = [_OPERANDS[:, place] for place in range(OPS[name].arity)]
        with np.errstate(all="ignore"):
            expected = np.asarray(OPS[name].numpy(NumPy(), *operands)).astype(np.int64)
        if (wrong := results[:, number] != expected).any():
            first = int(np.argmax(wrong))
            given = ", ".join(str(operand[first]) for operand in operands)
            got = f"{name}({given}) is {results[first, number]} for {target}, needs {expected[first]}"
            raise AssertionError(f"{got}; {int(wrong.sum())} of {wrong.size} are wrong")


def _texts() -> dict[str, str]:
    """The CUDA text of each such row, of operands named as it names them."""
    kinds, texts = dict.fromkeys("abc", "int"), {}
    for name, row in OPS.items():
        call = Call(name, tuple(Name(operand) for operand in "abc"[: row.arity]))
        try:
            if row.takes in ("int", "number") and kind_of(call, kinds) in ("int", "bool"):
                texts[name] = str(to_cuda(call, kinds))
        except ProgramError:  # it takes no whole numbers
            continue
    return texts


@cache
def _computed(texts: tuple[str, ...], target: str) -> np.ndarray[Any, Any]:
    device: Any = get_device("host")
    lines = " ".join(f"to[{number}] = i64({text});" for number, text in enumerate(texts))
    text = _KERNEL.format(threads=_THREADS, run=_RUN, each=len(texts), lines=lines)
    with gpu_text(TEXTS[target]) if target in TEXTS else ptx_mode(target):
        given = device.empty(_OPERANDS.shape, np.int64)
        results = device.empty((len(_OPERANDS), len(texts)), np.int64)
        given[...] = _OPERANDS
        words = np.array([given.ctypes.data, results.ctypes.data, len(_OPERANDS)], np.int64)
        kernel = device.load(KernelSource("functions.cu", text, "functions"))
        if device.executor is not None:
            device.executor.ranges = [(a.ctypes.data, a.ctypes.data + a.nbytes) for a in (given, results)]
        grid = (-(-len(_OPERANDS) // (_THREADS * _RUN)), 1, 1)
        kernel.launch(grid, _THREADS, words.ctypes.data, words.nbytes, 0)
        return np.array(results)
