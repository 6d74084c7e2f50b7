"""Turns Python's errors in a spec's expressions into ours: `n // m` where m is 0, or the minimum of an empty shape."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import extract_tb
from typing import TYPE_CHECKING

from .errors import BaracudaError, InvalidProblem
from .values import one_line, shown

if TYPE_CHECKING:
    from .plans.descriptor import Descriptor

NO_VALUE = (ArithmeticError, LookupError, TypeError, ValueError)  # what arithmetic on fields may raise
_FIELD = re.compile(r"\b(?:self|d)\.(\w+)")


@contextmanager
def computing(descriptor: Descriptor) -> Iterator[None]:
    """Raise InvalidProblem, with expression and fields, if an expression has no value for `descriptor`."""
    try:
        yield
    except BaracudaError:
        raise
    except NO_VALUE as error:
        text = _expression(error, descriptor)
        names = dict.fromkeys(name for name in _FIELD.findall(text) if hasattr(descriptor, name))
        got = f"; got {', '.join(f'{name}={shown(getattr(descriptor, name))}' for name in names)}" if names else ""
        what = f"{text} has no value: " if text else ""
        raise InvalidProblem(f"{descriptor._plan}: {what}{one_line(error)}{got}") from None


def _expression(error: BaseException, descriptor: Descriptor) -> str:
    """The failing expression as the descriptor's module has it; "" if its source is not available."""
    module = getattr(sys.modules.get(type(descriptor).__module__), "__file__", None)
    frames = [frame for frame in extract_tb(error.__traceback__) if frame.filename == module]
    if not frames:
        return ""
    at = frames[-1]
    lines = linecache.getlines(at.filename)[(at.lineno or 0) - 1 : at.end_lineno]
    if not lines or at.colno is None or at.end_colno is None:
        return ""
    last = len(lines[-1]) - at.end_colno
    return one_line("".join(lines)[at.colno : -last or None], 200)
