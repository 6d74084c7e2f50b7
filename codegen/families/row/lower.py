"""RowSpec -> RowOp: the passes over a row, and the tiles."""

from __future__ import annotations

from collections.abc import Iterable

from baracuda.runtime import Tile
from baracuda.runtime.arrays.element import ElementKind
from baracuda.runtime.plans.sku import VECTOR_BYTES

from ...conditions.parse import read_condition
from ...lower.op import Tensor
from ...lower.shared import first_arch, lower_tensor, scalar, shared_fields
from ...program.tree import Query, walk
from ...spec.scope import kinds_of
from ...text import Name
from .op import Pass, RowOp
from .passes import schedule
from .program import row_lines
from .spec import RowSpec
from .tiles import ChunkUse, tiles


def lower_row(spec: RowSpec, spec_path: str) -> RowOp:
    """Return the decisions that `spec` (already found consistent) leads to."""
    rows, cols = _row_and_col(spec)
    lines = row_lines(spec)
    kinds = kinds_of(spec, lines)
    over = {frozenset({rows, cols}): "element", frozenset({rows}): "row", frozenset({cols}): "col"}
    tensors = {n: lower_tensor(n, t, spec, over=over[frozenset(t.dims)]) for n, t in spec.tensors.items()}
    plan = schedule(lines, spec, tensors, kinds, rows, cols)
    arguments = tuple(tensors[name] for name in spec.arguments)
    shapes = {name: f"[{', '.join(t.dims)}]" for name, t in spec.arguments.items()}
    read_of_dims = Query("size", rows), Query("size", cols), Query("index", rows)
    queries = {e for x in plan.lines for e in walk(x.expr) if isinstance(e, Query)}
    shared = shared_fields(spec, spec_path, arguments, shapes)
    return RowOp(
        **shared,
        arch=Name(first_arch(spec)),
        shape=Name(spec.dims[cols].of),
        rows=Name(rows),
        cols=Name(cols),
        col_axes=read_condition(spec.dims[cols].axes, spec.descriptor),
        scalars=tuple(scalar(n, f) for n, f in spec.descriptor.items() if f.is_number and n in plan.names_read),
        passes=plan.passes,
        columns=plan.columns,
        tiles=tuple(_tiles(spec, arguments, plan.passes)),
        queries=tuple(q for q in read_of_dims if q in queries),
        kinds=plan.kinds,
    )


def _row_and_col(spec: RowSpec) -> tuple[str, str]:
    rows = next(n for n, d in spec.dims.items() if d.axes == "rest")
    return rows, next(n for n in spec.dims if n != rows)


def _tiles(
    spec: RowSpec, arguments: tuple[Tensor, ...], passes: tuple[Pass, ...]
) -> Iterable[tuple[Name, tuple[Tile, ...]]]:
    inputs = {over: [t for t in arguments if t.role != "out" and t.over == over] for over in ("element", "col")}
    for tag in spec.dtypes:
        kind = ElementKind(tag)
        prefetched = sum(_pack_bytes(t, kind) for t in inputs["element"])
        packs, sums = (len(inputs["element"]), len(inputs["col"])), len(passes[-1].column_sums)
        use = ChunkUse(
            *(*packs, sums, prefetched),
            exchanges=len(passes) - 1,
            looks=sum(bool(along.looks) for along in passes),
            below=any(len(along.looks) > 1 for along in passes),
            work=sum(look.work for along in passes for look in along.looks),
        )
        yield Name(tag), tiles(kind.row, use)


def _pack_bytes(tensor: Tensor, element: ElementKind) -> int:
    """Bytes of as many of the tensor's elements as are a pack of the op's, of the widest type it may hold."""
    kinds = {"T": element, "acc": element.row.acc}
    widest = max((kinds.get(d) or ElementKind(d)).row.bytes for d in tensor.dtypes)
    return VECTOR_BYTES // element.row.bytes * widest
