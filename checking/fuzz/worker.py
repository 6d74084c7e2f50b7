"""A process that judges cases: it reads lines of JSON, first the set-up, then a target and an index each."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from . import watch
from .targets.all import Target


def main() -> None:
    """Write verdicts to stdout; everything else is printed to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # other output goes to stderr
    setup = json.loads(sys.stdin.readline())
    watch.install()

    @cache
    def target(name: str) -> Target:
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=setup["folder"]))
        os.chdir(folder)
        return Target.kinds[name](setup["seed"], folder)

    def answer(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    answer({})
    for line in sys.stdin:
        request = json.loads(line)
        answer(asdict(target(request["target"]).verdict(request["index"])))


if __name__ == "__main__":
    main()
