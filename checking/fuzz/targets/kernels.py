"""Targets that go on to machine code: kernels of accepted specs compile, and programs give what NumPy gives."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Any, ClassVar

import numpy as np

from baracuda.codegen.emit.generate import lower_all, texts
from baracuda.codegen.emit.output import write
from baracuda.codegen.spec.load import Loaded, load_folder
from baracuda.runtime import REGISTRY, BaracudaError
from baracuda.runtime.compile.cubin import compile_cubin

from ...problems.problem import Problem
from ...problems.subject import Subject
from ...trials.memory import PATTERNS, memory_of
from ...verify import checks
from ..draw import mutate
from ..draw.programs import program_spec
from ..draw.specs import Case, spec_case
from ..verdict import Fault, refusal
from .target import Read

_TRIES = 200  # draws of a case before one is accepted
_ARCH = "sm_80"
_LARGEST = 1 << 22  # elements, or bytes of a workspace


class _Accepted(Read):
    """Accepted specs, generated and imported, which the user trusts from then on."""

    pure = False
    bodies: ClassVar[bool] = False  # whether to include hand-written kernels, which a changed spec may not fit

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
            except Exception:  # a traceback is for `generate` to find, whose cases these are, too
                continue
            if self.bodies or not any(loaded_spec.spec.by_hand for loaded_spec in loaded.values()):
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
    return next(loaded_spec for loaded_spec in loaded.values() if loaded_spec.source.path.name == "a.yaml")


def _cases(subject: Subject) -> Iterator[tuple[dict[str, Any], str]]:
    """The spec's test cases, each with an element."""
    for case in subject.spec.tests.cases:
        fields = {name: value for name, value in case.items() if name != "dtype"}
        yield fields, str(case.get("dtype", subject.spec.dtypes[0]))


class Compile(_Accepted):
    """Changed specs of this distribution that are still accepted: NVRTC compiles their kernels."""

    name = "compile"

    def draw(self, index: int, number: int, rng: Random) -> Case:
        return spec_case(rng.choice((0, 1, 6, 7, 8, 8)) + 10 * rng.randrange(1000), rng)

    def judge(self, case: object) -> str:
        with self.subject() as subject:
            try:
                for fields, element in islice(_cases(subject), 1):
                    plan = subject.plan.select(subject.descriptor(fields, element), device=None)
                    for source in islice(plan.sources(), 1):
                        compile_cubin(source, _ARCH)
            except BaracudaError as error:
                if type(error).__name__ == "CompileError":
                    raise Fault(f"does not compile: {error}") from None
                return refusal(error)
        return ""


class Select(_Accepted):
    """Changed specs that are still accepted: on any problem their plans select, or refuse, and say what they need."""

    name = "select"
    bodies = True

    def draw(self, index: int, number: int, rng: Random) -> Case:
        case = spec_case(rng.randrange(10**6), rng)
        return Case(case.files, str(rng.randrange(2**32)))

    def judge(self, case: object) -> str:
        assert isinstance(case, Case)
        rng, refused = Random(case.how), []
        with self.subject() as subject:
            for fields, element in islice(_cases(subject), 3):
                for turn in range(4):
                    values = {**subject.values(fields), **_odd_fields(subject, rng if turn else None)}
                    try:
                        _use(subject.plan, subject.plan.DESCRIPTOR(**values, element=element))
                    except BaracudaError as error:
                        refused.append(refusal(error))
        return refused[0] if refused else ""


def _odd_fields(subject: Subject, rng: Random | None) -> dict[str, Any]:
    """Other values for a few fields of a descriptor, of their own types."""
    if rng is None:
        return {}
    odd = {
        "int": (0, -1, 1, 3, 1 << 20, 2**31, 2**63 - 1, -(2**63)),
        "float": (0.0, -1.5, 1e308, float("nan"), float("inf")),
        "bool": (False, True),
        "kind": ("", "relu", "gelu", "a kind"),
        "shape": ((), (0,), (1,) * 9, (2, 3), (3, 0, 2), (2**31, 2**31), (-1, 4), (7,) * 64),
    }
    fields = sorted(subject.spec.descriptor.items())
    fields = rng.sample(fields, min(len(fields), rng.randrange(1, 3)))
    return {name: rng.choice(odd[field.type]) for name, field in fields}


def _use(kind: Any, descriptor: Any) -> None:
    """All that can be asked of a plan without running it; what it would say of arrays, if these are small."""
    plan = kind.select(descriptor, device="host")
    bytes_needed = plan.workspace_bytes
    shapes = {name: [max(n, 0) for n in allowed[0]] for name, allowed in plan.shapes().items()}
    present = [name for name in plan.ARGUMENTS if plan.present(name)]
    if bytes_needed > _LARGEST or sum(math.prod(n or 1 for n in shapes[name]) for name in present) > _LARGEST:
        return
    arrays = {n: np.zeros(shapes[n], plan.elements_of(n)[0].row.numpy) for n in present}
    workspace = np.zeros(bytes_needed, np.uint8) if bytes_needed else None
    verdict = plan.can_implement(**{**dict.fromkeys(plan.ARGUMENTS), **arrays}, workspace=workspace)
    if verdict.error is not None:
        raise verdict.error


class Execute(_Accepted):
    """Random programs of hostile names, run on the host device on hostile strides: within the bound on their error."""

    name = "execute"

    def prepare(self) -> None:
        super().prepare()
        self.memory = memory_of("host")
        with suppress(Fault):  # builds the host runtime, which takes more seconds than a case may
            self.judge(self.case(0, Random(0)))

    def draw(self, index: int, number: int, rng: Random) -> Case:
        data = mutate.as_yaml(program_spec(rng), rng)
        return Case({"a.yaml": data}, str(rng.randrange(2**32)))

    def judge(self, case: object) -> str:
        assert isinstance(case, Case)
        rng = Random(case.how)
        with self.subject() as subject:
            for fields, element in _cases(subject):
                problem = Problem.of(subject, fields, element)
                trial = checks.drawn(problem, rng.choice(("normal", "spread", "constant")))
                patterns = {name: rng.choice(list(PATTERNS)) for name in problem.arguments}
                if failure := replace(trial, patterns=patterns, repeats=2).verdict(self.memory)[1]:
                    raise Fault(failure)
        return ""
