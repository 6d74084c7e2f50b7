"""Small samples of many things, the same in every run: each next one differs most from those before it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from typing import TypeVar

T = TypeVar("T")


def spread(
    items: Iterable[T],
    traits: Callable[[T], Iterable[Hashable]],
    name: Callable[[T], str],
    known: Iterable[Hashable] = (),
) -> Iterator[T]:
    """All `items`, the one with the most traits that are not `known` and none before it has first.

    A hash of their names decides ties.
    """
    left = [(item, frozenset(traits(item))) for item in sorted(items, key=lambda item: _hash(name(item)))]
    covered = set(known)
    while left:
        best = max(range(len(left)), key=lambda place: len(left[place][1] - covered))  # the first of several
        item, its_traits = left.pop(best)
        covered |= its_traits
        yield item


def share(groups: Mapping[str, Iterable[T]], count: int, seed: str, first: Sequence[str] = ()) -> list[T]:
    """`count` of the items of all `groups`, as many of one as of another, those in front before those behind.

    Where there are more groups than `count`, those named in `first` come first, then others as `seed` says.
    """
    order = sorted(groups, key=lambda group: (group not in first, _hash(f"{seed} {group}")))
    turns = zip_longest(*(groups[group] for group in order), fillvalue=_NONE)
    return list(islice((item for turn in turns for item in turn if item is not _NONE), count))  # type: ignore[misc]


_NONE = object()


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
