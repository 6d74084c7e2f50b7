"""`record`: run a program and write down the problems that its plans are given."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import click

from baracuda.runtime import InvalidProblem
from baracuda.runtime.cache.publish import publish
from baracuda.runtime.plans.recorded import RECORD


def record(program: Sequence[str], out: Path) -> int:
    """Run `program` and write its problems to `out`, each once and sorted; returns its exit status."""
    if not program:
        raise InvalidProblem("no program to run; write it after --, as in: baracuda-gen record -- python train.py")
    file = out.absolute()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("")
    try:
        status = subprocess.run(program, env={**os.environ, RECORD: str(file)}, check=False).returncode
    except FileNotFoundError:
        raise InvalidProblem(f"no program {program[0]!r}") from None
    finally:
        lines = sorted(set(file.read_text(encoding="utf-8").splitlines()))
        publish(file, "".join([f"{line}\n" for line in lines]), mode=None)
    click.echo(f"{out}: {len(lines)} problems", err=True)
    return status
