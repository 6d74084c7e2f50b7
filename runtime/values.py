"""Values of callers: taken to their canonical types, whatever they do when they are asked, and shown in a few words."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from reprlib import Repr
from typing import Any

import numpy as np

from .errors import InvalidProblem

MAX_RANK = 64  # axes of a tensor, as NumPy has
_WORD = 1 << 63  # ints travel to kernels in signed words of 64 bits
_MOST_NAMES = 1000
_SHOWN = 400  # characters of a value in a message


class _Short(Repr):
    """Prints values of Python's own types, and of all others the type: their `repr` is not ours to call."""

    def repr1(self, x: Any, level: int) -> str:
        return super().repr1(x, level) if type(x) in _PRINTED else f"<{kind_of(x)}>"


_SEQUENCES, _BYTES = (Sequence, np.ndarray), (bytes, bytearray, memoryview)
_PRINTED = (bool, bytes, complex, dict, float, frozenset, int, list, range, set, str, tuple, type(None))
_short = _Short()
_short.maxtuple = _short.maxlist = _short.maxarray = MAX_RANK
_short.maxdict = _short.maxset = _short.maxfrozenset = 8
_short.maxlevel, _short.maxlong = 3, 60
_short.maxstring = _short.maxother = 160


def shown(value: object) -> str:
    """What messages print of `value`, in one line and cut; of what is no value of Python's own types, the type."""
    try:
        text = _short.repr(value)
    except Exception:  # as of ints with more digits than Python prints
        text = f"{type(value).__name__} that cannot be printed"
    return one_line(text, _SHOWN)


def one_line(text: object, longest: int = _SHOWN) -> str:
    """`text`, as of another's error, in one line of printable characters; what is beyond `longest` is left out."""
    try:
        given = str(text)[: 4 * longest]
    except Exception:
        given = type(text).__name__
    line = "".join(c if c.isprintable() else "?" for c in " ".join(given.split()))
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def text_of(value: object) -> str | None:
    """The characters of a text, also of one of a class of its own; None for what is no text."""
    return str.__str__(value) if issubclass(type(value), str) else None  # what `isinstance` asks, an object may answer


def kind_of(value: object) -> str:
    """The full name of a value's type."""
    return name_of(type(value))


def name_of(kind: type) -> str:
    """The full name of a type."""
    return one_line(f"{kind.__module__}.{kind.__qualname__}", 160)


def some_of(names: Collection[str], most: int = 12) -> str:
    """Names in alphabetical order, as messages list them: the first ones, and how many there are beside."""
    listed = ", ".join(one_line(name, 80) for name in sorted(names)[:most])
    return f"{listed} and {len(names) - most} more" if len(names) > most else listed


def first_of(values: Iterable[Any], most: int) -> list[Any]:
    """What `values` has, up to one more than `most`: it may never end, and say nothing of its length."""
    return list(islice(values, most + 1))


def as_shape(name: str, value: Any) -> tuple[int, ...]:
    """Extents as a tuple of ints of 64 bits; raises InvalidProblem for anything else."""
    return ints(repr(name), value)


def ints(what: str, value: Any, *, bits: int = 64) -> tuple[int, ...]:
    """Signed ints of so many bits, no more than a tensor has axes; `what` is what messages call the value."""
    try:
        if type(value) is not tuple and (not isinstance(value, _SEQUENCES) or isinstance(value, _BYTES)):
            raise TypeError
        shape = tuple([operator.index(n) for n in islice(value, MAX_RANK + 1)])
    except Exception:
        raise InvalidProblem(f"{what} must be a sequence of ints, got {shown(value)}") from None
    if len(shape) > MAX_RANK:
        raise InvalidProblem(f"{what} must be a sequence of at most {MAX_RANK} ints, got {shown(value)}")
    if shape and (min(shape) < -(1 << bits - 1) or max(shape) >= 1 << bits - 1):
        raise InvalidProblem(f"{what} must be a sequence of ints of {bits} bits, got {shown(value)}")
    return shape


def as_int(name: str, value: Any) -> int:
    """An int of 64 bits; raises InvalidProblem for anything else."""
    try:
        number = operator.index(value)
    except Exception:
        raise InvalidProblem(f"{name!r} must be an int, got {shown(value)}") from None
    if not -_WORD <= number < _WORD:
        raise InvalidProblem(f"{name!r} must be an int of 64 bits, got {shown(value)}")
    return number


def as_float(name: str, value: Any) -> float:
    """A float; raises InvalidProblem for what does not convert to one, text included."""
    try:
        number = value.__float__()  # which text has not, though `float` reads it
        if isinstance(number, float):
            return float(number)
    except Exception:  # it has none, it is too large, or its own
        pass
    raise InvalidProblem(f"{name!r} must be a float, got {shown(value)}") from None


def as_bool(name: str, value: Any) -> bool:
    """A bool; raises InvalidProblem for anything else, numbers included."""
    if value is True or value is False:
        return bool(value)
    raise InvalidProblem(f"{name!r} must be True or False, got {shown(value)}")


def as_mapping(name: str, value: Any) -> dict[str, Any]:
    """Values by name, or nothing for None; raises InvalidProblem for anything else."""
    try:
        if value is not None and not issubclass(type(value), Mapping):
            raise TypeError
        found = {str.__str__(key): one for key, one in first_of(value.items(), _MOST_NAMES)} if value else {}
    except Exception:
        raise InvalidProblem(f"{name!r} must be values by name, got {shown(value)}") from None
    if len(found) > _MOST_NAMES:
        raise InvalidProblem(f"{name!r} must have at most {_MOST_NAMES} names, got {shown(value)}")
    return found


def as_names(name: str, value: Collection[str]) -> frozenset[str]:
    """Names as a set; raises InvalidProblem for anything else: a string would be taken for the names of its letters."""
    try:
        if not issubclass(type(value), Collection) or issubclass(type(value), str | bytes):
            raise TypeError
        names = frozenset([str.__str__(one) for one in first_of(value, _MOST_NAMES)])
    except Exception:
        raise InvalidProblem(f"{name} must be a collection of names, got {shown(value)}") from None
    if len(names) > _MOST_NAMES:
        raise InvalidProblem(f"{name} must be a collection of at most {_MOST_NAMES} names, got {shown(value)}")
    return names
