"""What instructions on single values answer, bit by bit: recorded on a GPU, for the table of PTX to repeat.

    PYTHONPATH=tests python -m recorded.scalar_instructions    # on a GPU of sm_90: writes scalar_answers.npz anew

`OPCODES` are those of kernels compiled for sm_80 to sm_90, and their neighbours. Recorded on an H200.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from baracuda.checking.ptx.lanes import DTYPES
from baracuda.checking.ptx.values import row_of

ANSWERS = Path(__file__).parent / "scalar_answers.npz"
LANES = 96

_NAMES = """
abs.f32 abs.f64 add.f32 add.rn.f32 add.rn.f64 add.s32 add.s64 add.sat.f32 and.b16 and.b32 and.b64 and.pred bfe.s32
bfe.u32 bfi.b32 brev.b32 clz.b32 cos.approx.f32 cvt.f32.f16 cvt.f64.f32 cvt.rn.bf16.f32 cvt.rn.bf16x2.f32
cvt.rn.f16.f32 cvt.rn.f16x2.f32 cvt.rn.f32.f64 cvt.rn.f32.s32 cvt.rn.f32.s64 cvt.rn.f64.s32 cvt.rn.f64.s64
cvt.rn.satfinite.e4m3x2.f32 cvt.rn.satfinite.e5m2x2.f32 cvt.rna.tf32.f32 cvt.rz.bf16.f32 cvt.rz.f16.f32
cvt.rzi.s32.f32 cvt.rni.f32.f32 cvt.rmi.f32.f32 cvt.rpi.f32.f32 cvt.rzi.s64.f64 cvt.rzi.u32.f32 cvt.s64.s32
cvt.sat.f32.f32 cvt.u16.u32 cvt.u32.u16 cvt.u32.u64 cvt.u64.u16 cvt.u64.u32 div.rn.f32 div.rn.f64 div.s32 div.s64
div.u32 div.u64 ex2.approx.f32 ex2.approx.ftz.f32 fma.rm.f32 fma.rn.f32 fma.rn.f64 fma.rz.f32 lg2.approx.f32
lop3.b32 mad.lo.s32 mad.wide.u32 max.NaN.f32 max.f32 max.f64 max.s32 max.s64 min.NaN.f32 min.f32 min.f64 min.s32
min.s64 min.u32 min.u64 mul.hi.s32 mul.hi.s64 mul.hi.u32 mul.hi.u64 mul.lo.s16 mul.lo.s32 mul.lo.s64 mul.rn.f32
mul.rn.f64 mul.wide.s32 mul.wide.u16 mul.wide.u32 neg.f32 neg.f64 neg.s32 neg.s64 not.b32 not.b64 not.pred or.b16
or.b32 or.b64 or.pred popc.b32 popc.b64 prmt.b32 rcp.approx.ftz.f32 rcp.rn.f32 rcp.rn.f64 rem.s32 rem.u32
rsqrt.approx.f32 selp.b16 selp.b32 selp.b64 selp.f32 selp.f64 setp.eq.b16 setp.eq.b32 setp.eq.b64 setp.eq.f32
setp.eq.f64 setp.eq.s16 setp.ge.s32 setp.ge.s64 setp.ge.u32 setp.ge.u64 setp.geu.f32 setp.geu.f64 setp.gt.f32
setp.gt.f64 setp.gtu.f64 setp.le.s32 setp.leu.f32 setp.lt.f32 setp.lt.u64 setp.nan.f64 setp.ne.s32 setp.neu.f32
setp.num.f32 setp.num.f64 shf.l.clamp.b32 shf.l.wrap.b32 shf.r.clamp.b32 shf.r.wrap.b32 shl.b32 shl.b64 shr.s32
shr.s64 shr.u16 shr.u32 shr.u64 sin.approx.f32 sqrt.rn.f32 sqrt.rn.f64 sub.ftz.f32 sub.rn.f32 sub.rn.f64 sub.s16
sub.s32 sub.s64 tanh.approx.f32 xor.b32 xor.pred
"""
OPCODES = tuple(_NAMES.split())
TABLES = (0x96, 0xCA)  # of lop3, where only the text of a program says it


def operands(opcode: str, random: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    """For each operand LANES values: any bits, and for floats also ordinary, special and subnormal ones."""
    kinds = row_of(tuple(opcode.split("."))).operands
    return [_values(kind, random) for kind in kinds[: 3 if opcode.startswith("lop3") else None]]


def _values(kind: str, random: np.random.Generator) -> np.ndarray[Any, Any]:
    dtype = DTYPES[kind]
    if kind == "pred":
        return random.random(LANES) < 0.5
    values: np.ndarray[Any, Any] = np.frombuffer(random.bytes(LANES * dtype.itemsize), dtype).copy()
    if kind in ("f32", "f64"):
        third = LANES // 3
        values[:third] = random.standard_normal(third) * 2.0 ** random.integers(-8, 9, third)
        values[third : third + 12] = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, 2.5, -2.5, 65504, 464]
        values[third + 12 : third + 16] = np.array([1e-40, -1e-40, 5e-39, 2.0**-126])
    else:
        values[: LANES // 2] = random.integers(0, 9, LANES // 2)
        values[LANES // 2 : LANES // 2 + 3] = [0, np.iinfo(dtype).max, np.iinfo(dtype).min]
    return random.permutation(values)


def program(opcode: str) -> str:
    """PTX of a kernel that takes the addresses of operands and answers, and gives each thread one."""
    value = row_of(tuple(opcode.split(".")))
    is_table = opcode.startswith("lop3")
    kinds = [*value.operands[: 3 if is_table else None], *[value.result] * (len(TABLES) if is_table else 1)]
    lines = []
    for i, kind in enumerate(kinds):
        size = DTYPES[kind].itemsize
        lines += [f".reg .{_register(kind)} %v{i};", f".reg .b64 %a{i};", f"ld.param.u64 %a{i}, [p{i}];"]
        lines += [f"mad.wide.u32 %a{i}, %t, {size}, %a{i};"]
    sources = range(len(kinds) - (len(TABLES) if is_table else 1))
    for i in sources:
        if kinds[i] == "pred":
            lines += [f"ld.global.u8 %h, [%a{i}];", f"setp.ne.u16 %v{i}, %h, 0;"]
        else:
            lines += [f"ld.global.b{8 * DTYPES[kinds[i]].itemsize} %v{i}, [%a{i}];"]
    for turn, i in enumerate(range(len(sources), len(kinds))):
        table = [str(TABLES[turn])] if is_table else []
        lines += [f"{opcode} {', '.join([f'%v{i}', *(f'%v{s}' for s in sources), *table])};"]
        if kinds[i] == "pred":
            lines += [f"selp.u16 %h, 1, 0, %v{i};", f"st.global.u8 [%a{i}], %h;"]
        else:
            lines += [f"st.global.b{8 * DTYPES[kinds[i]].itemsize} [%a{i}], %v{i};"]
    parameters = ", ".join(f".param .u64 p{i}" for i in range(len(kinds)))
    head = ".version 8.0\n.target sm_90\n.address_size 64\n"
    body = "\n".join([".reg .u32 %t;", ".reg .u16 %h;", "mov.u32 %t, %tid.x;", *lines, "ret;"])
    return f"{head}.visible .entry answer({parameters}) {{\n{body}\n}}\n"


def _register(kind: str) -> str:
    return kind if kind in ("pred", "f32", "f64") else f"b{max(16, 8 * DTYPES[kind].itemsize)}"


def record() -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Operands and answers by name, "OPCODE/0" and so on; the answers are last."""
    import cupy

    random = np.random.default_rng(1)
    for opcode in OPCODES:
        given = operands(opcode, random)
        dtype = DTYPES[row_of(tuple(opcode.split("."))).result]
        answers = [np.zeros(LANES, dtype) for _ in (TABLES if opcode.startswith("lop3") else "1")]
        there = [cupy.asarray(array.view(np.uint8)) for array in (*given, *answers)]
        with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
            file.write(program(opcode))
            file.flush()
            cupy.RawModule(path=file.name).get_function("answer")((1,), (LANES,), tuple(there))
        for i, (array, answer) in enumerate(zip((*given, *answers), there, strict=True)):
            yield f"{opcode}/{i}", cupy.asnumpy(answer).view(array.dtype)


if __name__ == "__main__":
    np.savez_compressed(ANSWERS, **dict(record()))
    print(f"{ANSWERS}: {ANSWERS.stat().st_size} bytes")
