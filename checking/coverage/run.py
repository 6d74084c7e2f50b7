"""Runs the spec-driven tests of an op with kernels that count the branches they take."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from baracuda.runtime import KernelInternal

from .. import variables
from ..verify import environment, pytest_command
from .branches import Branch, branches
from .untaken import Declared, reason_of

# Checks that run kernels on other problems, layouts or values than each other.
_CHECKS = (
    *("accuracy", "edges", "pairs", "shrunken", "asynchrony", "clusters", "orders", "explicit"),
    *("layouts", "stored", "special", "huge", "in_place", "broadcast", "batch_invariance", "compensation"),
)
_CHOSEN = " or ".join(_CHECKS)


@dataclass(frozen=True)
class Coverage:
    """How many branches an op's kernels have, and those that its tests do not take, each with its reason or ""."""

    op: str
    branches: int
    untaken: dict[Branch, str]

    @property
    def percent(self) -> float:
        """Of the branches that no reason excuses."""
        judged = self.branches - sum(map(bool, self.untaken.values()))
        return 100 * (self.branches - len(self.untaken)) / judged if judged else 0.0


def coverage_of(
    op: str, specs: Path | None, package: str, jobs: int, entries: Sequence[Declared], tests: str = _CHOSEN
) -> Coverage:
    """Run those tests of `op` that pytest's -k takes by `tests`; raises KernelInternal if one fails."""
    with TemporaryDirectory(prefix="baracuda-coverage-") as folder:
        chosen = environment(specs, package, [op], "coverage") | {variables.COVERAGE: folder}
        command = [*pytest_command(), "-n", str(jobs), "-k", tests]
        done = subprocess.run(command, env={**os.environ, **chosen}, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise KernelInternal(f"{op}: its tests fail with kernels that count branches:\n{done.stdout[-4000:]}")
        counts = branches(Path(folder).resolve())
    untaken = sorted(branch for branch, count in counts.items() if not count)
    return Coverage(op, len(counts), {branch: reason_of(op, branch, entries) for branch in untaken})
