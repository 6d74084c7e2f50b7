"""Problems as lines of text, which `baracuda-gen pack` reads; and the file that a recorded run writes them to.

A line is the name of a plan and words `name=value`: fields of its descriptor, what it was selected with
(`select.archs=`) and element types that the caller chose (`dtypes.gamma=f32`), quoted as in a shell.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from .preference import DEFAULT

if TYPE_CHECKING:
    from .plan import Plan

Types = Callable[[], Mapping[str, object]]  # element types by argument, asked for only where they matter
BUILT_IN = "baracuda.generated"  # the package whose plans need no prefix
RECORD = "BARACUDA_RECORD"
_file = os.environ.get(RECORD)
_known: set[str] = set()  # lines that this process wrote


def record(plan: Plan[Any], dtypes: Types) -> None:
    """Add a problem to the file that BARACUDA_RECORD names, once a process; without it, nothing."""
    if _file is None or (line := problem_line(plan, dtypes)) in _known:
        return
    _known.add(line)
    file = os.open(_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        os.write(file, f"{line}\n".encode())  # one call, so that the lines of several processes stay whole
    finally:
        os.close(file)


def problem_line(plan: Plan[Any], dtypes: Types) -> str:
    """The problem of a plan, for arguments of `dtypes`."""
    kind = type(plan)
    package = kind._package().rpartition(".")[0]
    name = kind.__name__ if package == BUILT_IN else f"{package}.{kind.__name__}"
    return shlex.join([name, *_words(plan, dtypes)])


def _words(plan: Plan[Any], dtypes: Types) -> Iterator[str]:
    for field in fields(plan.descriptor):
        yield f"{field.name}={_text(getattr(plan.descriptor, field.name))}"
    for name in DEFAULT.__dataclass_fields__:
        if (value := getattr(plan._preference, name)) != getattr(DEFAULT, name):
            yield f"select.{name}={_text(value)}"
    if plan.layouts != frozenset(plan.LAYOUTS):
        yield f"select.layouts={_text(plan.layouts)}"
    chosen = dtypes() if plan.CHOSEN else {}
    for name in plan.CHOSEN:
        if (element := chosen.get(name)) is not None and element != plan.elements_of(name)[0]:
            yield f"dtypes.{name}={element}"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | frozenset):
        return ",".join(map(str, sorted(value) if isinstance(value, frozenset) else value))
    return repr(value) if isinstance(value, float) else str(value)


def pack_command(plan: Plan[Any], dtypes: Types, arch: str) -> str:
    """The command that packs the kernels of a problem for `arch`."""
    return f"baracuda-gen pack --arch {arch} --problem {shlex.quote(problem_line(plan, dtypes))} --out PACK"
