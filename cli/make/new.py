"""`new`: a spec to start from, which generates as it is."""

from __future__ import annotations

from pathlib import Path
from string import Template

from pydantic import TypeAdapter, ValidationError

from baracuda.codegen.spec.language import FILE
from baracuda.codegen.spec.names import is_reserved_category, is_reserved_op
from baracuda.codegen.spec.schema import schema_text
from baracuda.codegen.spec.spec import Ident
from baracuda.runtime import SpecError
from baracuda.runtime.cache.publish import publish

from .schema import renew

SKELETONS = {
    "row": """\
# yaml-language-server: $$schema=../$schema
op: $op
doc: Each row minus its mean.
source: the definition of the mean  # the paper or page that the mathematics is from

# What a call is about, without its arrays, beside the shape and the axis that dims name, as
#   eps: {type: float, doc: added to the variance, default: 1.0e-6}
# and conditions on it, as `require: [eps >= 0]`.
dims: {rows: rest, cols: axis}  # the axis that a row runs along; all others count rows

# A tensor has a value for each cell, or for its `dims`: `gamma: {dims: [cols], doc: gain of each column}`.
inputs: {x: input}
outputs: {y: the result}
# What the kernel computes, in this order of operations.
program: |
  y = x - mean(x, cols)
# The definition, written independently of the program: tests compare with it in float64.
reference: |
  y = x - sum(x, cols) / size(cols)

# What kernels for long rows may spill, as `check` reports it.
arch: {sm_80: {spill_bytes: {packed: 16, dense: 36, strided: 88, gathered: 440}}}
bench: {cases: [{input_shape: [32768, 4096]}]}
""",
    "map": """\
# yaml-language-server: $$schema=../$schema
op: $op
doc: SiLU of one array times another.
source: Shazeer, GLU Variants Improve Transformer (2020)  # the paper or page that the mathematics is from

# What a call is about, without its arrays, beside the shape that dims name, as
#   scale: {type: float, doc: what the result is multiplied by, default: 1.0}
# and conditions on it, as `require: [scale > 0]`.
dims: {cell: input_shape}  # the axes of a shape; an int field is one axis, as in {row: num_rows, col: num_cols}

# A tensor has a value for each cell, or for its `dims`: `bias: {dims: [col], doc: offset of each column}`.
inputs: {gate: what the activation is of, up: the other factor}
outputs: {y: the result}
# What the kernel computes, in this order of operations.
program: |
  y = silu(gate) * up
# The definition, written independently of the program: tests compare with it in float64.
reference: |
  y = gate / (1 + exp(-gate)) * up

bench: {cases: [{input_shape: [8192, 14336]}]}
""",
}
GRADIENT = """
# The gradient, `${op}_backward`, derived from the program. One by hand has a `program` here, which reads `dy` and
# assigns `dx`.
backward:
  arch: {sm_80: {spill_bytes: $allowed}}
"""
_ALLOWED = {  # what kernels of the gradients above spill
    "row": "{packed: 20, dense: 48, strided: 88, gathered: 452}",
    "map": "{packed: 24, flat: 8}",
}


def new(op: str, family: str, category: str, specs: Path, *, gradient: bool = False) -> Path:
    """Write ``<specs>/<category>/<op>.yaml`` and return it; SpecError for a bad or taken name.

    With `gradient` it has a gradient op, too. Also writes the schema that its first line names, so that editors work
    offline with the matching version.
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
    skeleton = Template(SKELETONS[family] + GRADIENT * gradient)
    text = skeleton.substitute(op=op, schema=FILE, allowed=_ALLOWED[family])
    renew(specs, schema_text(), create=True)
    try:
        publish(path, text, create=True)  # of several that begin one op, the first has the name
    except FileExistsError:
        raise SpecError(f"{path}: already exists; choose another op name or edit it") from None
    return path
