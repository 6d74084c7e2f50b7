"""A saved trial: a .zip with its description in `repro.json` and its data as .npy files."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shlex
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from baracuda.codegen.project import options_of, refuse_ungenerated
from baracuda.codegen.spec.load import Loaded
from baracuda.codegen.spec.tuned import digest_of_kernels
from baracuda.codegen.spec.wording import did_you_mean
from baracuda.runtime import BaracudaError, ElementKind, InvalidProblem, PlanPreference, Unsupported
from baracuda.runtime.cache.publish import publish
from baracuda.runtime.compile.cubin import nvrtc_version
from baracuda.runtime.errors import CompileError
from baracuda.runtime.values import one_line

from ..problems.problem import Problem
from ..problems.subject import Subject
from ..trials.memory import HostMemory, Memory
from ..trials.trial import Trial
from ..variables import REPRO, SPECS
from .facts import FORMAT, PARTS, facts_of
from .fits import check_fits
from .members import LARGEST, check_file, member
from .numbers import kind_of, packed, unpacked

_FACTS = "repro.json"
_VERSIONS = ("baracuda-gen", "numpy", "cuda-core", "torch")
_MOST_FACTS = 1 << 20
_HOW = ("patterns", "broadcast", "shift_workspace", "repeats")
Numbers = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Bundle:
    """The contents of a file: `repro.json`, and data by part and name."""

    path: Path
    facts: Mapping[str, Any]
    numbers: Mapping[str, Numbers]

    def trial(self, loaded: Mapping[str, Loaded], package: str, device: str) -> Trial:
        """The trial with these specs and plans, on "host" or "cuda:0".

        Raises InvalidProblem if they no longer have such a problem, Unsupported if no kernel of the device serves it.
        """
        try:
            return self._trial(loaded, package, device)
        except BaracudaError as error:
            kind = Unsupported if isinstance(error, Unsupported) else InvalidProblem
            raise kind(f"{self.path}: {one_line(error, 1000)}") from error
        except Exception as error:  # as of facts that contradict each other
            raise _damaged(self.path, error) from error

    def _trial(self, loaded: Mapping[str, Loaded], package: str, device: str) -> Trial:
        facts = self.facts
        if facts["op"] not in loaded:
            raise InvalidProblem(f"no op {facts['op']!r}; {did_you_mean(facts['op'], loaded)}")
        refuse_ungenerated([facts["op"]], loaded, package)
        subject = Subject(loaded[facts["op"]], loaded, package)
        problem = Problem.of(subject, facts["case"], facts["element"], facts["arch"], facts["layout"])
        if str(problem.descriptor) != facts["descriptor"]:
            raise InvalidProblem(f"is of {facts['descriptor']}, which is {problem.descriptor} here")
        archs = facts["archs"] and frozenset(facts["archs"])
        layouts = facts["layout"] and [facts["layout"]]
        asked = {"math_precision": facts["math_precision"], "waives": frozenset(facts["waives"])}
        preference = PlanPreference(archs=archs, tuned=facts["tuned"], **asked)
        problem.plan = subject.plan.select(problem.descriptor, preference, device=device, layouts=layouts)
        check_fits(problem, facts, self.numbers)
        choice = {name: ElementKind(kind) for name, kind in facts["choice"].items()}
        inputs, exact, allowed = (self.numbers[part] for part in PARTS)
        return Trial(problem, inputs, exact, allowed, choice, **{name: facts[name] for name in _HOW})

    def changed(self, trial: Trial) -> list[str]:
        """What has changed: the spec, the selected kernel, its source."""
        now = _identity(trial)
        return [name for name, value in self.facts["of"].items() if now.get(name) != value]


def write(trial: Trial, folder: Path, saw: str, memory: Memory, origin: Mapping[str, Any]) -> Path:
    """Save a trial in which `saw` was seen; `origin` says where its data comes from. Returns the file.

    Its name contains a digest of its contents, so it overwrites only itself.
    """
    data = _packed(trial, saw, memory, origin)
    name = f"{trial.problem.spec.op}-{trial.problem.element}-{hashlib.sha256(data).hexdigest()[:8]}.zip"
    publish(folder / name, data)
    return folder / name


def read(path: Path) -> Bundle:
    """Read a file of `write`; InvalidProblem for anything else, and for more than `LARGEST` bytes."""
    try:
        if not path.is_file():
            wrong = "is not a regular file" if path.exists() else "no such file"
            raise InvalidProblem(f"{wrong}; 'baracuda-gen test --repro DIR' writes one per failure")
        check_file(path)
        with zipfile.ZipFile(path) as file:
            facts = facts_of(json.loads(member(file, _FACTS, _MOST_FACTS)))
            kinds = facts["numbers"]
            nbytes = sum(file.getinfo(f"{p}/{n}.npy").file_size for p in PARTS for n in kinds[p])
            if nbytes > LARGEST:
                raise InvalidProblem(f"has {nbytes} bytes of numbers; a bundle has {LARGEST} at most")
            numbers = {p: {n: unpacked(member(file, f"{p}/{n}.npy"), k) for n, k in kinds[p].items()} for p in PARTS}
    except BaracudaError as error:
        raise InvalidProblem(f"{path}: {one_line(error)}") from None
    except Exception as error:  # whatever a file that is no bundle makes its readers do
        raise _damaged(path, error) from None
    return Bundle(path, facts, numbers)


def _damaged(path: Path, error: Exception) -> InvalidProblem:
    return InvalidProblem(f"{path}: is no bundle, or a damaged one ({type(error).__name__}: {one_line(error)})")


def offer(trial: Trial, saw: str, memory: Memory) -> str:
    """If the environment names a folder, save the trial there and return the command that reruns it, else ""."""
    folder = os.environ.get(REPRO)
    if not folder:
        return ""
    specs = os.environ.get(SPECS)
    file = write(trial, Path(folder), saw, memory, {})
    return f"\nagain: {replay(file, Path(specs) if specs else None, trial.problem.subject.package)}"


def replay(path: Path, specs: Path | None, package: str) -> str:
    """The command that reruns a file, from this folder."""
    return f"baracuda-gen repro {shlex.quote(str(path))}{options_of(specs, package)}"


def _packed(trial: Trial, saw: str, memory: Memory, origin: Mapping[str, Any]) -> bytes:
    problem, preference = trial.problem, trial.problem.plan._preference
    numbers = {part: {n: np.asarray(a) for n, a in getattr(trial, part).items()} for part in PARTS}
    facts = {
        "format": FORMAT,
        "op": problem.spec.op,
        "descriptor": str(problem.descriptor),
        "case": problem.values,
        "element": problem.element,
        "arch": problem.arch,
        "layout": problem.layout,
        "archs": preference.archs and sorted(preference.archs),
        "tuned": preference.tuned,
        "math_precision": preference.math_precision,
        "waives": sorted(preference.waives),
        "choice": trial.choice,
        **{name: getattr(trial, name) for name in _HOW},
        "device": _device_of(memory),
        "saw": saw,
        "origin": dict(origin),
        "package": problem.subject.package,
        "of": _identity(trial),
        "versions": _versions(),
        "numbers": {part: {name: kind_of(a) for name, a in of.items()} for part, of in numbers.items()},
    }
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        _add(file, _FACTS, json.dumps(facts, indent=1, default=np.generic.item).encode())
        for part, of in numbers.items():
            for name, array in of.items():
                _add(file, f"{part}/{name}.npy", packed(array))
    return data.getvalue()


def _add(file: zipfile.ZipFile, name: str, data: bytes) -> None:
    """Without a time stamp, so that equal contents make equal files."""
    file.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)


def _device_of(memory: Memory) -> str:
    checks = isinstance(memory, HostMemory) and memory.device.check
    return "check" if checks else memory.name


def _identity(trial: Trial) -> dict[str, str]:
    """What determines the outcome besides the data, by name."""
    subject, plan = trial.problem.subject, trial.problem.plan
    spec = hashlib.sha256(subject.loaded.source.path.read_bytes()).hexdigest()[:16]
    return {"the spec": spec, "the kernel": str(plan.sku), "the kernel's text": digest_of_kernels(plan._row.source.raw)}


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "machine": platform.machine()}
    for name in _VERSIONS:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    with suppress(CompileError):
        versions["nvrtc"] = nvrtc_version()
    return versions
