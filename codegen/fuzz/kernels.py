"""Targets that go on to machine code: kernels of accepted specs compile, and programs give what NumPy gives."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Any

from baracuda.runtime import REGISTRY, BaracudaError
from baracuda.runtime.cubin import compile_cubin

from ..generate import lower_all, texts
from ..load import Loaded, load_folder
from ..output import write
from ..verify import checks, map_problem, row_problem  # noqa: F401  their problems are known from then on
from ..verify.memory import PATTERNS, memory_of
from ..verify.problem import Problem
from ..verify.subject import Subject
from . import mutate
from .programs import program_spec
from .specs import Case, spec_case
from .targets import Read
from .verdict import Fault, refusal

_TRIES = 200  # draws of a case before one is accepted
_ARCH = "sm_80"


class _Accepted(Read):
    """Specs that are accepted, generated and imported: from then on the user trusts them."""

    pure = False

    def prepare(self) -> None:
        self.turn = 0
        self.specs = self.folder / "specs"
        sys.path.insert(0, str(self.folder))

    def case(self, index: int, rng: Random) -> object:
        for number in range(_TRIES):
            case = self.draw(index, number, rng)
            self.place(case)
            try:
                loaded = load_folder(self.specs)
                lower_all(loaded.values())
            except BaracudaError:
                continue
            if all(one.spec.family != "body" for one in loaded.values()):
                return case
        raise Fault(f"none of {_TRIES} specs was accepted")

    def draw(self, index: int, number: int, rng: Random) -> Case:
        raise AssertionError("targets define this")

    @contextmanager
    def subject(self) -> Iterator[Subject]:
        """The op of the first spec, generated into a package of its own that is forgotten afterwards."""
        self.turn += 1
        package, loaded = f"fuzzed_{self.name}_{self.turn}", load_folder(self.specs)
        write(texts(lower_all(loaded.values())), self.folder / package)
        importlib.invalidate_caches()
        with REGISTRY.apart():
            yield Subject(_first(loaded), loaded, package)
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[name]


def _first(loaded: dict[str, Loaded]) -> Loaded:
    return next(one for one in loaded.values() if one.source.path.name == "a.yaml")


def _cases(subject: Subject) -> Iterator[tuple[dict[str, Any], str]]:
    """The spec's test cases, each with an element."""
    for case in subject.spec.tests.cases:
        given = {name: value for name, value in case.items() if name != "dtype"}
        yield given, str(case.get("dtype", subject.spec.dtypes[0]))


class Compile(_Accepted):
    """Changed specs of this distribution that are still accepted: NVRTC compiles their kernels."""

    name = "compile"

    def draw(self, index: int, number: int, rng: Random) -> Case:
        return spec_case(rng.choice((0, 1, 6, 7, 8, 8)) + 10 * rng.randrange(1000), rng)

    def judge(self, case: object) -> str:
        with self.subject() as subject:
            try:
                for given, element in islice(_cases(subject), 1):
                    plan = subject.plan.select(subject.descriptor(given, element), device=None)
                    for source in islice(plan.sources(), 1):
                        compile_cubin(source, _ARCH)
            except BaracudaError as error:
                if type(error).__name__ == "CompileError":
                    raise Fault(f"does not compile: {error}") from None
                return refusal(error)
        return ""


class Execute(_Accepted):
    """Random programs of hostile names, run on the host device on hostile strides: within the bound on their error."""

    name = "execute"

    def prepare(self) -> None:
        super().prepare()
        self.memory = memory_of("host")

    def draw(self, index: int, number: int, rng: Random) -> Case:
        data = mutate.as_yaml(program_spec(rng), rng)
        return Case({"a.yaml": data}, str(rng.randrange(2**32)))

    def judge(self, case: object) -> str:
        assert isinstance(case, Case)
        rng = Random(case.how)
        with self.subject() as subject:
            for given, element in _cases(subject):
                problem = Problem.of(subject, given, element)
                one = checks.drawn(problem, rng.choice(("normal", "spread", "constant")))
                patterns = {name: rng.choice(list(PATTERNS)) for name in problem.arguments}
                if wrong := replace(one, patterns=patterns, repeats=2).verdict(self.memory)[1]:
                    raise Fault(wrong)
        return ""
