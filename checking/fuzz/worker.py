"""The task of a sweep: a case of a target, judged in a process apart, which may die of it."""

from __future__ import annotations

import gc
import os
import tempfile
from functools import cache
from pathlib import Path

from baracuda.codegen.project import TOOLS, installed
from baracuda.runtime import InvalidProblem

from ..apart import retire
from ..result_file import digest_of
from . import watch
from .targets.all import Target
from .verdict import Verdict, described

Case = tuple[str, int]  # a target and the number of its case


@cache
def target(seed: int, name: str) -> Target:
    """The target of this process, which is watched from then on and has a cache beside its temporary files.

    Raises InvalidProblem where it cannot be set up, since no case would say anything.
    """
    around = tempfile.gettempdir()
    os.environ.update({"BARACUDA_CACHE_DIR": f"{around}/cache", "BARACUDA_CACHE_SHARED": ""})
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    os.chdir(folder)
    watch.install()
    try:
        made = Target.kinds[name](seed, folder)
    except Exception as error:
        raise InvalidProblem(f"the target {name!r} cannot be set up: {described(error)}") from error
    gc.freeze()  # a case's budget pays for its own garbage, not for looking through what was set up
    return made


def ready(seed: int, name: str) -> None:
    """Set a target up, before there is a case that could be blamed for it."""
    target(seed, name)


def description(seed: int, case: Case) -> str:
    """A readable description of a case."""
    name, index = case
    return target(seed, name).describe(target(seed, name).drawn(index))


def judged(seed: int, case: Case) -> Verdict:
    """The verdict on a case."""
    name, index = case
    verdict = target(seed, name).verdict(index)
    if (index + 1) % Target.kinds[name].recycled == 0:
        retire()
    return verdict


def against() -> str:
    """A digest of everything that verdicts depend on."""
    return digest_of(map(installed, (*TOOLS, "baracuda.specs")))
