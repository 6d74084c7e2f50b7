"""`new`: a spec to start from, which generates as it is."""

from __future__ import annotations

from pathlib import Path
from string import Template

from pydantic import TypeAdapter, ValidationError

from baracuda.codegen.spec.family import families
from baracuda.codegen.spec.language import FILE
from baracuda.codegen.spec.names import is_reserved_category, is_reserved_op
from baracuda.codegen.spec.schema import schema_text
from baracuda.codegen.spec.types import Ident
from baracuda.runtime import SpecError
from baracuda.runtime.cache.publish import publish

from .schema import renew

GRADIENT = """
# The gradient, `${op}_backward`, derived from the program. One by hand has a `program` here, which reads `dy` and
# assigns `dx`.
backward:
  arch: {sm_80: {spill_bytes: $allowed}}
"""


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
    of = families()[family]
    text = Template(of.skeleton + GRADIENT * gradient).substitute(op=op, schema=FILE, allowed=of.spills)
    renew(specs, schema_text(), create=True)
    try:
        publish(path, text, create=True)  # of several that begin one op, the first has the name
    except FileExistsError:
        raise SpecError(f"{path}: already exists; choose another op name or edit it") from None
    return path
