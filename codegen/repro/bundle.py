"""A trial in a file: a .zip with what it is in `repro.json` and its numbers as .npy files."""

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

from baracuda.runtime import ElementKind, InvalidProblem, PlanPreference
from baracuda.runtime.cubin import nvrtc_version
from baracuda.runtime.element import BY_NUMPY
from baracuda.runtime.errors import CompileError
from baracuda.runtime.publish import publish

from ..commands.project import options_of
from ..load import Loaded
from ..spec_wording import did_you_mean
from ..tuned import digest_of_kernels
from ..verify import body_problem, map_problem, row_problem  # noqa: F401  their problems are known from then on
from ..verify.memory import HostMemory, Memory
from ..verify.problem import Problem
from ..verify.subject import Subject
from ..verify.trial import Trial

FORMAT = 1
FOLDER = "BARACUDA_TEST_REPRO"  # where tests leave a bundle of what fails
_FACTS = "repro.json"
_VERSIONS = ("baracuda-gen", "numpy", "cuda-core", "torch")
_PARTS = ("inputs", "exact", "allowed")
_HOW = ("patterns", "broadcast", "shift_workspace", "repeats")
Numbers = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Bundle:
    """What was in a file: the contents of `repro.json`, and numbers by part and name."""

    path: Path
    facts: Mapping[str, Any]
    numbers: Mapping[str, Numbers]

    def trial(self, loaded: Mapping[str, Loaded], package: str, device: str) -> Trial:
        """The trial as it is with these specs and plans, on "host" or "cuda:0".

        Raises InvalidProblem when they know no such problem any more, Unsupported when no kernel of the device may
        serve it.
        """
        facts = self.facts
        if facts["op"] not in loaded:
            raise InvalidProblem(f"{self.path}: no op {facts['op']!r}; {did_you_mean(facts['op'], loaded)}")
        subject = Subject(loaded[facts["op"]], loaded, package)
        problem = Problem.of(subject, facts["case"], facts["element"], facts["arch"], facts["layout"])
        if str(problem.descriptor) != facts["descriptor"]:
            raise InvalidProblem(f"{self.path}: is of {facts['descriptor']}, which is {problem.descriptor} here")
        archs = facts["archs"] and frozenset(facts["archs"])
        layouts = facts["layout"] and [facts["layout"]]
        preference = PlanPreference(archs=archs, tuned=facts["tuned"])
        problem.plan = subject.plan.select(problem.descriptor, preference, device=device, layouts=layouts)
        self._check_shapes(problem)
        choice = {name: ElementKind(kind) for name, kind in facts["choice"].items()}
        inputs, exact, allowed = (self.numbers[part] for part in _PARTS)
        return Trial(problem, inputs, exact, allowed, choice, **{name: facts[name] for name in _HOW})

    def _check_shapes(self, problem: Problem) -> None:
        inputs = {name: array.shape for name, array in self.numbers["inputs"].items()}
        needed = {name: problem.shape_of(name) for name in inputs.keys() & problem.arguments.keys()}
        if inputs != needed:
            raise InvalidProblem(f"{self.path}: has inputs {inputs}, {problem.spec.plan} takes {needed}")
        if missing := problem.results.keys() - self.numbers["exact"].keys():
            raise InvalidProblem(f"{self.path}: does not say what {', '.join(sorted(missing))} should be")

    def changed(self, trial: Trial) -> list[str]:
        """What is not as it was: the spec, the kernel that is taken, its text."""
        now = _identity(trial)
        return [name for name, value in self.facts["of"].items() if now.get(name) != value]


def write(trial: Trial, folder: Path, saw: str, memory: Memory, origin: Mapping[str, Any]) -> Path:
    """Keep a trial in which `saw` was seen; `origin` says where its numbers come from. Returns the file.

    Its name has a digest of all it holds, so that it replaces nothing but itself.
    """
    data = _packed(trial, saw, memory, origin)
    name = f"{trial.problem.spec.op}-{trial.problem.element}-{hashlib.sha256(data).hexdigest()[:8]}.zip"
    publish(folder / name, data)
    return folder / name


def read(path: Path) -> Bundle:
    """Read what `write` has written; InvalidProblem for anything else."""
    try:
        with zipfile.ZipFile(path) as file:
            facts = json.loads(file.read(_FACTS))
            if facts["format"] != FORMAT:
                raise InvalidProblem(f"{path}: is of format {facts['format']}, needed is {FORMAT}")
            kinds = facts["numbers"]
            numbers = {p: {n: _number(file, f"{p}/{n}.npy", k) for n, k in kinds[p].items()} for p in _PARTS}
    except FileNotFoundError:
        raise InvalidProblem(f"{path}: no such file; 'baracuda-gen compare --repro DIR' writes one") from None
    except (OSError, zipfile.BadZipFile, KeyError, TypeError, ValueError) as error:
        raise InvalidProblem(f"{path}: is no bundle, or a damaged one ({error})") from None
    return Bundle(path, facts, numbers)


def offer(trial: Trial, saw: str, memory: Memory) -> str:
    """Where the environment names a folder, keep the trial there and return the command to see it again, else ""."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return ""
    from ..verify.suite import SPECS  # which imports this

    specs = os.environ.get(SPECS)
    return f"\nagain: {replay(write(trial, Path(folder), saw, memory, {}), Path(specs) if specs else None)}"


def replay(path: Path, specs: Path | None) -> str:
    """The command that tries again what is in a file, from this folder."""
    return f"baracuda-gen repro {shlex.quote(str(path))}{options_of(specs)}"


def _packed(trial: Trial, saw: str, memory: Memory, origin: Mapping[str, Any]) -> bytes:
    problem, preference = trial.problem, trial.problem.plan._preference
    numbers = {part: {n: np.asarray(a) for n, a in getattr(trial, part).items()} for part in _PARTS}
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
        "choice": trial.choice,
        **{name: getattr(trial, name) for name in _HOW},
        "device": _device_of(memory),
        "saw": saw,
        "origin": dict(origin),
        "package": problem.subject.package,
        "of": _identity(trial),
        "versions": _versions(),
        "numbers": {part: {name: _kind(a) for name, a in of.items()} for part, of in numbers.items()},
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        _add(file, _FACTS, json.dumps(facts, indent=1, default=np.generic.item).encode())
        for part, of in numbers.items():
            for name, array in of.items():
                _add(file, f"{part}/{name}.npy", _npy(array))
    return packed.getvalue()


def _add(file: zipfile.ZipFile, name: str, data: bytes) -> None:
    """Without the time, so that equal contents make equal files."""
    file.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)


# NumPy's files know neither bf16 and the like, whose bits are kept, nor the same extended numbers everywhere, which are
# kept as the sum of two.


def _kind(array: np.ndarray[Any, Any]) -> str:
    return "sum" if array.dtype.char in "gG" else str(BY_NUMPY[array.dtype])


def _npy(array: np.ndarray[Any, Any]) -> bytes:
    if array.dtype.char in "gG":
        near = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
        with np.errstate(invalid="ignore"):
            array = np.stack([near, np.where(np.isfinite(near), array - near, 0).astype(near.dtype)])
    elif array.dtype.isbuiltin != 1:
        array = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
    data = io.BytesIO()
    np.lib.format.write_array(data, array, allow_pickle=False)
    return data.getvalue()


def _number(file: zipfile.ZipFile, name: str, kind: str) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = np.lib.format.read_array(io.BytesIO(file.read(name)), allow_pickle=False)
    if kind == "sum":
        wide = array.astype(np.clongdouble if array.dtype.kind == "c" else np.longdouble)
        return np.asarray(wide[0] + wide[1])
    numpy = ElementKind(kind).row.numpy
    return array if array.dtype == numpy else array.view(numpy)


def _device_of(memory: Memory) -> str:
    checks = isinstance(memory, HostMemory) and memory.device.check
    return "check" if checks else memory.name


def _identity(trial: Trial) -> dict[str, str]:
    """What decides the outcome beside the numbers, by name."""
    subject, plan = trial.problem.subject, trial.problem.plan
    spec = hashlib.sha256(subject.loaded.source.path.read_bytes()).hexdigest()[:16]
    text = next(row.source.raw for row in plan.kernels() if row.sku == plan.sku)
    return {"the spec": spec, "the kernel": str(plan.sku), "the kernel's text": digest_of_kernels(text)}


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in _VERSIONS:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    with suppress(CompileError):
        found["nvrtc"] = nvrtc_version()
    return found
