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
doc: Each row minus its mean.
formula: |
  y = x - mean(x)
source: the definition of the mean  # the paper or page that the formula is from

# What a call is about, without its arrays. Types are shape, int, float and bool.
descriptor:
  input_shape: {type: shape, doc: "extents of x and y, rank 1 to 8"}
  axis:        {type: int, doc: "the axis that a row runs along; negative counts from the back", default: -1}
# Checked in this order; `raises` is InvalidProblem (a contradiction) or Unsupported (no kernel for it).
require:
  - {that: 1 <= len(input_shape) <= 8, raises: Unsupported}
  - {that: -len(input_shape) <= axis < len(input_shape), raises: InvalidProblem}
  - {that: min(input_shape) >= 0, raises: InvalidProblem}
dtypes: [f32, f16, bf16, f64]  # the element type T; everything is computed in acc: f64 for f64, else f32

# Which axes of input_shape a row runs along (cols); the other axes count rows.
dims:
  rows: {of: input_shape, axes: rest}
  cols: {of: input_shape, axes: "(normalize_axis(axis, len(input_shape)),)"}
# A tensor has a value for each of its `dims`, of type T unless `dtype` says otherwise. `optional: <a bool field>` makes
# it optional, `default` says what is read instead; `may_alias` lets an output share an input's memory.
inputs:
  x: {dims: [rows, cols], doc: input}
outputs:
  y: {dims: [rows, cols], may_alias: [x], doc: the result}

# What the kernel computes, in this order of operations.
program: |
  y = x - mean(x, cols)
# The definition, written independently of the program: tests compare with it in float64.
reference: |
  y = x - sum(x, cols) / size(cols)

# Bit-level guarantees of each output; each is tested.
reproducibility:
  y: [deterministic, bit_stable_on_same_hardware, batch_invariant, bit_stable_across_arch]
# The lowest architecture, and the bytes that kernels for long rows may spill: start with {sm_80: {}} and enter what
# `check` reports.
arch: {sm_80: {spill_bytes: {packed: 16, dense: 36, strided: 88, gathered: 440}}}

tests:
  cases:
    - {input_shape: [7, 257]}
    - {input_shape: [33, 4096]}
    - {input_shape: [5, 24, 3], axis: 1}
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
