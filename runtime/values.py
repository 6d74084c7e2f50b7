"""Callers' values: converted to canonical types, whatever code they run when asked, and printed briefly."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from reprlib import Repr
from typing import Any, TypeVar

import numpy as np

from .errors import InvalidProblem

MAX_RANK = 64  # axes of a tensor, as NumPy has
_WORD = 1 << 63  # ints travel to kernels in signed words of 64 bits
_MOST_NAMES = 1000
_SHOWN = 400  # characters of a value in a message


V = TypeVar("V")


def table(**entries: V) -> dict[str, V]:
    """Entries by name, as plans declare them."""
    return entries


def near(word: str, names: Iterable[str]) -> str | None:
    """The name that is most like `word`, if one is like it, for messages."""
    from difflib import get_close_matches  # only where something is wrong

    return next(iter(get_close_matches(word, names, n=1)), None)


class _Short(Repr):
    """Prints values of Python's own types; of all others only the type, since their `repr` may run any code."""

    def repr1(self, x: Any, level: int) -> str:
        return super().repr1(x, level) if type(x) in _PRINTED else f"<{kind_of(x)}>"


_SEQUENCES, _BYTES = (Sequence, np.ndarray), (bytes, bytearray, memoryview)
_PRINTED = (bool, bytes, complex, dict, float, frozenset, int, list, range, set, str, tuple, type(None))
_short = _Short()
_short.maxtuple = _short.maxlist = _short.maxarray = MAX_RANK
_short.maxdict = _short.maxset = _short.maxfrozenset = 8
_short.maxlevel, _short.maxlong = 3, 60
_short.maxstring = _short.maxother = 160


def short_repr(value: object) -> str:
    """How messages print `value`: in one line, shortened; for types that are not Python's own, the type."""
    try:
        text = _short.repr(value)
    except Exception:  # as of ints with more digits than Python prints
        text = f"{type(value).__name__} that cannot be printed"
    return one_line(text, _SHOWN)


def one_line(text: object, longest: int = _SHOWN) -> str:
    """`text` as one line of printable characters, cut after `longest`."""
    try:
        raw = str(text)[: 4 * longest]
    except Exception:
        raw = type(text).__name__
    line = "".join(c if c.isprintable() else "?" for c in " ".join(raw.split()))
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def text_of(value: object) -> str | None:
    """The characters of a string, also of a subclass; None for anything else."""
    return str.__str__(value) if issubclass(type(value), str) else None  # what `isinstance` asks, an object may answer


def kind_of(value: object) -> str:
    """The full name of a value's type."""
    return name_of(type(value))


def name_of(kind: type) -> str:
    """The full name of a type."""
    return one_line(f"{kind.__module__}.{kind.__qualname__}", 160)


def some_of(names: Collection[str], most: int = 12) -> str:
    """Names in alphabetical order, as messages list them: the first ones and how many more."""
    listed = ", ".join(one_line(name, 80) for name in sorted(names)[:most])
    return f"{listed} and {len(names) - most} more" if len(names) > most else listed


def first_of(values: Iterable[Any], most: int) -> list[Any]:
    """Up to `most` + 1 items of `values`, which may be endless and may lack a length."""
    return list(islice(values, most + 1))


def as_shape(name: str, value: Any) -> tuple[int, ...]:
    """Extents as a tuple of 64-bit ints; raises InvalidProblem for anything else."""
    return ints(repr(name), value)


def ints(label: str, value: Any, *, bits: int = 64) -> tuple[int, ...]:
    """Signed ints of at most `bits` bits, at most as many as a tensor has axes; messages call the value `label`."""
    try:
        if type(value) is not tuple and (not isinstance(value, _SEQUENCES) or isinstance(value, _BYTES)):
            raise TypeError
        shape = tuple([operator.index(n) for n in islice(value, MAX_RANK + 1)])
    except Exception:
        raise InvalidProblem(f"{label} must be a sequence of ints, got {short_repr(value)}") from None
    if len(shape) > MAX_RANK:
        raise InvalidProblem(f"{label} must be a sequence of at most {MAX_RANK} ints, got {short_repr(value)}")
    if shape and (min(shape) < -(1 << bits - 1) or max(shape) >= 1 << bits - 1):
        raise InvalidProblem(f"{label} must be a sequence of ints of {bits} bits, got {short_repr(value)}")
    return shape


def as_int(name: str, value: Any) -> int:
    """A 64-bit int; raises InvalidProblem for anything else."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except Exception:
        raise InvalidProblem(f"{name!r} must be an int, got {short_repr(value)}") from None
    if not -_WORD <= number < _WORD:
        raise InvalidProblem(f"{name!r} must be an int of 64 bits, got {short_repr(value)}")
    return number


def as_float(name: str, value: Any) -> float:
    """A float; raises InvalidProblem for what does not convert, strings included."""
    try:
        number = value.__float__()  # which text has not, though `float` reads it
        if isinstance(number, float):
            return float(number)
    except Exception:  # it has none, it is too large, or its own
        pass
    raise InvalidProblem(f"{name!r} must be a float, got {short_repr(value)}") from None


def as_bool(name: str, value: Any) -> bool:
    """A bool; raises InvalidProblem for anything else, numbers included."""
    if value is True or value is False:
        return bool(value)
    raise InvalidProblem(f"{name!r} must be True or False, got {short_repr(value)}")


def as_text(name: str, value: Any) -> str:
    """A string; raises InvalidProblem for anything else."""
    if (text := text_of(value)) is not None:
        return text
    raise InvalidProblem(f"{name!r} must be a string, got {short_repr(value)}")


def as_mapping(name: str, value: Any) -> dict[str, Any]:
    """Values by name, empty for None; raises InvalidProblem for anything else."""
    try:
        if value is not None and not issubclass(type(value), Mapping):
            raise TypeError
        mapping = {str.__str__(key): item for key, item in first_of(value.items(), _MOST_NAMES)} if value else {}
    except Exception:
        raise InvalidProblem(f"{name!r} must be values by name, got {short_repr(value)}") from None
    if len(mapping) > _MOST_NAMES:
        raise InvalidProblem(f"{name!r} must have at most {_MOST_NAMES} names, got {short_repr(value)}")
    return mapping


def as_names(name: str, value: Collection[str]) -> frozenset[str]:
    """Names as a set; raises InvalidProblem for anything else, such as a single string."""
    try:
        if not issubclass(type(value), Collection) or issubclass(type(value), str | bytes):
            raise TypeError
        names = frozenset([str.__str__(item) for item in first_of(value, _MOST_NAMES)])
    except Exception:
        raise InvalidProblem(f"{name} must be a collection of names, got {short_repr(value)}") from None
    if len(names) > _MOST_NAMES:
        raise InvalidProblem(f"{name} must be a collection of at most {_MOST_NAMES} names, got {short_repr(value)}")
    return names
