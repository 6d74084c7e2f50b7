"""`new`: a spec to start from, which generates as it is."""

from __future__ import annotations

from pathlib import Path
from string import Template

from pydantic import TypeAdapter, ValidationError

from baracuda.codegen.spec.names import is_reserved_category, is_reserved_op
from baracuda.codegen.spec.schema import schema_text
from baracuda.codegen.spec.spec import Ident
from baracuda.runtime import SpecError
from baracuda.runtime.cache.publish import publish

from .schema import FILE, renew

SKELETONS = {
    "row": """\
# yaml-language-server: $$schema=../$schema
op: $op
category: $category
kind: $kind
direction: forward
plan: ${kind}Plan
family: row
doc: Each row with its mean taken off.
formula: |
  y = x - mean(x)
source: the definition of the mean  # the paper or page that the formula is from

# What the caller says of a problem before there are arrays. Types are shape, int, float and bool.
descriptor:
  input_shape: {type: shape, doc: "extents of x and y, rank 1 to 8"}
  axis:        {type: int, doc: the axis that a row runs along}
# Checked in this order; `raises` is InvalidProblem (a contradiction) or Unsupported (no kernel for it).
require:
  - {that: 1 <= len(input_shape) <= 8, raises: Unsupported}
  - {that: 0 <= axis < len(input_shape), raises: InvalidProblem}
  - {that: min(input_shape) >= 0, raises: InvalidProblem}
dtypes: [f32, f16, bf16, f64]  # what T may be; acc is the type that T is summed in

# The axes of input_shape, shared out: one group makes up rows, the other columns.
dims:
  rows: {of: input_shape, axes: rest}
  cols: {of: input_shape, axes: "(axis,)"}
# `dims` is what a tensor has a value for, `dtype` what it may hold (by default T). A tensor may be `optional:
# <a bool field>` with a `default` for its values, and an output may take the place of an input.
inputs:
  x: {dims: [rows, cols], doc: what is centred}
outputs:
  y: {dims: [rows, cols], may_alias: [x], doc: the result}

# How the kernel computes it, in this order of operations.
program: |
  y = x - mean(x, cols)
# What it should be, written from the definition, not from the program: tests compare with it, in float64.
reference: |
  y = x - sum(x, cols) / size(cols)

# What is promised of the bits of each output; every promise gets a test.
reproducibility:
  y: [deterministic, bit_stable_on_same_hardware, batch_invariant, bit_stable_across_arch]
# The least architecture, and the bytes that kernels for the longest rows keep in memory for want of registers: what
# `check` says of your program.
arch: {sm_80: {spill_bytes: {packed: 16, dense: 36, strided: 88, gathered: 440}}}

tests:
  defaults: {axis: 1}
  cases:
    - {input_shape: [7, 257]}
    - {input_shape: [33, 4096]}
    - {input_shape: [5, 24, 3]}
    - {input_shape: [3, 70000]}
    - {input_shape: [4, 0]}
bench:
  cases:
    - {input_shape: [32768, 4096]}
""",
}


def new(op: str, family: str, category: str, specs: Path) -> Path:
    """Write ``<specs>/<category>/<op>.yaml`` and return it; SpecError for a bad or taken name.

    Also writes the schema that its first line names, so that editors work offline with the matching version.
    """
    for what, name in (("op", op), ("category", category)):
        try:
            TypeAdapter(Ident).validate_python(name)
        except ValidationError:
            raise SpecError(f"{what} {name!r} must be a lower-case identifier, as in 'row_center'") from None
    if is_reserved_op(op) or is_reserved_category(category):
        word = op if is_reserved_op(op) else category
        raise SpecError(f"{word!r} is a reserved word; choose another name")
    path = specs / category / f"{op}.yaml"
    for other in specs.rglob(path.name):
        raise SpecError(f"{other}: already exists; choose another op name or edit it")
    kind = "".join(part.capitalize() for part in op.split("_"))
    text = Template(SKELETONS[family]).substitute(op=op, category=category, kind=kind, schema=FILE)
    renew(specs, schema_text(), create=True)
    try:
        publish(path, text, create=True)  # of several that begin one op, the first has the name
    except FileExistsError:
        raise SpecError(f"{path}: already exists; choose another op name or edit it") from None
    return path
