"""The CUDA text of the model's parts: filters for templates of kernels."""

from __future__ import annotations

from collections.abc import Callable

from jinja2 import pass_context
from jinja2.runtime import Context

from baracuda.runtime.arrays.element import ElementKind

from ..lower.map_op import Body, Sum
from ..lower.map_op import Store as CellStore
from ..lower.op import ColumnSum, Reduction, Scalar, Tensor, Value
from ..program import Expr, kind_of
from ..program.cuda import to_cuda
from ..program.kinds import Kinds
from ..program.ops import OPS
from ..program.tree import Call
from ..text import Code, Name, python

Optional = Tensor | ColumnSum | Sum

_VALUE = {"float": Code("acc_t"), "int": Code("i64"), "bool": Code("bool")}
_WORD = {"float": Code("double"), "int": Code("long long"), "bool": Code("long long")}
_STORED = {"T": "T", "acc": "acc_of<T>", "i64": "i64", "i32": "int"}
_STRUCT = {"element": Code("PerElement"), "row": Code("PerRow"), "col": Code("PerCol"), "array": Code("Strided")}
# How each row reduction starts, steps, reduces and ends.
_REDUCTIONS = {
    "sum": ("acc_t(0)", "{part} + {term}", "Sum<acc_t>", "{total}"),
    "mean": ("acc_t(0)", "{part} + {term}", "Sum<acc_t>", "mean_of({total}, space)"),
    "max": ("-math::infinity<acc_t>()", "math::maximum({part}, {term})", "Max<acc_t>", "{total}"),
    "min": ("math::infinity<acc_t>()", "math::minimum({part}, {term})", "Min<acc_t>", "{total}"),
}
_LOOSE = ("+", "-", "<", "<=", ">", ">=", "==", "!=", "and", "or")  # bind no tighter than the addition of a sum
_BODY = {
    "cells": (Code("Cells"), Code("The values of cells.")),
    "terms": (Code("Terms"), Code("The terms of sums, and the values of their cells.")),
    "epilogue": (Code("Epilogue"), Code("The outputs of sums.")),
}


def has(part: Optional) -> Code:
    """The constant of an optional part's presence, or nothing."""
    return Code(f"HAS_{part.name.upper()}" if part.optional else "")


def if_present(part: Optional) -> Code:
    return Code(f"if ({has(part)}) " if part.optional else "")


def and_present(part: Optional) -> Code:
    return Code(f" && {has(part)}" if part.optional else "")


def unless_absent(tensor: Tensor) -> Code:
    return Code(f"!{has(tensor)} ? {absent(tensor)} : " if tensor.optional else "")


def absent(tensor: Tensor) -> Code:
    """The value of an absent tensor's elements."""
    number = python(tensor.default)
    return Code(f"acc_t({number})") if tensor.kind == "float" else number


def value_type(part: Tensor | Scalar | Value) -> Code:
    """The type that the program computes with."""
    return _VALUE[part.kind]


def word(scalar: Scalar) -> Code:
    """The 8-byte type of a scalar argument."""
    return _WORD[scalar.kind]


def stored_type(tensor: Tensor) -> Code:
    """The type of a tensor's elements in memory, in terms of T."""
    return Code(f"{tensor.name}_type<T>") if tensor.chosen else dtype(tensor.dtypes[0])


def dtype(name: str) -> Code:
    return Code(_STORED.get(name) or ElementKind(name).row.cuda)


def type_macro(tensor: Tensor) -> Name:
    """The macro of a stored type that the caller chooses."""
    return Name(f"BARACUDA_TYPE_{tensor.name.upper()}")


def path(header: str) -> Code:
    """The path of a header, which has been checked."""
    return Code(header)


def const(tensor: Tensor) -> Code:
    return Code("const " if tensor.role == "in" else "")


def struct(tensor: Tensor) -> Code:
    """The template of a tensor's argument."""
    return _STRUCT[tensor.over]


def in_registers(tensor: Tensor) -> Code:
    """The constant that says whether a row's thread has all of its elements in registers."""
    return Code("ROW_INVARIANT" if tensor.over == "col" else "IN_REGISTERS")


def base(tensor: Tensor) -> Code:
    """The address of the tensor's elements in a row."""
    return Code(f"{tensor.name}_row" if tensor.over == "element" else f"args.{tensor.local}.data")


def overread(tensor: Tensor) -> Code:
    """Whether whole packs around a row may be read: not if other blocks may be updating theirs."""
    return Code("false" if tensor.role == "inout" else f"MISALIGNED && args.{tensor.local}.overreadable(row)")


def reread_layout(tensor: Tensor) -> Code:
    """The layout of reads in a misaligned pass: of a tensor that is updated, a thread reads its own columns only."""
    return Code("MISALIGNED ? Layout::STRIDED : LAYOUT" if tensor.role == "inout" else "LAYOUT")


@pass_context
def cuda(context: Context, expr: Expr) -> Code:
    """An expression of the op's program."""
    return to_cuda(expr, _kinds(context))


def start(reduction: Reduction) -> Code:
    """The initial value of a thread's part."""
    return Code(_REDUCTIONS[reduction.kind][0])


@pass_context
def step(context: Context, part: Reduction | ColumnSum) -> Code:
    """The new value of a thread's part after one more element; a sum of products rounds once."""
    kinds, columns = _kinds(context), isinstance(part, ColumnSum)
    kind = "sum" if isinstance(part, ColumnSum) else part.kind
    total = f"{part.name}_sum[k][i]" if columns else f"{part.name}_part"
    match part.arg:
        case Call(op="mul", args=(a, b)) if kind in ("sum", "mean") and _are_floats(a, b, kinds=kinds):
            return Code(f"math::fma({to_cuda(a, kinds)}, {to_cuda(b, kinds)}, {total})")
        case Call(op=op) if op == "where" or OPS[op].symbol in _LOOSE:
            return Code(_REDUCTIONS[kind][1].format(part=total, term=f"({_term(part.arg, kinds)})"))
    return Code(_REDUCTIONS[kind][1].format(part=total, term=_term(part.arg, kinds)))


def finish(reduction: Reduction) -> Code:
    """The reduction's value, from the parts of all threads of the row."""
    _, _, functor, result = _REDUCTIONS[reduction.kind]
    return Code(result.format(total=f"baracuda::reduce_row<Tile, {functor}>({reduction.name}_part, phase)"))


def body_doc(name: str) -> Code:
    """The comment of a struct of packs of the map family."""
    return _BODY[name][1]


def body_struct(name: str) -> Code:
    """Its name."""
    return _BODY[name][0]


def beside_lane(body: Body) -> Code:
    """What a program has of the sums at a lane: their values, or terms to set."""
    values = ", const Reduced<ValueOf>& reduced" if body.known else ""
    return Code(values + (", Reduced<ValueOf>& term" if body.sums else ""))


def monoid(part: Sum) -> Code:
    """How terms of a map are reduced."""
    return Code("Sum<acc_t, false>" if part.zero_if_missing else "Sum<acc_t>")


@pass_context
def stored_value(context: Context, store: CellStore) -> Code:
    """What a lane gets."""
    if store.expr is None:
        return Code(f"lane.of({store.copies}_slice)")
    return Code(f"{stored_type(store.tensor)}({to_cuda(store.expr, _kinds(context))})")


@pass_context
def term(context: Context, part: Sum) -> Code:
    """What a cell adds to a sum."""
    return Code(_term(part.arg, _kinds(context)))


def _are_floats(*exprs: Expr, kinds: Kinds) -> bool:
    return all(kind_of(expr, kinds) == "float" for expr in exprs)


def _term(expr: Expr, kinds: Kinds) -> str:
    """A term of a sum, which has the accumulator's type."""
    text = to_cuda(expr, kinds)
    return f"acc_t({text})" if kind_of(expr, kinds) == "int" else text


def _kinds(context: Context) -> Kinds:
    kinds: Kinds = context["op"].kinds
    return kinds


_FILTERS: tuple[Callable[..., Code], ...] = (
    *(path, has, if_present, and_present, unless_absent, absent, value_type, word, stored_type, dtype, type_macro),
    *(const, struct, in_registers, base, overread, reread_layout, cuda, start, step, finish),
    *(body_doc, body_struct, beside_lane, stored_value, term, monoid),
)
FILTERS = {function.__name__: function for function in _FILTERS}
