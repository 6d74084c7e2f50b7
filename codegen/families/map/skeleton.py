"""What `new` writes for an op of the map family."""

SKELETON = """\
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
"""
SPILLS = "{packed: 24, flat: 8}"  # by kernels of its gradient
