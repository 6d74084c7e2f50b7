"""Reruns a saved failure."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from baracuda.codegen.project import plans_of
from baracuda.codegen.spec.load import load_folder

from ..oracles.accuracy import Accuracy
from ..trials.memory import Memory, check_mode, memory_of
from .bundle import Bundle


@dataclass(frozen=True)
class Replay:
    """The result: each output's distance from the oracle, and the failure, or ""."""

    kernel: str
    changed: list[str]  # what is no longer as it was when it failed
    outputs: Mapping[str, Accuracy]
    failure: str


def replay(bundle: Bundle, specs: Path, package: str, device: str) -> Replay:
    """Run `bundle` with the plans of `package` on "host", "check" or "cuda"."""
    plans_of(package)
    loaded = load_folder(specs)
    with _memory(device) as memory:
        trial = bundle.trial(loaded, package, memory.name)
        outputs, failure = trial.verdict(memory)
    return Replay(str(trial.problem.plan.sku), bundle.changed(trial), outputs, failure)


def _memory(device: str) -> AbstractContextManager[Memory]:
    return check_mode() if device == "check" else nullcontext(memory_of(device))
