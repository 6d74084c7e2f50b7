"""Lists of arrays as a plan takes them: one after another, each checked against those of its place in other lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any, TypeGuard

from ...arrays.arguments import Argument, Views
from ...arrays.tensor import TensorView, view
from ...errors import InvalidProblem, Unsupported

Names = tuple[str, ...]


class Spread(tuple[Any, ...]):
    """The arrays of a call, those of a list one after another, with a name for each: `p[0]`, `p[1]`, ..., `lr`."""

    names: Names

    def by_name(self) -> dict[str, Any]:
        return dict(zip(self.names, self, strict=True))


def is_list(value: object) -> TypeGuard[Sequence[object]]:
    return type(value) in (list, tuple)


def one_by_one(argument: object) -> Iterator[Any]:
    """The arrays of a list, or the only one."""
    yield from argument if is_list(argument) else (argument,)


def spread(lists: Sequence[str], arrays: Mapping[str, Any]) -> Spread | None:
    """The arrays of a call with lists; None without."""
    given = {name: array for name, array in arrays.items() if name in lists and is_list(array)}
    if not given:
        return None
    (first, leading), *others = given.items()
    for name, items in others:
        if len(items) != len(leading):
            got = f"{name!r} has {len(items)} arrays, {first!r} has {len(leading)}"
            raise InvalidProblem(f"all lists must have the same number of arrays; {got}")
    for name in lists:
        if name not in given and arrays[name] is not None:
            raise InvalidProblem(f"{name!r} must be a list of arrays, as {first!r} is")
    if not leading:
        raise InvalidProblem(f"{first!r} is empty; pass at least one array, which may be of size 0")
    spread = Spread([item for name, array in arrays.items() for item in given.get(name, (array,))])
    spread.names = _names(tuple(arrays), tuple(given), len(leading))
    return spread


@lru_cache(maxsize=64)
def _names(arguments: Names, lists: Names, count: int) -> Names:
    return tuple([n for a in arguments for n in ([f"{a}[{i}]" for i in range(count)] if a in lists else [a])])


def arguments_of(names: Names, arguments: Mapping[str, Argument]) -> dict[str, Argument]:
    """The declaration of each array of a call; one of a list may share memory where its list may, place by place."""
    declared = {}
    for name in names:
        of, bracket, place = name.partition("[")
        shared = tuple([f"{other}{bracket}{place}" for other in arguments[of].may_alias])
        declared[name] = replace(arguments[of], name=name, may_alias=shared)
    return declared


def columns(lists: Iterable[str], views: Views) -> dict[str, list[str]]:
    """The names in `views` of the arrays of each list that is present."""
    found: dict[str, list[str]] = {name: [] for name in lists}
    for name in views:
        if (of := name.partition("[")[0]) in found:
            found[of].append(name)
    return {name: names for name, names in found.items() if names}


def flattened(views: Views, lists: Sequence[Sequence[str]], total: int) -> Views:
    """`views` with the arrays of lists as arrays of rank 1; raises for those that differ or have gaps."""
    flat = dict(views)
    first, *others = lists
    for name in first:
        if not _is_dense(views[name]):
            got = f"shape {views[name].shape} and strides {views[name].strides}"
            raise Unsupported(f"{name!r} must have no gaps, got {got}; copy it")
    for names in others:
        for name, leader in zip(names, first, strict=True):
            _check_alike(name, views[name], leader, views[leader])
    for names in lists:
        kind = views[names[0]].element
        for name in names:
            tensor = views[name]
            if tensor.element != kind:
                raise Unsupported(f"{name!r} holds {tensor.element}, {names[0]!r} {kind}; a list holds one type")
            flat[name] = tensor._replace(shape=(prod(tensor.shape),), strides=(1,))
    if (count := sum([flat[name].shape[0] for name in first])) != total:
        listed = first[0].partition("[")[0]
        raise InvalidProblem(f"the arrays of {listed!r} have {count} elements, the plan was selected for {total}")
    return flat


def _check_alike(name: str, tensor: TensorView, leader: str, leading: TensorView) -> None:
    if tensor.shape != leading.shape:
        raise InvalidProblem(f"{name!r} must have the shape {leading.shape} of {leader!r}, got {tensor.shape}")
    if _moving(tensor) != _moving(leading):
        needs = f"must have the strides {leading.strides} of {leader!r}"
        raise Unsupported(f"{name!r} {needs}, got {tensor.strides}; copy it")


def _moving(tensor: TensorView) -> list[tuple[int, int]]:
    """Strides and extents of the axes that have several elements."""
    if 0 in tensor.shape:
        return []
    return [(s, n) for n, s in zip(tensor.shape, tensor.strides, strict=True) if n > 1]


def _is_dense(tensor: TensorView) -> bool:
    step = 1
    for stride, extent in sorted(_moving(tensor)):
        if stride != step:
            return False
        step *= extent
    return True


def combined(arrays: Sequence[object], name: str) -> TensorView:
    """What a list shows of a problem: how many elements it has, and the rest of its first array."""
    if not arrays:
        raise InvalidProblem(f"{name!r} is empty; pass at least one array, which may be of size 0")
    views = [view(array, f"{name}[{i}]") for i, array in enumerate(arrays)]
    return views[0]._replace(shape=(sum([prod(v.shape) for v in views]),), strides=(1,))
