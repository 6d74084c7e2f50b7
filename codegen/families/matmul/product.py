"""Matrix products in a program: which arrays are multiplied, and what each dim is to them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace

from baracuda.runtime.families.matmul.schedules import FLOATS_OF_A_BYTE, WHOLE_OF_A_BYTE

from ...program import ProgramError, Reduce, to_source
from ...program.tree import Cast, Expr, Read, terms_of
from ..map.program import Parts
from ..map.spec import MapSpec
from .spans import Span, span_of
from .weights import Weight, weights_of

ROLES = ("batch", "rows", "columns", "depth")
# The types of factors that kernels multiply with each other, beside two of type T.
ALIKE = (FLOATS_OF_A_BYTE, WHOLE_OF_A_BYTE)


@dataclass(frozen=True, slots=True)
class Product:
    """`sum(left * right, depth)`: rows are of the left factor alone, columns of the right one, a batch of both.

    With a span, some of the three have no axis along the batch. With a second right factor, it is two products.
    """

    left: str
    right: str
    roles: tuple[tuple[str, str], ...]  # role -> dim; there may be no batch
    span: Span | None = None  # which rows each matrix of the batch has, or how much of the depth
    second: str = ""  # multiplies the left factor, too
    weights: tuple[Weight, ...] = ()  # what parts of its sums are multiplied with
    sinks: Hashable = None  # what its kernel makes of its columns

    @property
    def dims(self) -> dict[str, str]:
        return dict(self.roles)

    @property
    def factors(self) -> tuple[str, ...]:
        return (self.left, self.right, *((self.second,) if self.second else ()))


def factors_of(expr: Expr) -> tuple[str, str, tuple[str, ...]] | None:
    """Of `sum(a * b, d)`, or `sum(where(condition, a * b, 0.0), d)`, the names of both factors and the dims.

    A weight may be multiplied with them.
    """
    match expr:
        case Reduce(kind="sum", dims=dims) if terms := terms_of(expr):
            return terms.left, terms.right, dims
    return None


def products_of(spec: MapSpec, parts: Parts) -> dict[str, Product]:
    """The reductions that are matrix products; raises ProgramError, with what the first one lacks, if none is."""
    found, why = dict[str, Product](), list[tuple[bool, ProgramError]]()
    for line in parts.sum_lines:
        try:
            found[line.name] = product_of(line.expr, spec, parts, line.number)
        except ProgramError as error:
            why.append((factors_of(line.expr) is None, error))
    if found:
        return found
    none = ProgramError("there is no matrix product; write sum(a * b, dim)", parts.lines[0].number)
    raise min(why, key=lambda of: of[0], default=(True, none))[1]  # of the first that multiplies


def product_of(expr: Expr, spec: MapSpec, parts: Parts, number: int = 0) -> Product:
    """The product that an expression of line `number` is; raises ProgramError if it is none."""
    found = factors_of(expr)
    if found is None:
        text = f"{to_source(expr)} is no matrix product; write sum(a * b, dim) of two inputs"
        raise ProgramError(f"{text}, or of what is rounded: T(...)", number)
    a, b, summed = found
    for name in (a, b):
        if text := _no_factor(name, spec, parts):
            raise ProgramError(text, number)
    if len({kind_of_factor(dtypes_of(name, spec)) for name in (a, b)}) > 1:
        types = " and ".join(f"{name!r} of {', '.join(dtypes_of(name, spec))}" for name in (a, b))
        text = f"{types} are no factors of one product; both are of T, or both of 8-bit floats or of 8-bit ints"
        raise ProgramError(text, number)
    span = span_of(expr, spec, parts, number)
    of_a, of_b, group = parts.dims[a], parts.dims[b], frozenset({span.matrix} if span else ())
    both = (of_a & of_b) - {*summed} - group
    rows, columns, depth = of_a - of_b - group, of_b - of_a - group, {*summed} - group
    if len(depth) > 1:
        raise ProgramError(f"sums over {', '.join(summed)}; a matrix product has one depth: make it one dim", number)
    if len(both | group) > 1 or len(rows) != 1 or len(columns) != 1 or len(depth) != 1 or not depth <= of_a & of_b:
        own_a, own_b, of_both = (_listed(spec, dims) for dims in (rows, columns, both | group))
        own = f"{a!r} has dims {own_a} of its own, {b!r} {own_b}, both {of_both}"
        raise ProgramError(f"{own}; a matrix product has one, one and at most one", number)
    batch = next(iter(both | group), "")
    roles = (("batch", batch), ("rows", min(rows)), ("columns", min(columns)), ("depth", min(depth)))
    dims = {role: dim for role, dim in roles if dim}
    if span and span.dim in depth and kind_of_factor(dtypes_of(a, spec)) != ("T",):
        text = f"{span.ends!r} says how much of {span.dim} counts; then factors are of type T, not of 8 bits"
        raise ProgramError(text, number)
    weight = (terms := terms_of(expr)) and terms.weight
    if weight and kind_of_factor(dtypes_of(a, spec)) != FLOATS_OF_A_BYTE:
        text = f"{to_source(weight)} is multiplied with each term; of factors of 8-bit floats alone, else with the sum"
        raise ProgramError(f"{text}, or with a factor, T({a} * ...)", number)
    weights = weights_of(weight, dims, spec, parts, number) if weight else ()
    product = Product(a, b, tuple(dims.items()), span, weights=weights)
    return oriented(product, tuple(spec.dims))


def oriented(product: Product, order: tuple[str, ...]) -> Product:
    """The product with rows and columns in this order of dims: columns are what is contiguous in its result."""
    dims = product.dims
    in_order = order.index(dims["rows"]) < order.index(dims["columns"])
    if product.span and product.span.dim in (dims["rows"], dims["columns"]):
        in_order = product.span.dim == dims["rows"]  # what a matrix has a part of is rows
    if in_order:
        return product
    turned = {**dims, "rows": dims["columns"], "columns": dims["rows"]}
    return replace(
        product, left=product.right, right=product.left, roles=tuple((role, turned[role]) for role, _ in product.roles)
    )


def renamed(product: Product, names: Mapping[str, str]) -> Product:
    """The same product of the arrays that hold its factors."""
    left, right, second = (names.get(name, name) for name in (product.left, product.right, product.second))
    span = product.span and replace(product.span, ends=names.get(product.span.ends, product.span.ends))
    return replace(product, left=left, right=right, second=second, span=span)


def pairs_of(products: Mapping[str, Product], spec: MapSpec, meet: Callable[[str, str], bool]) -> dict[str, str]:
    """Of two products that one kernel computes, the name of the first.

    They have the left factor and all dims in common, and `meet` says that something is made of both.
    """
    found = dict[str, str]()
    for name, product in products.items():
        for other, of in products.items():
            alike = replace(of, right=product.right) == product and of.right != product.right
            if not alike or {name, other} & {*found} or not meet(name, other):
                continue
            is_plain = all(dtypes_of(factor, spec) == ("T",) for factor in (*product.factors, of.right))
            if is_plain and _axes(of.right, spec) == _axes(product.right, spec):
                found |= {name: name, other: name}
    return found


def _axes(name: str, spec: MapSpec) -> tuple[str, ...]:
    """The order of a factor's axes in memory, if it is an input."""
    return spec.inputs[name].dims if name in spec.inputs else ()


def factors_of_bytes(spec: MapSpec) -> frozenset[str]:
    """The inputs of 8 bits: what else is multiplied with two of them is a weight."""
    return frozenset(name for name, of in spec.inputs.items() if kind_of_factor(of.dtype) in ALIKE)


def _no_factor(name: str, spec: MapSpec, parts: Parts) -> str:
    """Why no kernel multiplies it, or ""."""
    if tensor := spec.inputs.get(name):
        if tensor.optional:
            return f"{name!r} is a factor of the product, so it cannot be absent"
        if kind_of_factor(tensor.dtype) is None:
            listed = "; or of ".join(" and ".join(tags) for tags in ALIKE)
            return f"{name!r} is a factor of the product, so its dtype is T, or a list of {listed}"
        return ""
    line = parts.line(name)
    match line.expr if line else None:
        case Cast(to="T"):
            return ""
        case Read(tensor=read):
            return f"{read!r} is read at other places, too, so as a factor of the product it is rounded: T({read})"
    return f"{name!r} is a factor of the product, so it is an input, or rounded to the element's type: T(...)"


def dtypes_of(name: str, spec: MapSpec) -> tuple[str, ...]:
    """The types that a factor may have."""
    return spec.inputs[name].dtype if name in spec.inputs else ("T",)


def kind_of_factor(dtypes: tuple[str, ...]) -> tuple[str, ...] | None:
    """The types with which factors of these types are multiplied; None if there are none."""
    return next((of for of in (("T",), *ALIKE) if {*dtypes} <= {*of}), None)


def _listed(spec: MapSpec, dims: frozenset[str]) -> str:
    return f"[{', '.join(dim for dim in spec.dims if dim in dims)}]"
