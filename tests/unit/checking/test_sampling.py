"""Samples are the same each time, differ as much as possible, and are of a size that does not grow."""

from __future__ import annotations

import random

from baracuda.checking.sampling import share, spread

ITEMS = [(a, b) for a in "abc" for b in range(4)]


def order(items: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return list(spread(items, lambda item: [item[0], item[1]], str))


def test_each_next_one_brings_what_is_new() -> None:
    """Three letters and four numbers are there after four; all come in the end, in an order that is always the same."""
    found = order(ITEMS)
    assert {a for a, _ in found[:3]} == set("abc") and {b for _, b in found[:4]} == set(range(4))
    assert sorted(found) == ITEMS
    assert order(random.Random(1).sample(ITEMS, len(ITEMS))) == found


def test_what_is_known_comes_last() -> None:
    first = next(spread(ITEMS, lambda item: [item[0], item[1]], str, known=[*"ab", 0, 1, 3]))
    assert first == ("c", 2)


def test_groups_have_equal_shares() -> None:
    groups = {"few": [1], "some": [10, 11, 12], "many": list(range(20, 90))}
    assert sorted(share(groups, 5, "")) == [1, 10, 11, 20, 21]
    assert len(share(groups, 1000, "")) == 74


def test_more_groups_than_places() -> None:
    """As many come as there are places, another choice for another word; those named in front are always there."""
    groups = {f"op{number}": [number] for number in range(200)}
    chosen = share(groups, 30, "0")
    assert len(chosen) == len(set(chosen)) == 30 and share(groups, 30, "0") == chosen != share(groups, 30, "1")
    assert {7, 150} <= set(share(groups, 30, "0", ["op7", "op150"]))
    assert set().union(*(share(groups, 30, str(word)) for word in range(60))) == set(range(200))
