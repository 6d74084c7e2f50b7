"""A worker process: reads lines of JSON, first the setup, then one op and index each."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from baracuda.codegen.project import plans_of
from baracuda.codegen.spec.load import load_folder
from baracuda.runtime import Unsupported

from ..problems.subject import Subject
from ..repro.bundle import write
from ..trials.memory import memory_of
from .draw import draw
from .judge import Outcome, Settings, judge, trial_of
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
            trial = trial_of(drawn, self.torch_device, settings.repeats)
        except Exception:  # whatever it is, it is the failure
            return None
        origin = {"compare": outcome.index, "style": drawn.style, **asdict(settings)}
        return write(trial, folder, outcome.failure, self.memory, origin)


def main() -> None:
    """Answer on stdout, which nothing else uses."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints does so to stderr

    def answer(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    setup = json.loads(sys.stdin.readline())
    torch_module().set_num_threads(1)
    try:
        judged = Judge(Path(setup["specs"]), setup["package"], setup["ops"], Settings(**setup["settings"]))
    except Unsupported as error:
        sys.exit(str(error))
    answer({})
    for line in sys.stdin:
        outcome = judged(**json.loads(line))
        answer(asdict(outcome))
        if outcome.fatal:
            return


if __name__ == "__main__":
    main()
