"""Targets that read other files: tables of measurements and repro files."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from random import Random
from typing import Any

import numpy as np

from baracuda.codegen.emit.generate import lower_all, texts
from baracuda.codegen.project import PACKAGE, installed, plans_of
from baracuda.codegen.spec.load import load_folder
from baracuda.codegen.spec.tuned import path_of
from baracuda.runtime import BaracudaError

from ...problems.problem import Problem
from ...problems.subject import Subject
from ...repro import bundle
from ...repro.replay import replay
from ...trials.memory import memory_of
from ...verify import checks
from ..draw import mutate, payloads
from ..draw.specs import bases
from ..verdict import Fault, refusal
from .target import Target

_FACTS = "repro.json"
_MEASURED = {
    "element": "f32",
    "same": {"packed": 0},
    "near": {"cols": 12289},
    "sku": "softmax/softmax/forward/f32/sm_80/bespoke/f32.f32.dsb-/wide384x1x2r1/-/-/-",
    "cases": {"f32 10921x12289": [480.8, 506.528]},
    "device": "NVIDIA H200",
    "driver": "580.159.04",
    "nvrtc": "13.0",
    "digest": "625d7212dbca5d57",
}


class Tables(Target):
    """Tables of measurements beside specs."""

    name = "tables"

    def prepare(self) -> None:
        self.specs = self.folder / "specs"
        self.path, self.good = path_of(self.specs, "sm_90", "softmax"), json.dumps([_MEASURED]).encode()
        self.path.parent.mkdir(parents=True)
        (base,) = (base for base in bases() if base.path.stem == "softmax")
        (self.specs / base.path.name).write_bytes(base.path.read_bytes())
        self.path.write_bytes(self.good)
        self.judge(self.good)

    def case(self, index: int, rng: Random) -> object:
        if index % 3 == 0:
            return mutate.garble(self.good, rng)
        data = json.loads(self.good)
        mutate.change(data, rng, payloads.value)
        if index % 3 == 1:
            data = _wrapped(data, rng)
        return json.dumps(data, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")

    def place(self, case: object) -> None:
        assert isinstance(case, bytes)
        self.path.write_bytes(case)

    def judge(self, case: object) -> str:
        try:
            texts(lower_all(load_folder(self.specs).values()))
        except BaracudaError as error:
            return refusal(error)
        return ""


def _wrapped(data: Any, rng: Random) -> Any:
    """`data`, or part of it, in lists and dicts, some far too deep."""
    for _ in range(rng.choice((0, 0, 1, 2, 900))):
        data = [data] if rng.random() < 0.5 else {"a": data}
    return data


class Repro(Target):
    """Files of `repro`, for a package that the user has named."""

    name = "repro"
    pure = False

    def prepare(self) -> None:
        plans_of(PACKAGE)
        self.specs = installed("baracuda.specs")
        loaded, self.memory = load_folder(self.specs), memory_of("host")
        first = loaded["cross_entropy"]
        problem = Problem.of(Subject(first, loaded, PACKAGE), first.spec.tests.cases[0], "f32")
        self.good = bundle.write(checks.drawn(problem, "normal"), self.folder, "nothing", self.memory, {}).read_bytes()
        self.path = self.folder / "case.zip"
        self.path.write_bytes(self.good)
        self.judge(self.good)

    def case(self, index: int, rng: Random) -> object:
        if index % 3 == 0:
            return mutate.garble(self.good, rng)
        with zipfile.ZipFile(io.BytesIO(self.good)) as file:
            parts = {name: file.read(name) for name in file.namelist()}
        if index % 3 == 1:
            facts = json.loads(parts[_FACTS])
            mutate.change(facts, rng, payloads.value)
            parts[_FACTS] = json.dumps(facts).encode()
        else:
            name = rng.choice(sorted(parts))
            parts[name] = rng.choice((mutate.garble(parts[name], rng), _other_array(rng)))
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as file:
            for name, data in parts.items():
                file.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
        return packed.getvalue()

    def place(self, case: object) -> None:
        assert isinstance(case, bytes)
        self.path.write_bytes(case)

    def judge(self, case: object) -> str:
        modules = set(sys.modules)
        try:
            replay(bundle.read(self.path), self.specs, PACKAGE, "host")
        except BaracudaError as error:
            return refusal(error)
        finally:
            strange = {name.partition(".")[0] for name in sys.modules.keys() - modules} - sys.stdlib_module_names
            if strange := strange - {"baracuda"}:
                raise Fault(f"imported {', '.join(sorted(strange))}")
        return ""


def _other_array(rng: Random) -> bytes:
    """An .npy file of another shape, or one whose header claims a far larger one."""
    data = io.BytesIO()
    np.lib.format.write_array(data, np.zeros(rng.choice(((0,), (3, 4), (1, 5), ())), rng.choice(("f4", "f8", "i1"))))
    text, huge = data.getvalue(), rng.choice((b"(9999999999999,), ", b"(99999999, 999), ", b"(-1, 2), "))
    return text.replace(b"(3, 4), ", huge) if rng.random() < 0.7 else text
