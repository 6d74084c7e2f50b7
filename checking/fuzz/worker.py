"""A process that judges cases: it reads lines of JSON, first what to work with, then a target and a number each."""

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
    """Answer on stdout, where nothing else is printed."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints does so to stderr
    given = json.loads(sys.stdin.readline())
    watch.install()

    @cache
    def target(name: str) -> Target:
        own = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=given["folder"]))
        os.chdir(own)
        return Target.kinds[name](given["seed"], own)

    def answer(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    answer({})
    for line in sys.stdin:
        asked = json.loads(line)
        answer(asdict(target(asked["target"]).verdict(asked["index"])))


if __name__ == "__main__":
    main()
