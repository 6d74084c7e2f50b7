"""Where tests find what they need, whichever folder they are in."""

import os
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, TypeVar

from ruamel.yaml import YAML

from baracuda.checking.problems.problem import Problem
from baracuda.checking.problems.subject import Subject
from baracuda.checking.sampling import share
from baracuda.checking.variables import FIRST, SAMPLE
from baracuda.codegen.project import Project
from baracuda.codegen.spec.parts import GradientSpec
from baracuda.runtime.cache.folder import CacheFolder
from baracuda.runtime.host import HostDevice
from baracuda.runtime.host.cache import content

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[1]
SPECS = ROOT / "specs"
SAMPLES = ROOT / "tests" / "specs"
LONG = ROOT / "tests" / "long_specs"  # some of SPECS, written out in full
KERNELS = ROOT / "tests" / "host" / "kernels"


@cache
def project() -> Project:
    """The repository's specs, read and rendered once for all tests of a process; not to be changed."""
    return Project.read(SPECS)


def frozen_defects() -> Any:
    """The defects of frozen_defects.yaml: lists of `mutants` and `kernels`, and of each family of `host` kernels."""
    return YAML(typ="safe").load(ROOT / "tests" / "frozen_defects.yaml")


def few(items: Iterable[T], count: int, name: Callable[[T], str] = str) -> list[T]:
    """`count` of `items`, as BARACUDA_TEST_SAMPLE picks them by name; all when everything is to be tested.

    For what is tested of every op or kernel, so that its cost does not grow with their number.
    """
    known = {name(item): item for item in items}
    if (seed := os.environ.get(SAMPLE)) is None:
        return list(known.values())
    sampled = share({one: [one] for one in known}, count, seed, os.environ.get(FIRST, "").split())
    return [item for one, item in known.items() if one in sampled]


def usual_element(dtypes: Sequence[str], wanted: str) -> str:
    """The `wanted` one, the complex one of such parts, or the first one of an op that has neither."""
    return next((e for e in (wanted, {"f32": "c64", "f64": "c128"}.get(wanted)) if e in dtypes), dtypes[0])


def empty_problems(subject: Subject, gradient: GradientSpec, element: str) -> list[Problem]:
    """The spec's cases in which nothing that `gradient` differentiates, or nothing with a cotangent, has elements."""

    def is_empty(problem: Problem) -> bool:
        sides = gradient.wrt.values(), gradient.cotangents.values()
        return any(not any(prod(problem.shape_of(n)) for n in side if problem.plan.present(n)) for side in sides)

    made = [Problem.of(subject, case, usual_element(subject.spec.dtypes, element)) for case in subject.spec.tests.cases]
    found = [problem for problem in made if is_empty(problem)]
    assert found, f"{subject.spec.op} has no test case without elements"
    return found


def share_runtime(cache: Path) -> None:
    """Copy the library that runs the host device's kernels to another cache, so that it is not built there again."""
    built = HostDevice()._builder.runtime_file()
    CacheFolder(cache / "host").write(built.name, content(built))
