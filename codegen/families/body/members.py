"""Names that a hand-written kernel sees: members of its arguments, of `Variant` and of `Schedule` are told apart."""

from __future__ import annotations

from collections.abc import Iterator

from ...spec.checks.finding import Finding
from ...spec.names import is_reserved_number
from ...spec.types import Place
from .spec import BodySpec


def members(spec: BodySpec) -> Iterator[Finding]:
    """Each struct's members have names of their own."""
    yield from _duplicates("the kernel's arguments have", _arguments(spec))
    yield from _duplicates("Variant has", _variant(spec))
    numbers = [(("schedules", i, "numbers", n), n) for i, row in enumerate(spec.schedules) for n in row.numbers]
    of_sections = [((section, name), name) for section in ("terms", "layouts") for name in getattr(spec, section)]
    for place, name in (*numbers, *of_sections):
        if is_reserved_number(name):
            yield place, 0, f"{name!r} is a reserved word; choose another name"
    for i, kernel in enumerate(spec.kernels):
        if kernel.name == "args":
            text = f"'{spec.op}_args' is the type of the kernel's arguments; choose another name"
            yield ("kernels", i, "name"), 0, text


def _arguments(spec: BodySpec) -> Iterator[tuple[str, Place]]:
    """What every member of the arguments is called that is not called as the spec calls it."""
    mapped = {name: ("tensor_maps", arch, name) for arch, maps in spec.tensor_maps.items() for name in maps}
    yield from ((f"{name}_map", place) for name, place in mapped.items())
    for section in ("inputs", "outputs", "descriptor", "workspace"):
        yield from ((name, (section, name)) for name in getattr(spec, section))


def _variant(spec: BodySpec) -> Iterator[tuple[str, Place]]:
    flags = {name: tensor for name, tensor in spec.arguments.items() if tensor.optional}
    yield from ((f"HAS_{name.upper()}", ("inputs", name)) for name in flags)
    yield from ((name.upper(), ("layouts", name)) for name in (*spec.layouts, "strided"))
    yield from ((name, ("settings", name)) for name in spec.settings)


def _duplicates(who: str, names: Iterator[tuple[str, Place]]) -> Iterator[Finding]:
    first_places: dict[str, Place] = {}
    for name, place in names:
        if (first := first_places.setdefault(name, place)) != place:
            yield place, 0, f"{who} {name!r} already, for {'.'.join(map(str, first))}; choose another name"
