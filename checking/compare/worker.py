"""The judge of many problems, and the task of a sweep: one problem each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from baracuda.codegen.project import TOOLS, installed, plans_of, specs_at
from baracuda.codegen.spec.load import load_folder

from ..apart import retire
from ..problems.subject import Subject
from ..repro.bundle import write
from ..result_file import digest_of
from ..trials.memory import memory_of
from .draw import draw
from .judge import Outcome, Settings, judge, trial_of
from .state import Key
from .torch_values import torch_module


class Judge:
    """What problems of many ops share."""

    def __init__(self, specs: Path, package: str, ops: Sequence[str], settings: Settings) -> None:
        plans_of(package)
        loaded = load_folder(specs, ops)
        self.settings, self.memory = settings, memory_of(settings.device)
        self.subjects = {op: Subject(loaded_spec, loaded, package) for op, loaded_spec in loaded.items()}
        torch = torch_module()
        on_gpu = settings.device == "cuda" and torch.cuda.is_available()
        self.torch_device = "cuda" if on_gpu else "cpu"

    def __call__(self, op: str, index: int) -> Outcome:
        return judge(self.subjects[op], index, self.settings, self.memory, self.torch_device)

    def keep(self, outcome: Outcome, folder: Path) -> Path | None:
        """Save the problem of a failure in a file below `folder`; nothing if drawing it failed."""
        settings = self.settings
        try:
            drawn = draw(self.subjects[outcome.op], settings.seed, outcome.index, settings.device, settings.limit)
            trial = trial_of(drawn, self.torch_device, settings, self.memory)
        except Exception:  # whatever it is, it is the failure
            return None
        origin = {"compare": outcome.index, "style": drawn.style, **asdict(settings)}
        return write(trial, folder, outcome.failure, self.memory, origin)


@dataclass(frozen=True)
class Setup:
    """What all tasks of a sweep share; `specs` is None for those that are installed, wherever that is."""

    specs: Path | None
    package: str
    ops: tuple[str, ...]
    settings: Settings


@cache
def judge_of(setup: Setup) -> Judge:
    """The judge of this process."""
    torch_module().set_num_threads(1)
    return Judge(specs_at(setup.specs), setup.package, setup.ops, setup.settings)


def judged(setup: Setup, key: Key) -> Outcome:
    """The outcome of a problem, in a process apart, which ends with its device."""
    outcome = judge_of(setup)(*key)
    if outcome.fatal:
        retire()
    return outcome


def against(specs: Path | None, package: str) -> str:
    """A digest of everything that outcomes depend on."""
    return digest_of([*map(installed, TOOLS), specs_at(specs), Path(str(plans_of(package).__file__)).parent])
