"""What `new` writes for an op of the row family."""

SKELETON = """\
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
"""
SPILLS = "{packed: 20, dense: 48, strided: 88, gathered: 452}"  # by kernels of its gradient
