"""The CUDA text of the model's parts: filters for templates of kernels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context

from baracuda.runtime.arrays.element import ElementKind

from ..families.map.bounds import has_bounds
from ..families.map.op import Body, MapOp, PlacedRead, Sum
from ..families.map.op import Store as CellStore
from ..families.row.op import ColumnSum, Look, Reduction, RowOp, Store
from ..lower.op import Op, Scalar, Tensor, Value
from ..program import Expr, kind_of
from ..program.cuda import to_cuda
from ..program.kinds import Kinds
from ..program.ops import OPS
from ..program.tree import Call, Cast, Const, Query, Read
from ..program.tree import Name as FieldName
from ..spec.names import in_kernel
from ..text import Code, Name, python

Optional = Tensor | ColumnSum | Sum

_VALUE = {"float": Code("acc_t"), "int": Code("i64"), "bool": Code("bool"), "complex": Code("Complex<acc_t>")}
_WORD = {"float": Code("double"), "int": Code("long long"), "bool": Code("long long")}
_STORED = {"T": "T", "acc": "acc_of<T>", "i64": "i64", "i32": "int"}
_STRUCT = {"element": Code("PerElement"), "row": Code("PerRow"), "col": Code("PerCol"), "array": Code("Strided")}
_OPERANDS = {("element", "in"): "ElementInput", ("element", "out"): "ElementOutput", ("row", "in"): "RowInput"}
_OPERANDS |= {("element", "inout"): "ElementUpdated", ("col", "in"): "ColumnInput"}
# How each row reduction starts and steps.
_REDUCTIONS = {
    "sum": ("acc_t(0)", "{part} + {term}"),
    "mean": ("acc_t(0)", "{part} + {term}"),
    "max": ("-math::infinity<acc_t>()", "math::maximum({part}, {term})"),
    "min": ("math::infinity<acc_t>()", "math::minimum({part}, {term})"),
}
_LOOSE = ("+", "-", "<", "<=", ">", ">=", "==", "!=", "and", "or")  # bind no tighter than the addition of a sum
_BODY = {
    "cells": (Code("Cells"), Code("The values of cells.")),
    "terms": (Code("Terms"), Code("The terms of sums, and the values of their cells.")),
    "weights": (Code("Weights"), Code("What a part of a sum is multiplied with, as the term of its sum.")),
    "sinks": (Code("Sinks"), Code("The terms of what is reduced, and the outputs of cells.")),
    "late_sinks": (Code("LateSinks"), Code("The terms of what rests on that.")),
    "bands": (Code("Bands"), Code("The outputs of what is reduced over rows.")),
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
    if tensor.kind == "bool":
        return Code("true" if tensor.default else "false")
    return Code(f"{value_type(tensor)}({number})") if tensor.kind in ("float", "complex") else number


def value_type(part: Tensor | Scalar | Value | PlacedRead | Sum) -> Code:
    """The type that the program computes with."""
    return _VALUE[part.kind]


def word(scalar: Scalar, divisors: Collection[str] = ()) -> Code:
    """The 8-byte type of a scalar argument."""
    return Code("Divisor") if scalar.name in divisors else _WORD[scalar.kind]


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


def operand(part: Tensor | ColumnSum) -> Code:
    """What a row program calls a tensor, or the sum of a value down each column."""
    return Code(f"{part.name}_{'sum' if isinstance(part, ColumnSum) else 'tensor'}")


def operands(parts: Iterable[Tensor | ColumnSum]) -> Code:
    return Code(", ".join(map(operand, parts)))


def operand_type(part: Tensor | ColumnSum) -> Code:
    """The type that this is a name of."""
    if isinstance(part, ColumnSum):
        kind, member = "ColumnSum", f"{part.name}_parts"
    else:
        kind, member = _OPERANDS[part.over, part.role], str(part.local)
    return Code(f"{kind}<&kernel_args::{member}{', ' * bool(part.optional)}{has(part)}>")


@pass_context
def cuda(context: Context, expr: Expr) -> Code:
    """An expression of the op's program."""
    return _text(expr, context)


@pass_context
def start(context: Context, reduction: Reduction) -> Code:
    """The initial value of a thread's part."""
    if isinstance(reduction.arg, Read):
        return _element_of_row("own", reduction.arg, context)
    return Code(_REDUCTIONS[reduction.kind][0])


@pass_context
def step(context: Context, part: Reduction | ColumnSum) -> Code:
    """The new value of a thread's part after one more element; a sum of products rounds once."""
    kinds = _kinds(context)
    kind, total = ("sum", f"{operand(part)}::part(e)") if isinstance(part, ColumnSum) else (part.kind, part.local)
    match part.arg:
        case Call(op="mul", args=(a, b)) if kind in ("sum", "mean") and _are_floats(a, b, kinds=kinds):
            return Code(f"math::fma({_text(a, context)}, {_text(b, context)}, {total})")
        case x if isinstance(part, Reduction) and part.top:
            return Code(f"{total} + exp_below({_text(x, context)}, {part.top})")
        case Call(op=op) if op == "where" or OPS[op].symbol in _LOOSE:
            return Code(_REDUCTIONS[kind][1].format(part=total, term=f"({_term(part.arg, context)})"))
    return Code(_REDUCTIONS[kind][1].format(part=total, term=_term(part.arg, context)))


@pass_context
def near_places(context: Context, look: Look) -> Code:
    """Whether a column that is compared with is among those of the pack that begins at `col`."""
    return Code(" || ".join(f"in_pack({_text(place, context)}, col)" for place in look.places))


def operand_of(look: Look, reduction: Reduction) -> Code:
    """The array whose largest elements it finds."""
    return next(operand(t) for t in look.reads if FieldName(str(t.name)) == reduction.arg)


@pass_context
def member(context: Context, part: Query | Scalar | Tensor | Reduction | Value) -> Code:
    """The declaration of what a row program holds."""
    match part:
        case Query(what="size", of=of):
            return Code(f"const i64 {of}_size = args.space.{'rows' if of == context['op'].rows else 'cols'}")
        case Query(of=of):
            return Code(f"i64 {of}_index")
        case Scalar():
            return Code(f"const {value_type(part)} {part.local} = {value_type(part)}(args.{part.local})")
        case Reduction():
            return Code(f"acc_t {part.local}")
    return Code(f"{value_type(part)} {part.local}")


def read(tensor: Tensor, where: str) -> Code:
    """The tensor's value of the row or element `where`."""
    return Code(f"{unless_absent(tensor)}{value_type(tensor)}({operand(tensor)}::in({where}))")


@pass_context
def assignment(context: Context, part: Query | Tensor | Value) -> Code:
    """How a row program gets a value of a row."""
    match part:
        case Query(of=of):
            return Code(f"{of}_index = row.index")
        case Tensor():
            value = read(part, "row")
        case Value(expr=Read() as element):
            value = _element_of_row("element", element, context)
        case Value():
            value = to_cuda(part.expr, _kinds(context), result=_result(context["op"]))
    return Code(f"{part.local} = {value}")


def _element_of_row(method: str, read: Read, context: Context) -> Code:
    result = _result(context["op"])
    at, other = (to_cuda(x, _kinds(context), result=result) for x in (*read.places, read.outside))
    return Code(f"row.template {method}<{read.tensor}_tensor>(args, {at}, {other})")


@pass_context
def part(context: Context, of: Reduction) -> Code:
    """What a thread has of what is reduced over a row."""
    op: RowOp = context["op"]
    reduced, how = f", args.{of.name}_reduced" if op.column_sums else "", of.kind.capitalize()
    if of.top:
        together = next(p.reductions for p in op.passes if of in p.reductions)
        how = f"Below<{[r.local for r in together].index(of.top)}>::{how}"
    return Code(f"Part<{how}>{{{of.local}{reduced}}}")


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


def each(body: Body) -> Code:
    """The function that makes every lane."""
    if not (body.random and body.indices):
        return Code("each")
    return Code(f"template each_counted<{', '.join(f'Args::{d}_index' for d in body.indices)}>")


def monoid(part: Sum) -> Code:
    """How terms of a map are reduced."""
    values = {"float": "acc_t", "int": "i64"}.get(part.of, "")
    match part.how:
        case "sum" if part.of == "int":
            return Code("IntSum")
        case "sum":
            return Code("Sum<acc_t, false>" if part.zero_if_missing else "Sum<acc_t>")
        case "argmax" | "argmin":
            return Code(f"{'ArgMax' if part.how == 'argmax' else 'ArgMin'}<{values}, index_t>")
        case "any" | "all":
            return Code(part.how.capitalize())
        case "spread":
            return Code("Spread<acc_t>")
    return Code(f"{part.how.capitalize()}<{values}>")


@pass_context
def stored_value(context: Context, store: CellStore | Store) -> Code:
    """What is stored: a value in the tensor's type, or the lane that is copied."""
    if store.expr is None:
        return Code(f"lane.raw(args.{store.copies}_)")
    stored = stored_type(store.tensor)
    is_rounded = isinstance(store.expr, Cast) and store.expr.to == stored  # as storing does
    value = _text(store.expr.arg if isinstance(store.expr, Cast) and is_rounded else store.expr, context, stored)
    if store.tensor.kind == "float" and kind_of(store.expr, _kinds(context)) == "int":
        value = Code(f"acc_t({value})")  # a 16-bit float takes no ints
    return Code(f"static_cast<{stored}>({value})" if " " in stored else f"{stored}({value})")


def number_in(operand: str, op: MapOp) -> int:
    """The number of an operand of the walk."""
    return op.operands.index(Name(operand))


def is_operand(tensor: Tensor, op: MapOp) -> bool:
    """Whether a tensor has an offset for each cell."""
    return tensor.local in op.operands


def argument(tensor: Tensor, op: MapOp) -> Code:
    """The type of a tensor's argument."""
    held = f"{const(tensor)}{stored_type(tensor)}"
    if not is_operand(tensor, op):
        return Code(f"{held}*")
    struct = "Arrays" if tensor.over == "list" else "Array"
    return Code(f"{struct}<{held}, {number_in(tensor.local, op)}{', ' * bool(tensor.optional)}{has(tensor)}>")


def arrays(body: Body, op: MapOp) -> Code:
    """What a body reads, what it writes, and what it reads at computed places."""
    read, written = (
        ", ".join(f"&Args::{tensor.local}" for tensor in tensors)
        for tensors in (body.reads, [store.tensor for store in body.stores])
    )
    placed = (placed_value(of, op, number) for number, of in enumerate(body.placed))
    return Code(", ".join([f"Reads<{read}>", f"Writes<{written}>", *placed]))


def placed_value(read: PlacedRead, op: MapOp, number: int) -> Code:
    """What holds the elements that a body reads at computed places, and how these change from cell to cell."""
    args = ["whole_t" if op.bounds and has_bounds(read) else "i64"]
    if read.swapped is not None:
        dim, mask = read.swapped
        change, args = "Swapped", [*args, f"Args::{dim}_index", str(mask)]
    else:
        change = "EvenPieces" if read.pieces else "Even"
        args += [str(sum(1 << axis for axis in read.same))] if read.pieces else []
        args += [f"Args::{n}" if n.removesuffix("_index") in op.indices else str(number_in(n, op)) for n in read.still]
    places = f"{change}<{', '.join(args)}>"
    return Code(f"PlacedValue<{value_type(read)}, {stored_type(read.tensor)}, {number}, {places}>")


@pass_context
def held_type(context: Context, part: Scalar | Value) -> Code:
    """The type of a value that a map computes, or of a field that it reads: whole numbers may be short."""
    if part.kind != "int" or not context["op"].bounds:
        return value_type(part)
    if isinstance(part, Value):
        return Code("auto")
    return Code("i64" if part.name in context["op"].long_scalars else "whole_t")


@pass_context
def perhaps(context: Context, scalar: Scalar, unused: str) -> Code:
    """What marks a field that may be unused: kernels divide by arguments."""
    return Code("[[maybe_unused]] " if scalar.name in context["op"].divisors else unused)


@pass_context
def known_type(context: Context, part: Sum) -> Code:
    """The type of what has been reduced: places of extremes may be short."""
    return Code("whole_t") if part.place and context["op"].bounds else value_type(part)


def size_type(op: MapOp) -> Code:
    """That of the size of a dim."""
    return Code("whole_t" if op.bounds else "i64")


def index_numbers(op: MapOp) -> Code:
    """The numbers of the operands that are indices."""
    return Code(", ".join(f"{d}_index = {number_in(f'{d}_index', op)}" for d in op.indices))


def walk_headers(op: MapOp) -> Code:
    """The headers of a map's walks, each for the passes that take it, where others take another."""
    lines = []
    for path, numbers in op.headers:
        include = f"#include <baracuda/{path}>"
        lines += [f"#if {in_passes(numbers)}", include, "#endif"] if numbers else [include]
    return Code("\n".join(lines))


def in_passes(numbers: Iterable[int]) -> Code:
    """The condition that one of these passes is compiled."""
    return Code(" || ".join(f"BARACUDA_PASS == {number}" for number in numbers))


def made_of(op: MapOp) -> Code:
    """Names for what reads the parts of a factor that a product's cells make, and how it is made of them."""
    if op.made is None:
        return Code("")
    parts = dict(zip(("First", "Second"), op.made.groups, strict=False))
    names = {"Codes": op.made.codes, **parts}
    lines = [f"using {part} = Cells::{name}_slice;" for part, name in names.items()]
    lines += [f"using {part} = Nothing;" for part in ("First", "Second") if part not in parts]
    facts = {"PAIRED": op.made.paired, "HIGH_FIRST": op.made.high}
    lines.append(f"static constexpr bool {', '.join(f'{name} = {str(of).lower()}' for name, of in facts.items())};")
    return Code("".join(f"    {line}\n" for line in lines))


def keys(op: MapOp) -> Code:
    """Of a walk that reduces by an index, the array that lists are by."""
    return Code(in_kernel(op.lists[0]))


def monoids(sums: Iterable[Sum]) -> Code:
    """How the terms of each sum are reduced."""
    return Code(" ".join(f"using {part.slot} = {monoid(part)};" for part in sums))


@pass_context
def outside(context: Context, read: PlacedRead) -> Code:
    """What is read at places outside of the array: a number or a field."""
    if isinstance(read.outside, FieldName):
        return Code(f"{value_type(read)}(args.{in_kernel(read.outside.id)})")
    other = read.outside
    value = _text(Const(bool(other.value)) if isinstance(other, Const) and read.kind == "bool" else other, context)
    return Code(f"{value_type(read)}({value})") if read.kind in ("complex", "int") else value


@pass_context
def piece(context: Context, read: PlacedRead) -> Code:
    """In which piece of the program a place is: a bit for each comparison."""
    bits = (f"int({_text(expr, context)}){f' << {n}' * (n > 0)}" for n, expr in enumerate(read.pieces))
    return Code(" | ".join(bits))


@pass_context
def term(context: Context, part: Sum) -> Code:
    """What a cell adds to a sum."""
    value = _term(part.arg, context) if part.how == "spread" else _text(part.arg, context)
    return Code(f"{{{value}, index_t({_text(part.place, context)})}}" if part.place else value)


def _are_floats(*exprs: Expr, kinds: Kinds) -> bool:
    return all(kind_of(expr, kinds) == "float" for expr in exprs)


def _term(expr: Expr, context: Context) -> str:
    """A term of a sum, which has the accumulator's type."""
    text = _text(expr, context)
    return f"acc_t({text})" if kind_of(expr, _kinds(context)) == "int" else text


def _text(expr: Expr, context: Context, stored: str = "") -> Code:
    """The text of an expression, or of what is `stored` as a type; whole numbers are short where they may be."""
    op: Op = context["op"]
    whole: dict[str, Any] = {"short": bool(op.bounds), "divisors": op.divisors, "column": op.column}
    return to_cuda(expr, _kinds(context), **whole, result=stored or _result(op), stored=bool(stored))


def _result(op: Op) -> str:
    """The type of all outputs, or acc_t if they differ: functions are as accurate as it needs."""
    types = {stored_type(t) for t in op.tensors if t.role != "in"}
    return types.pop() if len(types) == 1 else "acc_t"


def _kinds(context: Context) -> Kinds:
    kinds: Kinds = context["op"].kinds
    return kinds


_FILTERS: tuple[Callable[..., Code | bool], ...] = (
    *(path, has, if_present, and_present, unless_absent, absent, value_type, word, stored_type, dtype),
    *(held_type, known_type, size_type, type_macro, const, struct, operand, operands, operand_type, cuda, start, step),
    *(perhaps, member, read, assignment, part, near_places, operand_of),
    *(body_doc, body_struct, beside_lane, each, stored_value, outside, piece, term, monoid),
    *(is_operand, argument, arrays, in_passes, index_numbers, keys, made_of, monoids, placed_value, walk_headers),
)
FILTERS = {function.__name__: function for function in _FILTERS}
