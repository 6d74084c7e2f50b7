"""Specs as careless and as hostile authors write them: refused with their line, or harmless in what they become."""

from __future__ import annotations

import ast
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from repository import ROOT, SAMPLES

from baracuda.checking.listing.variants import rows_of, sources_of
from baracuda.codegen.emit.generate import generate, lower_all, texts, write
from baracuda.codegen.lower.op import Op
from baracuda.codegen.spec.load import load_folder, load_spec
from baracuda.codegen.spec.names import PARTS, is_reserved_category, is_reserved_in_programs, is_reserved_op
from baracuda.runtime import KernelSource, SpecError
from baracuda.runtime.compile.cubin import assemble
from baracuda.runtime.compile.line_map import with_line_directives
from baracuda.runtime.devices.named import get_device
from baracuda.runtime.host.build import _EXPORT, _INCLUDES
from baracuda.runtime.host.toolchain import CONTRACTION_FLAGS, KERNEL_FLAGS

F, B = "scale.yaml", "scale_backward.yaml"
Project = Callable[..., Path]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """`project(file, old, new)`: a folder with the two sample specs, `old` in `file` replaced by `new`."""
    monkeypatch.chdir(tmp_path)

    def edited(file: str = F, old: str = "", new: str = "") -> Path:
        Path("specs").mkdir(exist_ok=True)
        for name in (F, B):
            text = (SAMPLES / name).read_text()
            if name == file:
                assert old in text
                text = text.replace(old, new, 1)
            (Path("specs") / name).write_text(text)
        return Path("specs")

    return edited


def ops_of(folder: Path) -> list[Op]:
    return lower_all(load_folder(folder).values())


def refusal(folder: Path) -> str:
    with pytest.raises(SpecError) as caught:
        ops_of(folder)
    return str(caught.value)


def test_the_samples_are_good(project: Project) -> None:
    """What is edited below is a project without a fault."""
    assert [op.name for op in ops_of(project())] == ["scale", "scale_backward"]


# What is edited, in which file, and the whole message: line and text.
TABLE: list[tuple[str, str, str, str]] = [
    (F, 'y = x / total * gain', 'y = x / total',
     "27: input 'gain' is never read; use it in the program, or drop it"),
    (F, '  has_gain:', '  spare: {type: int, doc: d, default: 1}\n  has_gain:',
     "16: field 'spare' is never read; use it in the program, or drop it"),
    (F, 'family: row', 'familly: row',
     "6: unknown key 'familly'; did you mean 'family'?"),
    (F, 'op: scale', 'op: scale\nop: scale',
     "2: key 'op' is already on line 1; keep one of them"),
    (F, 'op: scale', 'op: Scale',
     "1: 'op' is 'Scale'; needs text that matches ^[a-z][a-z0-9_]{0,63}$"),
    (F, 'op: scale', 'op: ../scale',
     "1: 'op' is '../scale'; needs text that matches ^[a-z][a-z0-9_]{0,63}$"),
    (F, 'op: scale', 'op: class',
     "1: 'class' is a reserved word; choose another name"),
    (F, 'op: scale', 'op: functions',
     "1: 'functions' is a reserved word; choose another name"),
    (F, 'category: sample', 'category: import_all',
     "2: 'import_all' is a reserved word; choose another name"),
    (F, 'category: sample', 'category: /etc',
     "2: 'category' is '/etc'; needs text that matches ^[a-z][a-z0-9_]{0,63}$"),
    (F, 'plan: ScalePlan', 'plan: Scale',
     "5: 'plan' is 'Scale'; needs text that matches ^[A-Z][A-Za-z0-9]{0,59}Plan$"),
    (F, 'family: row', 'family: rows',
     "6: 'family' is 'rows'; did you mean 'row'?"),
    (F, 'direction: forward', 'direction: forwards',
     "4: 'direction' is 'forwards'; did you mean 'forward'?"),
    (F, 'doc: Rows divided by their sums.', "doc: ''",
     "7: 'doc' is ''; needs a length >= 1"),
    (F, 'doc: Rows divided by their sums.', 'doc: "a\\nb"',
     "7: 'doc' is 'a\\nb'; needs text that matches ^[^\\x00-\\x1f\\x7f\\\\]*$"),
    (F, 'doc: Rows divided by their sums.', 'doc: \'a """ b\'',
     '7: \'"""\' cannot stand in a comment of generated code; write it in words'),
    (F, '  total = sum(x)\n', '  total = sum(x) \\\n',
     "9: '\\\\' cannot stand in a comment of generated code; write it in words"),
    (F, 'source: Nobody', 'source: "a ??/ b" #',
     "11: '??/' cannot stand in a comment of generated code; write it in words"),
    (F, 'has_gain: {type: bool, doc: whether gain takes part}', 'has_gain: {type: boolean, doc: d}',
     "16: 'descriptor.has_gain.type' is 'boolean'; did you mean 'bool'?"),
    (F, 'default: 0, doc', 'default: 0.5, doc',
     "15: 'axis' must be of type int, got 0.5"),
    (F, 'default: 0, doc', 'default: 18446744073709551615, doc',
     "15: 'axis' must be of type int, got 18446744073709551615"),
    (F, 'type: int, default: 0', 'type: float, default: .nan',
     "15: 'axis' must be of type float, got nan"),
    (F, '  axis: {type', '  element: {type',
     "15: 'element' is a reserved word; choose another name"),
    (F, '  axis: {type', '  check: {type',
     "15: 'check' is a reserved word; choose another name"),
    (F, '  axis: {type', '  len: {type',
     "15: 'len' is a reserved word; choose another name"),
    (F, 'len(shape) >= 1', 'len(shap) >= 1',
     "18: unknown field 'shap'; did you mean 'shape'?"),
    (F, 'len(shape) >= 1', 'length(shape) >= 1',
     "18: unknown function 'length'; did you mean 'len'?"),
    (F, 'len(shape) >= 1', 'shape.__class__',
     "18: 'shape.__class__' is not allowed here"),
    (F, 'len(shape) >= 1', 'len(shape) >=',
     '18: not an expression: invalid syntax'),
    (F, 'raises: Unsupported', 'raises: ValueError',
     "18: 'require[0].raises' is 'ValueError'; needs one of 'InvalidProblem', 'Unsupported'"),
    (F, 'dtypes: [f32, f16]', 'dtypes: []',
     "20: 'dtypes' is a list of length 0; needs a length >= 1"),
    (F, 'dtypes: [f32, f16]', 'dtypes: [f32, f32]',
     '20: lists one twice: f32, f32'),
    (F, 'dtypes: [f32, f16]', 'dtypes: [f32, f17]',
     "20: 'dtypes[1]' is 'f17'; did you mean 'f16'?"),
    (F, 'rows: {of: shape, axes: rest}', 'rows: {of: shapes, axes: rest}',
     "23: 'shapes' is not a shape of the descriptor; did you mean 'shape'?\n22: the dims share out the "
     'axes of one shape, got shapes, shape'),
    (F, 'axes: rest', "axes: '(0,)'",
     '22: the row family needs two dims: the rows, with `axes: rest`, and the columns'),
    (F, 'axes: "(axis,)"', 'axes: "(ax,)"',
     "24: unknown field 'ax'; did you mean 'axis'?"),
    (F, '  x: {dims: [rows, cols], doc: what is divided}', '  x: {dims: [rows, col], doc: what is divided}',
     "26: unknown dim 'col'; did you mean 'cols'?\n29: 'y' can share memory with an input of its own "
     'dims and dtype only'),
    (F, '  x: {dims: [rows, cols], doc: what is divided}', '  x: {dims: [rows, rows], doc: what is divided}',
     "26: 'x' names a dim twice: rows, rows\n29: 'y' can share memory with an input of its own dims and dtype only"),
    (F, '  x: {dims: [rows, cols], doc: what is divided}', '  x: {dims: [], doc: what is divided}',
     "26: 'inputs.x.dims' is a list of length 0; needs a length >= 1"),
    (F, '  x: {dims', '  while: {dims',
     "26: 'while' is a reserved word; choose another name"),
    (F, '  x: {dims', '  exp: {dims',
     "26: 'exp' is a reserved word; choose another name"),
    (F, '  x: {dims', '  axis: {dims',
     "26: 'axis' is already a name of descriptor; choose another name"),
    (F, '  x: {dims', '  x__y: {dims',
     "26: 'x__y' is a reserved word; choose another name"),
    (F, 'dtype: [T, acc]', 'dtype: [T, T]',
     '27: lists one twice: T, T'),
    (F, 'dtype: [T, acc]', 'dtype: [T, i32]',
     '27: mixes whole numbers, real numbers or bools: T, i32'),
    (F, 'dtype: [T, acc]', 'dtype: Q',
     "27: 'inputs.gain.dtype[0]' is 'Q'; needs one of 'T', 'acc', 'bf16', 'bool', 'f16', 'f32', 'f64', 'f8e4m3', "
     "'f8e5m2', 'i16', 'i32', 'i64', 'i8', 'u16', 'u32', 'u8'"),
    (F, 'optional: has_gain', 'optional: has_gian',
     "27: 'has_gian' is not a bool of the descriptor; did you mean 'has_gain'?"),
    (F, 'optional: has_gain, default: 1', 'optional: has_gain',
     "27: 'gain' needs both `optional` and `default`, or neither: what is read in its absence"),
    (F, 'default: 1, doc', 'default: .inf, doc',
     '27: inf is not a finite number; needs one'),
    (F, 'may_alias: [x]', 'may_alias: [gain]',
     "29: 'y' can share memory with an input of its own dims and dtype only"),
    (F, 'doc: the result', 'default: 1, doc: the result',
     '29: an output has no default'),
    (F, '  y: {dims: [rows, cols], may_alias: [x]', '  y: {dims: [rows, cols], updates: gain',
     "29: 'y' can update an input of its own dims and dtype only\n31: must list every argument once: x, "
     'gain, total'),
    (F, 'check_order: [x, gain, y, total]', 'check_order: [x, gain, y]',
     '31: must list every argument once: x, gain, y, total'),
    (F, 'total = sum(x, cols)\n  half', 'total = sum(x, col)\n  half',
     "34: unknown dim 'col'; did you mean 'cols'?"),
    (F, 'half_of = total * 2.0', 'half_of = totl * 2.0',
     "35: unknown name 'totl'; did you mean 'total'?"),
    (F, 'half_of = total * 2.0', 'half_of = total *',
     '35: not an expression of this language: invalid syntax'),
    (F, 'half_of = total * 2.0', 'stream = total * 2.0',
     "35: 'stream' is a reserved word; choose another name"),
    (F, 'half_of = total * 2.0', 'half_of = total & 2',
     '35: & takes operands of kind int, got float'),
    (F, 'half_of = total * 2.0', 'half_of = f16(total < 1.0)',
     '35: f16 takes numbers, got a bool; use where(condition, 1.0, 0.0)'),
    (F, 'half_of = total * 2.0', 'half_of = sum(x < 1.0, cols)',
     '35: sum takes numbers, got a bool; write count(condition, dim) or any(condition, dim)'),
    (F, 'half_of = total * 2.0', 'half_of = sum(index(cols), cols)',
     "35: 'half_of' is a sum of ints; the row family reduces floats, as in sum(acc(i), cols)"),
    (F, 'half_of = total * 2.0', 'half_of = x = total',
     "35: expected `name = expression`, got 'half_of = x = total'; one name a line, as in y = x"),
    (F, '  y = x / total * gain\nreference', '  z = x / total * gain\nreference',
     '33: the program never assigns y'),
    (F, '  y = x / total * gain\nreference', '  y = x < total\nreference',
     "36: 'y' is a bool; use where(condition, a, b), or dtype: bool"),
    (F, '  total = sum(x, cols)\n  half', '  total = x\n  half',
     "34: 'total' varies along cols, which its dims do not list"),
    (F, '  total = sum(x, cols)\n  half', '  total = sum(x, rows, cols)\n  half',
     "34: 'total' is sum over rows, cols; the row family reduces over cols (sum, mean, max, min) and, "
     'last of all, over rows (sum, mean)'),
    (F, '  total = sum(x, cols)\n  half', '  total = max(x, rows)\n  half',
     "34: 'total' is max over rows; the row family reduces over cols (sum, mean, max, min) and, last of "
     'all, over rows (sum, mean)'),
    (F, 'total: {dims: [rows], dtype: [acc, T]', 'total: {dims: [rows], dtype: i32',
     "34: 'total' is a float because of 'x', and its dtype i32 takes ints only"),
    (F, 'may_alias: [x]', 'dtype: i32',
     "36: 'y' is a float because of 'x', and its dtype i32 takes ints only"),
    (F, '  total: {dims: [rows], dtype: [acc, T]', '  total: {dims: [cols], dtype: [acc, T]',
     "34: 'total' varies along rows, which its dims do not list"),
    (F, 'reference: |\n  total = sum(x, cols)', 'reference: |\n  total = summ(x, cols)',
     "38: unknown function 'summ'; did you mean 'sum'?"),
    (F, 'reference: |\n  total = sum', 'reference: |\n  totals = sum',
     "39: unknown name 'total'; did you mean 'totals'?"),
    (F, '    f16: {c1: 2.0}', '    f16: {c1: 20.0}',
     "43: 'precision.bound.f16.c1' is 20.0; needs a number <= 16.0"),
    (F, '    f16: {c1: 2.0}', '    bf16: {c1: 2.0}',
     "43: 'bf16' is not a dtype of this op; did you mean 'f16'?"),
    (F, '    f16: {c1: 2.0}', '    f16: {c1: .nan}',
     "43: 'precision.bound.f16.c1' is nan; needs a number <= 16.0"),
    (F, '  y: [deterministic]', '  z: [deterministic]',
     "45: unknown output 'z'; known are y, total"),
    (F, '  y: [deterministic]', '  y: [determinstic]',
     "45: 'reproducibility.y[0]' is 'determinstic'; did you mean 'deterministic'?"),
    (F, 'precision:\n  bound:\n    f16: {c1: 2.0}\nreproducibility:\n  y: [deterministic]',
     'precision: {contraction: true}\nreproducibility:\n  y: [bit_stable_across_arch]',
     '43: contraction and flushed subnormals differ between machines; drop bit_stable_across_arch'),
    (F, 'arch: {sm_80: {}}', 'arch: {}',
     "47: 'arch' is a mapping; needs a length >= 1"),
    (F, 'arch: {sm_80: {}}', 'arch: {sm_81: {}}',
     "47: unknown key 'sm_81'; needs one of 'sm_80', 'sm_89', 'sm_90', 'sm_90a', 'sm_100', 'sm_120'"),
    (F, 'defaults: {has_gain: true}', 'defaults: {has_gain: 1}',
     "50: 'has_gain' must be of type bool, got 1"),
    (F, 'defaults: {has_gain: true}', 'defaults: {has_gian: true}',
     "50: unknown field 'has_gian'; did you mean 'has_gain'?"),
    (F, '- {shape: [300, 4]}', '- {axis: 1}',
     "56: gives no shape, and neither do the defaults"),
    (F, 'ranges: {x: [1.0, 2.0]}', 'ranges: {z: [1.0, 2.0]}',
     "51: unknown input 'z'; known are x, gain"),
    (F, 'ranges: {x: [1.0, 2.0]}', 'ranges: {x: [2.0, 1.0]}',
     '51: a range goes from low to high, both finite, got [2.0, 1.0]'),
    (F, 'ranges: {x: [1.0, 2.0]}', 'ranges: {x: [0.0, .inf]}',
     '51: a range goes from low to high, both finite, got [0.0, inf]'),
    (F, '- {shape: [3, 4], axis: 1}', '- {shape: 3, axis: 1}',
     "53: 'shape' must be of type shape, got 3"),
    (F, '    - {shape: [3, 4], axis: 1}', '    []',
     "49: there is no case to test; list some in tests.cases"),
    (F, '- {shape: [300, 4]}', '- {shap: [300, 4]}',
     "56: unknown field 'shap'; did you mean 'shape'?\n56: gives no shape, and neither do the defaults"),
    (F, '- {shape: [300, 4]}', '- &a {shape: *a}',
     "56: anchor '&a'; remove it, values are written out"),
    (B, 'op: scale_backward', 'op: scale',
     "1: op 'scale' is already in specs/scale.yaml; rename one"),
    (B, 'plan: ScaleBackwardPlan', 'plan: ScalePlan',
     "5: plan 'ScalePlan' is already in specs/scale.yaml; rename one"),
    (B, 'of: scale\n', 'of: scael\n',
     "33: no op 'scael' in this folder; did you mean 'scale'?"),
    (B, 'cotangents: {dy: y}', 'cotangents: {dy: z}',
     "34: op 'scale' has no 'z'; needs one of 'total', 'y'"),
    (B, 'cotangents: {dy: y}', 'cotangents: {dz: y}',
     "34: unknown tensor 'dz'; known are dy, x, gain, total"),
    (B, 'wrt: {dx: x, dgain: gain}', 'wrt: {dx: x}',
     "35: 'dgain' is not there: every output of a gradient differentiates an input"),
    (B, 'wrt: {dx: x, dgain: gain}', 'wrt: {dx: x, dgain: gian}',
     "35: op 'scale' has no 'gian'; did you mean 'gain'?"),
    (B, 'saved: [total]', 'saved: [totl]',
     "36: unknown tensor 'totl'; did you mean 'total'?"),
    (B, '  saved: [total]\n', '',
     "24: 'total' is neither a cotangent, nor saved, nor an input of 'scale'; say which"),
    (B, 'cotangents: {dy: y}', 'cotangents: {}',
     "32: none of the gradients that come in is read; use what is called d and an output's name"),
    (F, 'y = x / total * gain', 'y = x / total\n  half = gain * 2.0',
     "27: input 'gain' is never read; use it in the program, or drop it"),
    (B, 'gradient:\n', 'reference: |\n  dx = x\n  dgain = gain\ngradient:\n',
     "32: a gradient's oracle is the derivative of its forward's reference; drop this one"),
    (B, '  dgain = sum(dy * x / total, rows)', '  dgain = gain * 2.0',
     "31: 'dgain' is a value per column that is no sum over all rows; the row family reduces over cols "
     '(sum, mean, max, min) and, last of all, over rows (sum, mean)'),
    (B, '  dgain = sum(dy * x / total, rows)', '  dgain = sum(dy * x / total, rows) + index(cols)',
     "31: 'dgain' is a value with an index where only column sums are known; the row family reduces over "
     'cols (sum, mean, max, min) and, last of all, over rows (sum, mean)'),
    (B, '  dgain = sum(dy * x / total, rows)', '  dgain = max(dy * x / total, rows)',
     "31: 'dgain' is max over rows; the row family reduces over cols (sum, mean, max, min) and, last of "
     'all, over rows (sum, mean)'),
    (B, '  dgain: [deterministic]', '  dgain: [batch_invariant]',
     "40: 'dgain' has no rows: it depends on how many there are; drop batch_invariant"),
    (B, 'of: scale\n', 'of: scale_backward\n',
     "33: op 'scale_backward' has no reference to differentiate; name a forward op\n34: op "
     "'scale_backward' has no 'y'; needs one of 'dgain', 'dx'"),
    (F, 'default: 1, doc: gain', 'default: 1, layout: packed, doc: gain',
     "27: 'inputs.gain.layout' is 'packed'; needs one of 'any', 'contiguous', 'inner'"),
    (F, 'bench:', 'benhc:',
     "54: unknown key 'benhc'; did you mean 'bench'?"),
    (F, 'arch: {sm_80: {}}', 'arch: {sm_80: {shared_bytes: -1}}',
     "47: 'arch.sm_80.shared_bytes' is -1; needs a number >= 0"),
    (F, 'arch: {sm_80: {}}', 'arch: {sm_80: {shared_bytes: 200000}}',
     '47: sm_80 has 166912 bytes of shared memory a block, got 200000'),
    (F, '  total = sum(x, cols)\n  half', '  total = sum(x, cols)\n  total = sum(x, cols)\n  half',
     "35: 'total' already means something; choose another name"),
    (F, 'program: |\n  total = sum(x, cols)', 'program: |\n  import os\n  total = sum(x, cols)',
     "34: expected `name = expression`, got 'import os'; all functions are there without imports"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "old", "new", "message"), TABLE, ids=range(len(TABLE)))
def test_what_is_wrong_is_said_with_its_line(project: Project, file: str, old: str, new: str, message: str) -> None:
    """One line a fault: where it is, what is wrong, and what would be right."""
    assert refusal(project(file, old, new)) == "\n".join(f"specs/{file}:{line}" for line in message.splitlines())


def test_errors_of_all_files_are_said_at_once(project: Project) -> None:
    """An author of many specs sees every file's first fault, not one a run."""
    folder = project(F, "total * 2.0", "totl * 2.0")
    (folder / B).write_text((folder / B).read_text().replace("dy * gain -", "dz * gain -"))
    assert [line.split(": ")[0] for line in refusal(folder).splitlines()] == [f"specs/{F}:35", f"specs/{B}:30"]


def test_promises_beyond_a_library_function_are_refused(project: Project) -> None:
    """What the last bit of a library function decides is not the same on every machine, however far away it is used."""
    folder = project(F, "  y: [deterministic]", "  y: [bit_stable_across_arch]")
    ops_of(folder)
    text = (folder / F).read_text().replace("half_of = total * 2.0\n  y = x", "half_of = exp(total)\n  y = half_of")
    (folder / F).write_text(text)
    assert refusal(folder) == f"specs/{F}:45: exp differ between machines; drop bit_stable_across_arch"


def test_promises_beyond_what_a_header_calls_are_refused(tmp_path: Path) -> None:
    """A header is not analysed, so all that it calls counts for every output, unless its values are only moved."""
    text = (ROOT / "specs" / "convolution" / "causal_conv1d.yaml").read_text()
    spec = tmp_path / "causal_conv1d.yaml"
    spec.write_text(text.replace("moved: true, ", ""))
    with pytest.raises(SpecError, match=r"the kernels call exp, which differ between machines; drop bit_stable"):
        load_spec(spec)
    spec.write_text(text)
    load_spec(spec)


# Names: every word that means something somewhere is refused, or the code it ends in compiles and imports.

WORDS = tuple(
    dict.fromkeys(
        """
        alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t class compl concept
        const constexpr const_cast continue co_await decltype default delete do double dynamic_cast else enum
        explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not
        not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires restrict
        return short signed sizeof static struct static_assert static_cast switch template this thread_local
        throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor
        xor_eq override final import module main std size_t int64_t time_t threadidx blockidx blockdim griddim
        warpsize dim3 uint3 int2 float4 double2 half half2 uint ulong ushort uchar printf clock clock64 assert
        memcpy malloc free abort exit errno stdin stdout stderr null nan inf eof environ alloca unix linux i386
        major minor signal select time exp exp2 log log1p sqrt rsqrt gamma lgamma y0 y1 yn j0 j1 jn abs fabs min
        max floor ceil round rint pow hypot fma sin cos tan sinh tanh erf erfc isnan isinf isfinite signbit div
        rand
        args stage space parts tickets row col rows cols index_t acc_t acc_of home first lane block blocks
        column tile turn live part strip last i k p s t m n read write load store offset reduce_row reduce_parts
        is_last_block data at walk warp layout host pack slice sum folded math i64 u64 infinity element f16
        bf16 f32 f64 acc baracuda baracuda_host
        none nonlocal lambda def del elif except finally from global in is pass raise with yield async await
        match type self cls super print property tuple str len list dict set object range id hash staticmethod
        dataclass field rt workspace stream check col_axes arrays plan descriptor sku run run_unchecked bind
        can_implement select_ prepare explain shapes present op arguments annotations name names dtype shape
        axis device layouts registry tiles prod is_suffix_mask normalize_axis mask_axes index size where mean
        maximum minimum sigmoid logical_and add sub mul neg less invert x__y a b c d e f g h j l o q r u v w x y
        z
        """.split()  # noqa: SIM905
    )
)
ROLES = ("element_in", "element_out", "row_in", "row_out", "col_in", "col_out", "optional", "real", "whole", "flag",
         "element_line", "row_line", "reduction")  # fmt: skip
USABLE = [word for word in WORDS if not is_reserved_in_programs(word)]
EACH = 8  # words for each role of one spec


def spec_with(names: dict[str, list[str]], op: str = "probe", plan: str = "ProbePlan", category: str = "probes") -> str:
    """A spec whose tensors, fields and lines, by role, are called `names`."""
    of = {role: names.get(role, []) for role in ROLES}
    read = [*(n for role in ("element_in", "row_in", "col_in", "optional", "real", "whole") for n in of[role])]
    read += [f"where({n}, 1.0, 2.0)" for n in of["flag"]]
    lines = ["aa = zx" + "".join(f" + {n}" for n in read)]
    lines += [f"{n} = sum(aa * 2.0, cc)" for n in of["reduction"]]
    lines += [f"{n} = mean(aa, cc) + 1.0" for n in (*of["row_line"], *of["row_out"])]
    lines += [f"{n} = aa * 2.0 + index(cc) + index(rr)" for n in of["element_line"]]
    made = (n for role in ("reduction", "row_line", "row_out", "element_line") for n in of[role])
    lines += ["bb = aa" + "".join(f" + {n}" for n in made)]
    lines += [f"{n} = bb * 3.0" for n in of["element_out"]] + ["zy = bb / size(cc)"]
    lines += [f"{n} = {('sum(bb, rr)', 'mean(bb, rr) * 2.0')[at % 2]}" for at, n in enumerate(of["col_out"])]
    fields = [f"{n!r}: {{type: float, doc: d, default: 1.5}}" for n in of["real"]]
    fields += [f"{n!r}: {{type: int, doc: d, default: 3}}" for n in of["whole"]]
    fields += [f"{n!r}: {{type: bool, doc: d, default: true}}" for n in of["flag"]]
    inputs = [f"{n!r}: {{dims: [rr, cc], doc: d}}" for n in of["element_in"]]
    inputs += [f"{n!r}: {{dims: [rr], dtype: [acc, T], doc: d}}" for n in of["row_in"]]
    inputs += [f"{n!r}: {{dims: [cc], doc: d}}" for n in of["col_in"]]
    inputs += [f"{n!r}: {{dims: [cc], dtype: [T, acc], optional: zp, default: 1, doc: d}}" for n in of["optional"]]
    outputs = [f"{n!r}: {{dims: [rr, cc], doc: d}}" for n in of["element_out"]]
    outputs += [f"{n!r}: {{dims: [rr], dtype: [acc, T], doc: d}}" for n in of["row_out"]]
    outputs += [f"{n!r}: {{dims: [cc], doc: d}}" for n in of["col_out"]]
    checks = [f"{{that: '{n} > 0', raises: InvalidProblem}}" for n in (*of["real"], *of["whole"])]
    promises = [f"{n!r}: []" for role in ("element_out", "row_out", "col_out") for n in of[role]]

    def block(rows: Iterable[str], mark: str = "") -> str:
        return "".join(f"  {mark}{row}\n" for row in rows)

    return (
        f"op: '{op}'\ncategory: '{category}'\ndirection: forward\nplan: {plan}\nfamily: row\n"
        "doc: d\nformula: f\n"
        "source: s\ndescriptor:\n  zs: {type: shape, doc: d}\n  zp: {type: bool, doc: d}\n" + block(fields)
        + "require:\n  - {that: len(zs) >= 1 and (zp or not zp), raises: Unsupported}\n" + block(checks, "- ")
        + "dtypes: [f32, f16]\ndims:\n  rr: {of: zs, axes: rest}\n  cc: {of: zs, axes: '(len(zs) - 1,)'}\n"
        + "inputs:\n  zx: {dims: [rr, cc], doc: d}\n" + block(inputs)
        + "outputs:\n  zy: {dims: [rr, cc], doc: d}\n" + block(outputs)
        + "program: |\n" + block(lines) + "reference: |\n" + block(lines)
        + "reproducibility:\n  zy: []\n" + block(promises)
        + "arch: {sm_80: {}}\ntests:\n  cases:\n    - {zs: [3, 4], zp: true}\n"
    )  # fmt: skip


def sources(op: Op, text: str) -> Iterator[KernelSource]:
    """The narrowest kernel and the wide one, each in another layout."""
    rows = rows_of(op, text)
    yield sources_of(rows[0], op)["gathered"]
    yield next(sources_of(row, op)["packed"] for row in rows if row.sku.schedule.wide)


def host_errors(source: KernelSource) -> str | None:
    """What the host device's compiler says to a source, without translating it."""
    builder = get_device("host")._builder  # type: ignore[attr-defined]
    flags = [*KERNEL_FLAGS, *CONTRACTION_FLAGS[source.contraction]]
    rest = [*_INCLUDES, *(f"-D{define}" for define in source.defines), "-fsyntax-only", "-xc++", "-"]
    export = _EXPORT.format(path=source.path, symbol=source.symbol)
    text = f'#line 1 "{source.path}"\n{with_line_directives(source.text)}{export}'
    log: str | None = builder.toolchain.run([*flags, *builder._precompiled(flags), *rest], text)
    return log


IMPORT_ALL = """
import dataclasses, inspect, sys
sys.path.insert(0, ".")
import made
made.import_all()
for name in made.MODULES:
    if name.endswith("Plan"):
        plan, descriptor = getattr(made, name), getattr(made, name.removesuffix("Plan") + "Descriptor")
        given = {"shape": (3, 4), "axis": 1, "has_gain": True}
        given = {"zs": (3, 4), "zp": True} if name.startswith("Probe") else given
        problem = descriptor(**given, element="f32")
        for field in dataclasses.fields(descriptor):
            wanted = "f32" if field.name == "element" else given.get(field.name, field.default)
            assert getattr(problem, field.name) == wanted
        plan.select(problem)
        assert list(inspect.signature(plan.run).parameters) == ["self", *plan.ARGUMENTS, "workspace", "stream"], name
        assert plan.run.__doc__ and plan.__doc__
print(len(made.MODULES))
"""


def imported(folder: Path) -> int:
    """Import every plan of package `made` in `folder`, select from each, and return how many names it has."""
    command = [sys.executable, "-W", "error", "-c", IMPORT_ALL]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def specs_with_every_word() -> dict[str, str]:
    """As few specs as give every usable word every role."""
    groups = [USABLE[at : at + EACH] for at in range(0, len(USABLE), EACH)]
    return {
        f"probe{shift}": spec_with(
            {role: groups[(shift + at) % len(groups)] for at, role in enumerate(ROLES)},
            f"probe{shift}",
            f"Probe{shift}Plan",
        )
        for shift in range(len(groups))
    }


def test_every_word_is_refused_or_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No word breaks C++ or Python as a tensor's, field's or line's name, on the host or, in some role, in NVRTC."""
    monkeypatch.chdir(tmp_path)
    Path("specs").mkdir()
    for name, text in specs_with_every_word().items():
        (Path("specs") / f"{name}.yaml").write_text(text)
    ops = ops_of(Path("specs"))
    files = texts(ops)
    write(files, Path("made"))
    assert imported(tmp_path) == 2 * len(ops)
    gathered, packed = zip(*(sources(op, files[f"probes/{op.name}.cu"]) for op in ops), strict=True)
    for source in (*gathered[::2], *packed[1::2]):
        assert host_errors(source) is None, source.path
    for source in packed[:: len(ROLES) - 1]:  # the words move on by a role from spec to spec
        assemble(source, "sm_90")


@pytest.mark.parametrize("role", ROLES)
def test_every_reserved_word_is_refused_in_every_role(role: str, tmp_path: Path) -> None:
    """The message names the word, whatever it was to be the name of."""
    reserved = [word for word in WORDS if is_reserved_in_programs(word)]
    assert len(reserved) > 100

    def refused(*words: str) -> set[str]:
        (tmp_path / "probe.yaml").write_text(spec_with({role: [*words]}))
        with pytest.raises(SpecError) as caught:
            load_folder(tmp_path)
        alone = words if len(words) == 1 and "not an expression" in str(caught.value) else ()
        return {word for word in words if repr(word) in str(caught.value)} | {*alone}

    # As many at a time as one program has room for; what stands in its lines is read until the first that is wrong.
    found = set[str]().union(*(refused(*reserved[at : at + 25]) for at in range(0, len(reserved), 25)))
    found |= set[str]().union(*(refused(word) for word in reserved if word not in found))
    assert set(reserved) == found


def test_ops_of_every_name_are_refused_or_compile(tmp_path: Path) -> None:
    """An op's name is a Python module's and a function's; kernels have it in the names of their entry points only."""
    words = [word for word in WORDS if not is_reserved_op(word)]
    assert {"functions", "class", "import"}.isdisjoint(words)
    chosen = ["exp", "abs", "gamma", "kernel", "isnan", "float4", "size_t", "std", *random.Random(0).sample(words, 12)]
    specs, made = tmp_path / "specs", tmp_path / "made"
    specs.mkdir()
    for at, word in enumerate(dict.fromkeys(chosen)):
        text = spec_with({"col_out": ["e"], "row_out": ["f"]}, word, f"Probe{at}Plan", f"c{at}")
        (specs / f"{word}.yaml").write_text(text)
    ops = ops_of(specs)
    files = texts(ops)
    write(files, made)
    assert imported(tmp_path) == 2 * len(ops)
    for op in ops:
        assert host_errors(next(sources(op, files[f"{op.category}/{op.name}.cu"]))) is None, op.name
    for word in ("exp", "gamma", "kernel"):
        op = next(op for op in ops if op.name == word)
        assemble(next(sources(op, files[f"{op.category}/{op.name}.cu"])), "sm_90")


@pytest.mark.parametrize("category", ["import_all", "class", "a__b"])
def test_categories_that_break_the_package_are_refused(category: str) -> None:
    """A category's folder becomes an attribute of the package that holds it."""
    assert is_reserved_category(category)


LIKE_GENERATED = {
    "element_in": ["v", "v_slice", "probe_args", "kernel_args", "args"],
    "element_out": ["w", "w_pack"],
    "row_in": ["t", "t_next"],
    "row_out": ["u", "has_v"],
    "col_in": ["a", "a_slice"],
    "col_out": ["b", "b_parts", "b_sum"],
    "optional": ["o", "o_type"],
    "real": ["rr_size", "c_reduced"],
    "whole": ["v_ahead", "index_cc"],
    "element_line": ["v_row", "cc_index", "o_of"],
    "row_line": ["w_row", "c_part"],
    "reduction": ["c", "c_sum", "c_"],
}


def test_names_that_look_like_generated_ones_compile(tmp_path: Path) -> None:
    """What the generator makes of a name is no name that a spec can give."""
    (tmp_path / "probe.yaml").write_text(spec_with(LIKE_GENERATED))
    (op,) = ops_of(tmp_path)
    for source in sources(op, texts([op])["probes/probe.cu"]):
        assert host_errors(source) is None


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"element_in": ["v"], "real": ["v"]}, "'v' is already a name of descriptor"),
        ({"element_in": ["cc"]}, "'cc' is already a name of dims"),
        ({"row_out": ["v"], "real": ["v_dtype"]}, "'v_dtype' is how functions call the type of 'v'"),
    ],
)
def test_names_given_twice_are_refused(names: dict[str, list[str]], message: str, tmp_path: Path) -> None:
    (tmp_path / "probe.yaml").write_text(spec_with(names))
    with pytest.raises(SpecError) as caught:
        load_folder(tmp_path)
    assert str(caught.value).partition(": ")[2] == f"{message}; choose another name"


def test_identifiers_that_look_made_of_a_name_are_made_of_one(tmp_path: Path) -> None:
    """In a kernel whose spec's names all begin with `zq`, no other identifier ends as a spec's, or as what is made of
    one, unless a template calls it by its namespace: so no local can hide what a template calls."""
    text = spec_with({role: [f"zq{chr(97 + at)}"] for at, role in enumerate(ROLES)}, "zqop")
    names = "zx zy zs zp rr cc aa bb".split()  # noqa: SIM905
    (tmp_path / "probe.yaml").write_text(re.sub(rf"\b({'|'.join(names)})\b", r"zq\1", text))
    (op,) = ops_of(tmp_path)
    code = re.sub(r"//.*", "", texts([op])["probes/zqop.cu"])
    words = set(re.findall(r"(?<!::)\b[a-z]\w*", code))
    ends = (word.rpartition("_") for word in words)
    made = {f"{head}_{end}" for head, _, end in ends if head and (not end or end in PARTS)}
    assert len(made) > 30 and {word for word in made if not word.startswith("zq")} == set()


def test_names_of_inner_reductions_meet_no_other(tmp_path: Path) -> None:
    """A reduction within a line gets a name that nobody has: not the author, not the generated code."""
    program = ["v = zx - sum(zx, cc)", "v_sum = mean(zx, cc) * sum(zx * 2.0, cc)", "w_mean_part = v + v_sum",
               "w = w_mean_part / mean(w_mean_part, cc)", "zc = sum(zx * sum(w, cc), rr)", "zy = w"]  # fmt: skip
    text = spec_with({"col_out": ["zc"]})
    start = text.index("program: |\n") + 11
    head, tail = text[:start], text[text.index("reference: |\n") :]
    (tmp_path / "probe.yaml").write_text(head + "".join(f"  {line}\n" for line in program) + tail)
    (op,) = ops_of(tmp_path)
    for source in sources(op, texts([op])["probes/probe.cu"]):
        assert host_errors(source) is None


# Texts that try to leave the comment or the docstring they are printed into.

HARMLESS = [
    "*/ int evil; /*",
    "// # include <evil>",
    "{{ 7 * 7 }}",
    "{% raw %} {% include 'x' %} {# c #}",
    "${evil} $(evil)",
    "%s %(x)s {evil} {0}",
    "''' evil '''",
    '" evil',
    "it's `evil`",
    "<script>",
    "é 漢字 ∑ 🙂",
    "#line 1",
    "@generated by evil",
    'ends in "quotes"',
    "??= ??'",
    "a" * 390,
]
REFUSED = [
    '""" + evil() + """',
    'a """',
    "a \\",
    "\\N{DASH}",
    "\\x41",
    "a ??/",
    "\u202e evil",
    "a\u2028b",
    "a\u0085b",
    "a\x00b",
    "a\x1bb",
    "a\nimport evil",
    "",
    "a" * 401,
]
PLACES = [("doc: Rows divided by their sums.", "doc: {}"), ("source: Nobody, A Sample (2000)", "source: {}"),
          ("doc: extents of x and y", "doc: {}"), ("doc: what is divided", "doc: {}"),
          ("formula: |\n  total = sum(x)\n  y     = x / total * gain", "formula: {}")]  # fmt: skip


def _quoted(text: str) -> str:
    escaped = (
        text.replace("\\", "\\\\")
        .replace('"', '\\"')
        .replace("\n", "\\n")
        .replace("\x00", "\\0")
        .replace("\x1b", "\\e")
    )
    return '"' + escaped.replace("\u202e", "\\u202e").replace("\u2028", "\\L").replace("\u0085", "\\N") + '"'


def _statements(text: str) -> str:
    """The syntax tree of a module without its docstrings, and without the texts that become some."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "rt.field":
            assert isinstance(node.args.pop(0), ast.Constant)
        if isinstance(node, ast.keyword) and node.arg == "doc":
            assert isinstance(node.value, ast.Constant)
            node.value = ast.Constant("")
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            assert ast.get_docstring(node) is None or isinstance(node.body.pop(0), ast.Expr)
    return ast.dump(tree)


def _code(text: str) -> list[str]:
    """The lines of a kernel that are no comments."""
    return [line for line in text.splitlines() if not line.startswith("//")]


@pytest.mark.parametrize("text", HARMLESS)
def test_texts_stay_in_their_comments(project: Project, text: str) -> None:
    """Whatever an author writes into a text, the statements that are generated are the same."""
    plain = texts(ops_of(project()))
    folder = project()
    spec = (folder / F).read_text()
    for old, new in PLACES:
        assert old in spec
        spec = spec.replace(old, new.format(_quoted(text)), 1)
    (folder / F).write_text(spec)
    files = texts(ops_of(folder))
    assert _statements(files["sample/scale.py"]) == _statements(plain["sample/scale.py"])
    assert _code(files["sample/scale.cu"]) == _code(plain["sample/scale.cu"])
    assert text in files["sample/scale.py"]


def test_texts_compile_and_import(project: Project, tmp_path: Path) -> None:
    """All the harmless texts at once, through both compilers and Python's importer with warnings as errors."""
    folder = project(F, PLACES[-1][0], "formula: |\n" + "".join(f"  {text}\n" for text in HARMLESS))
    ops = ops_of(folder)
    files = texts(ops)
    write(files, Path("made"))
    assert imported(tmp_path) == 4
    for source in sources(ops[0], files["sample/scale.cu"]):
        assert host_errors(source) is None
    assemble(next(sources(ops[0], files["sample/scale.cu"])), "sm_90")


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
@pytest.mark.parametrize(
    ("old", "new"), PLACES, ids=[new.partition(":")[0] + str(at) for at, (_, new) in enumerate(PLACES)]
)
def test_texts_that_end_their_comment_are_refused(project: Project, text: str, old: str, new: str) -> None:
    """One line that says where; a formula alone may have several lines and be long."""
    if new.startswith("formula") and text in ("a\nimport evil", "a" * 401):
        return
    message = refusal(project(F, old, new.format(_quoted(text))))
    assert message.startswith(f"specs/{F}:")
    assert "\n" not in message


@pytest.mark.parametrize(
    "name", ["a\nint evil;\n.yaml", 'a""".yaml', "a\\.yaml", "a\r.yaml", "é.yaml", "a';b.yaml", "$(x).yaml"]
)
def test_spec_files_whose_path_is_no_name_are_refused(project: Project, name: str) -> None:
    """The path of a spec is printed into a comment and a docstring as well."""
    folder = project()
    (folder / F).rename(folder / name)
    message = refusal(folder)
    assert "generated code names this path" in message
    assert "\n" not in message


@pytest.mark.parametrize("key", ["op", "category", "plan"])
@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "/tmp/evil",
        "a/b",
        "a.b",
        "..",
        ".",
        "",
        "a b",
        "a\\nb",
        "a-b",
        "\uff41",
        "é",
        "con:",
        "a" * 80,
        "1a",
        "_a",
    ],
)
def test_nothing_is_written_outside_of_the_output_folder(project: Project, key: str, name: str) -> None:
    """Names that become paths are identifiers, so no spec chooses where its files go."""
    lines = (SAMPLES / F).read_text().splitlines()
    old = next(line for line in lines if line.startswith(f"{key}: "))
    message = refusal(project(F, old, f'{key}: "{name}"'))
    assert "\n" not in message
    with pytest.raises(SpecError):
        generate(Path("specs"), Path("out"))
    assert not Path("out").exists()


# Specs that are too much: each is answered in seconds, with one line or with code.

PROGRAM = "  total = sum(x, cols)\n  half_of = total * 2.0\n"
BOMBS = {
    "aliases": ("bench:", "bench: &a\n  zzz: *a", "anchor '&a'"),
    "merge keys": ("bench:", "<<: {a: 1}\nbench:", "merge key"),
    "tags": ("bench:", "bench: !!python/object/apply:os.system [evil]\nevil:", "tag "),
    "deep yaml": (
        "cases:\n    - {shape: [300, 4]}",
        "cases: " + "[" * 5000 + "]" * 5000,
        "nested deeper than 32 levels",
    ),
    "huge integer": ("axis: 1}", f"axis: {'9' * 5000}}}", "does not fit 64 bits"),
    "infinite float": ("ranges: {x: [1.0, 2.0]}", "ranges: {x: [1.0, 1e999]}", "does not fit 64 bits"),
    "huge file": ("bench:", "# " + "a" * 300_000 + "\nbench:", "larger than 262144 bytes"),
    "long program": (PROGRAM, PROGRAM + "".join(f"  a{n} = x + 1.0\n" for n in range(400)), "needs a length <= 4000"),
    "deep program": (PROGRAM, PROGRAM + f"  z = {'-' * 1500}x\n", "nests deeper than 100 operators"),
    "powers of powers": (PROGRAM, PROGRAM + f"  z = {'(' * 60}x{'**16)' * 60}\n", "an operand written out 16 times"),
    "huge literal": (PROGRAM, PROGRAM + f"  z = x * 0x{'f' * 3000}\n", "a literal must fit in 64 bits"),
    "deep condition": ("len(shape) >= 1", "not " * 200 + "axis", "nests deeper than 100 operators"),
    "huge condition": ("len(shape) >= 1", f"{'9' * 900} > axis", "a literal must fit in 64 bits"),
    "long condition": ("len(shape) >= 1", "not " * 900 + "axis", "needs a length <= 1000"),
}


@pytest.mark.parametrize(("old", "new", "message"), BOMBS.values(), ids=BOMBS)
def test_bombs_are_refused_at_once(project: Project, old: str, new: str, message: str) -> None:
    """Neither memory nor time: what is too large is refused before it is expanded."""
    folder = project(F, old, new)
    started = time.process_time()
    said = refusal(folder)
    assert time.process_time() - started < 2
    assert said.startswith(f"specs/{F}:")
    assert message in said
    assert "\n" not in said
    assert len(said) < 300


@pytest.mark.parametrize("shape", ["[" + "1, " * 60 + "1]", "[1000000000, 1000000000, 1000000000]", "[]", "[-1]"])
def test_shapes_of_any_rank_and_size_cost_nothing_to_generate(project: Project, shape: str) -> None:
    """The shapes that a spec is tested on are not allocated when it is generated."""
    started = time.process_time()
    texts(ops_of(project(F, "shape: [3, 4]", f"shape: {shape}")))
    assert time.process_time() - started < 5


def test_a_program_as_large_as_it_may_be_generates(project: Project) -> None:
    """A program just below the limits goes through every reading, within seconds."""
    lines = [f"a{n} = x ** 4 + a{n - 1} * 2.0" if n else "a0 = x * gain" for n in range(90)]
    nested = "y = " + "(" * 45 + "x" + " + a89) * 2.0" * 45
    folder = project(
        F, PROGRAM + "  y = x / total * gain", "".join(f"  {x}\n" for x in [*lines, "total = sum(x, cols)", nested])
    )
    started = time.process_time()
    (op, _) = ops_of(folder)
    text = texts([op])["sample/scale.cu"]
    assert time.process_time() - started < 5
    assert host_errors(next(sources(op, text))) is None


def test_nothing_is_run_when_specs_are_read(project: Project) -> None:
    """No text of a spec reaches Python's evaluator while specs are loaded, lowered and rendered."""
    folder, seen = project(), list[str]()

    def watch(event: str, args: tuple[object, ...]) -> None:
        if event in ("exec", "os.system", "subprocess.Popen", "import") and active:
            seen.append(event)

    active = False
    texts(ops_of(folder))  # imports what is imported late
    sys.addaudithook(watch)
    active = True
    ops_of(folder)
    active = False
    assert not seen


# Specs that are unusual and good.

LAST = "y = x / total * gain\nreference"


def last(line: str) -> tuple[str, str]:
    """Another last line."""
    return LAST, f"{line}\nreference"


UNUSUAL = {
    "wide gain": [("dtype: [T, acc]", "dtype: f64")],
    "whole gain": [("dtype: [T, acc]", "dtype: i32")],
    "whole output": [("may_alias: [x]", "dtype: i32"), last("y = index(cols) + where(x > 0.0, 1, 0)")],
    "optional elements": [("  x: {dims: [rows, cols]", "  x: {dims: [rows, cols], optional: has_gain, default: 0")],
    "in place": [("may_alias: [x]", "updates: x"), ("check_order: [x, gain, y, total]", "")],
    "constant": [last("y = 1")],
    "copy": [last("y = x")],
    "bool per element": [("total * 2.0", "x > total"), last("y = where(half_of, x, 0.0)")],
    "bool per row": [("total * 2.0", "total > 0.0"), last("y = where(half_of, x, 0.0)")],
    "sums of whole numbers": [("total * 2.0", "sum(acc(index(cols)), cols) + max(acc(index(cols)), cols)")],
    "scalars": [last("y = x * axis + where(has_gain, 1.0, 2.0) + size(rows)")],
    "casts": [last("y = T(x) + acc(x) + f16(x) + bf16(x) + f32(x) + f64(x)")],
    "casts of doubles": [
        ("dtypes: [f32, f16]", "dtypes: [f64]"),
        ("    f16: {c1: 2.0}", "    f64: {c1: 2.0}"),
        last("y = T(x) + acc(x) + f16(x) + bf16(x) + f32(x) + f64(x)"),
    ],
    "literals beyond float": [last("y = x * 1e300 + 1e-320")],
}


@pytest.mark.parametrize("edits", UNUSUAL.values(), ids=UNUSUAL)
def test_what_is_accepted_compiles(project: Project, edits: list[tuple[str, str]]) -> None:
    """Nothing that the checks let through ends as a compiler's error, optional tensors there or not."""
    folder = project()
    text = (folder / F).read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    if LAST not in text:  # the gain has an effect all the same
        text = text.replace("total = sum(x, cols)", "total = sum(x * gain, cols)", 1)
    (folder / F).write_text(text)
    (op,) = lower_all([load_spec(folder / F)])
    for source in sources(op, texts([op])["sample/scale.cu"]):
        for there in "10":
            defines = tuple(re.sub(r"(BARACUDA_HAS_\w+)=1", rf"\1={there}", define) for define in source.defines)
            assert host_errors(replace(source, defines=defines)) is None
