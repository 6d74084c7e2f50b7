"""The task of a sweep that takes times: a case, in a process apart that has a GPU to itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from baracuda.checking.apart import Apart, Lost, retire
from baracuda.checking.executors import Pool, each, pool
from baracuda.checking.gpus import places
from baracuda.checking.problems.subject import Subject
from baracuda.checking.result_file import digest_of
from baracuda.codegen.project import installed, plans_of, specs_at, unless_installed
from baracuda.codegen.spec.load import load_folder
from baracuda.runtime import ElementKind, InvalidProblem, get_device

from .case import Case
from .ceilings import ceilings
from .contest import OURS, Measured, contest
from .machine import Machine, TorchMachine
from .peers import available
from .tuning import tried


@dataclass(frozen=True)
class Posed:
    """A case as it is told another process."""

    specs: Path | None
    package: str
    op: str
    declared: Mapping[str, Any]
    element: ElementKind
    arch: str | None
    tuned: bool

    @classmethod
    def of(cls, case: Case, specs: Path) -> Posed:
        declared, package = dict(case.declared), case.subject.package
        return cls(unless_installed(specs), package, case.op, declared, case.element, case.arch, case.tuned)

    def case(self) -> Case:
        subject = _subject(self.specs, self.package, self.op)
        return Case(subject, self.declared, self.element, self.arch, self.tuned)


@cache
def _subject(specs: Path | None, package: str, op: str) -> Subject:
    plans_of(package)
    loaded = load_folder(specs_at(specs), [op])
    return Subject(loaded[op], loaded, package)


@dataclass(frozen=True)
class About:
    """The machine of a sweep: what it is, what peers it has, and why it lacks others."""

    facts: Mapping[str, str]
    peers: tuple[str, ...]
    missing: Mapping[str, str]


@dataclass(frozen=True)
class Timed:
    """The contestants of a case, and how the device failed in one of them, if it did."""

    lines: list[Measured]
    complaint: str = ""


@cache
def machine() -> Machine:
    """The GPU of this process."""
    return TorchMachine()


@cache
def limits() -> dict[str, float]:
    """What that can do at most."""
    the = machine()
    assert isinstance(the, TorchMachine)
    return ceilings(the)


def about(names: tuple[str, ...]) -> About:
    """What a sweep has to know before it begins; `names` are those of peers, none for all."""
    makers, missing = available(names)
    facts = {"arch": get_device(machine().device).arch, **machine().facts()}
    return About(facts, tuple(makers), missing)


def benched(names: tuple[str, ...], posed: Posed) -> Timed:
    """A contest of our plan and peers."""
    makers, tops = available(names)[0], limits()
    lines = contest(posed.case(), makers, machine())
    return _timed([replace(m, ceilings=tops, asked=tuple(makers)) for m in lines])


def tuned(posed: Posed) -> Timed:
    """A trial of the rule's choice and the other kernels."""
    return _timed(tried(posed.case(), machine()))


def _timed(lines: Sequence[Measured]) -> Timed:
    """The lines with the machine they are of, which is no longer used if it failed: later times would mean nothing."""
    facts = {"arch": get_device(machine().device).arch, **machine().facts()}
    lines = [replace(line, facts=facts) for line in lines]
    try:
        machine().finish()
    except Exception as error:
        retire()
        return Timed(lines, f"the device failed in one of the peers ({str(error).splitlines()[0]})")
    return Timed(lines)


def timed(
    within: Pool, task: Callable[[Posed], Timed], cases: Sequence[Case], specs: Path, facts: Mapping[str, str]
) -> Iterator[tuple[Case, Timed]]:
    """The times of all cases, as they are taken. A worker that died is a problem of its case.

    Raises InvalidProblem where a worker has another GPU than `facts` are of.
    """
    tasks = deque((number, Posed.of(case, specs)) for number, case in enumerate(cases))
    for (number, _), found in each(within, partial(_second, task), tasks):
        case = cases[number]
        if isinstance(found, Lost):
            line = Measured(case.op, case.label, case.element.value, OURS, problem=str(found), facts=facts)
            found = Timed([line])
        if (other := found.lines[0].facts["device"]) != facts["device"]:
            raise InvalidProblem(f"a worker has {other}, another {facts['device']}; take one kind of GPU, by --gpus")
        yield case, found


def _second(task: Callable[[Posed], Timed], numbered: tuple[int, Posed]) -> Timed:
    return task(numbered[1])


@contextmanager
def gpus(executor: str, which: str | None, specs: Path, package: str) -> Iterator[Pool]:
    """The GPUs of a sweep, one task at a time each: those asked for, else the current one or those of a cluster."""
    with opener(specs, package)(executor, 1, places=places(which)) as within:
        yield within


def opener(specs: Path, package: str) -> Callable[..., AbstractContextManager[Pool]]:
    """What opens a pool of workers that take times: `pool` with all that such workers need."""
    return partial(pool, apart=Apart(), alike=partial(against, unless_installed(specs), package), alone=True)


def against(specs: Path | None, package: str) -> str:
    """A digest of what times depend on beside the machine."""
    ours = map(installed, ("baracuda.benchmarks", "baracuda.checking", "baracuda.runtime"))
    return digest_of([*ours, specs_at(specs), Path(str(plans_of(package).__file__)).parent])
